"""``scripts/detect_anomalies.py``.

What it draws and counts, and that it finds what breaks a pattern.
"""

import importlib.util
import json

import numpy as np
from oracles import assert_close
from programs import is_png

from npformer.commands import detect_anomalies


def test_anomalies_are_found(tmp_path):
    quick = ["--quick", "--steps", "200", "--quiet"]
    detect_anomalies.main([*quick, "--out", str(tmp_path), "--json", str(tmp_path / "x.json")])
    tests = json.loads((tmp_path / "x.json").read_text())["tests"]
    assert tests.pop("follows the pattern")["auc"] is None
    assert len(tests) == 3
    assert all(found["auc"] > 0.75 for found in tests.values())
    if importlib.util.find_spec("matplotlib"):
        assert is_png(tmp_path / "anomaly_scores.png")


def test_the_area_counts_pairs():
    rng = np.random.default_rng(0)
    normal, anomalies = rng.integers(0, 9, 20), rng.integers(3, 12, 30)
    above = np.mean([(a > n) + (a == n) / 2 for a in anomalies for n in normal])
    assert_close(detect_anomalies.roc_auc(normal, anomalies), above)


def test_motifs_of_the_test_are_never_trained_on_and_anomalies_are_some():
    rng = np.random.default_rng(0)
    trained, tested = (
        {repeated[:12].tobytes() for repeated in draws}
        for draws in (
            [detect_anomalies.repeated(rng, held_out=False) for _ in range(2000)],
            [detect_anomalies.repeated(rng, held_out=True) for _ in range(2000)],
        )
    )
    assert not trained & tested
    sequence = detect_anomalies.repeated(rng, held_out=True)
    assert (detect_anomalies.with_wrong_symbols(rng, sequence, 2) != sequence).sum() == 2
