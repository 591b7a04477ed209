"""The sequence auto-encoder: its gradient, its bottleneck, and what it finds."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import detect_anomalies
import numpy as np
import pytest
from oracles import assert_close
from test_decoding_cache import assert_steps_equal_recomputation, params_of
from test_transformer_gradients import TGT, V_TGT, loss_of_leaves, shaken

from npformer import SequenceAutoencoder, gradcheck, greedy_decode, tree
from npformer.models import describe, from_description
from npformer.reference import log_softmax

SCRIPT = Path(__file__).parent.parent / "scripts" / "detect_anomalies.py"
MODEL = SequenceAutoencoder(V_TGT, d_model=5, code_size=3, dropout=0.3, dtype="float64", max_len=16)
SRC = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 0, 0, 0]])


@pytest.mark.parametrize("key", [None, 5])
def test_every_parameter_by_complex_step(key):
    params = shaken(MODEL.init(0))
    names, arrays = zip(*tree.leaves(params), strict=True)
    f, f_backward = loss_of_leaves(MODEL, params, key)
    gradcheck(f, f_backward, arrays, names=names, complex_tolerance=1e-12, central_tolerance=None)


def test_steps_equal_recomputation(every_backend):
    assert_steps_equal_recomputation(MODEL, params_of(MODEL), SRC, every_backend)


def test_nothing_but_the_code_reaches_the_decoder():
    params = params_of(MODEL)
    code = MODEL.encode(params, SRC)
    assert code.shape == (3, 3)
    same = MODEL.decode(params, code[[0, 0, 0]], SRC, np.ones((3, 2), int))
    assert (same == same[:1]).all()


def test_more_padding_changes_no_code():
    params = params_of(MODEL)
    assert_close(MODEL.encode(params, np.pad(SRC, ((0, 0), (0, 5)))), MODEL.encode(params, SRC), 1e-14)


def test_the_error_is_the_mean_log_probability_of_the_tokens():
    params = params_of(MODEL)
    tgt = np.array([[1, 3, 4, 5, 6, 2], [1, 7, 8, 2, 0, 0], [1, 9, 2, 0, 0, 0]])
    errors = MODEL.reconstruction_error(params, SRC, tgt)
    log_p = log_softmax(MODEL.logits(params, SRC, tgt[:, :-1]))
    expected = [-np.mean([log_p[row, t, tgt[row, t + 1]] for t in range(n)]) for row, n in enumerate((5, 3, 2))]
    assert_close(errors, expected, 1e-14)


def test_decoding_and_description():
    params = params_of(MODEL)
    assert len(greedy_decode(MODEL, params, SRC, bos_id=1, eos_id=2, max_len=6)) == 3
    assert from_description(describe(MODEL)) == MODEL


@pytest.mark.parametrize("options", [{"vocab": 0}, {"vocab": 9, "code_size": 0}, {"vocab": 9, "dropout": 1.0}])
def test_bad_settings_are_named(options):
    with pytest.raises(ValueError, match=f"{list(options)[-1]}="):
        SequenceAutoencoder(**options)
    with pytest.raises(ValueError, match="src has 3 rows, the target 2"):
        MODEL.logits(params_of(MODEL), SRC, TGT[:2])


# ---- scripts/detect_anomalies.py ----


def test_anomalies_are_found(tmp_path):
    command = [sys.executable, SCRIPT, "--quick", "--steps", "400", "--quiet", "--out", tmp_path]
    subprocess.run([*command, "--json", tmp_path / "x.json"], check=True, stdout=subprocess.DEVNULL)
    tests = json.loads((tmp_path / "x.json").read_text())["tests"]
    assert tests.pop("follows the pattern")["auc"] is None
    assert len(tests) == 3
    assert all(found["auc"] > 0.9 for found in tests.values())
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "anomaly_scores.png").read_bytes()[:4] == b"\x89PNG"


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
