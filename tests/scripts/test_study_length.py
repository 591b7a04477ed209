"""``study_length.py`` as a user runs it, small and in this process."""

import itertools
import json

import numpy as np
import pytest

from scripts.studies import study_length
from scripts.studies.systems import SYSTEMS, count, of_size

from npformer import ByteNet, CopyTask

pytest.importorskip("matplotlib")


def test_the_search_for_learning_rates(tmp_path):
    study_length.main(["--only", "rates", "--quick", "--steps", "2", "--no-plots", "--json", str(tmp_path / "x.json")])
    figures = json.loads((tmp_path / "x.json").read_text())["rates"]
    assert list(figures) == list(SYSTEMS)
    assert all(len(found) == len(study_length.RATES) for found in figures.values())


@pytest.mark.parametrize("system", SYSTEMS)
def test_systems_are_about_equally_large(system):
    assert abs(count(of_size(system, 150_000, src_vocab=11, tgt_vocab=11)) / 150_000 - 1) < 0.05


def test_everything_that_was_announced_comes_out(tmp_path, capsys):
    short = ["--quick", "--steps", "2", "--seeds", "2"]
    study_length.main([*short, "--out", str(tmp_path), "--json", str(tmp_path / "x.json")])
    assert "reverse: exact match" in capsys.readouterr().out
    figures = json.loads((tmp_path / "x.json").read_text())
    for part in ("copy", "reverse", "times"):
        assert list(figures[part]) == list(SYSTEMS)
    assert all(len(found["values"]) == 2 for found in figures["copy"].values())
    assert figures["paths"]["recurrent"] == [12, 48, 192]
    for name in ("study_length.png", "study_wishes.png"):
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"


def test_the_path_through_bytenet_is_the_shortest_of_all():
    """Of every way through the taps of a small one, one after the other."""
    model = ByteNet(11, 11, d_model=4, n_sets=1, dilations=(1, 2), kernel_sizes=(3, 2))
    ways = {}
    for way in itertools.product((-1, 0, 1), (-2, 0, 2), (0, 1), (0, 2)):
        ways.setdefault(sum(way), []).append(sum(map(bool, way)))
    assert study_length.fewest_convolutions(model, 6) == [min(ways[distance]) for distance in range(6)]
    assert np.isnan(study_length.fewest_convolutions(model, 8)[-1])


def test_lengths_are_tested_with_sequences_that_training_never_had(monkeypatch):
    task = CopyTask(vocab=study_length.VOCAB, min_len=1, max_len=8, reverse=True)
    trained = {row.tobytes() for step in range(50) for row in task.batch(step, 64)[0] if (row != 0).all()}
    seen = []

    def match(model, params, src, tgt):
        assert src.shape == (50, 8)
        seen.extend(row.tobytes() in trained for row in src)
        return 1.0, tgt[:, 1:]

    monkeypatch.setattr(study_length, "exact_match", match)
    assert study_length.right_of_length(None, None, task, 8, 50) == (1.0, 1.0)
    assert seen == [False] * 50


def test_what_translating_lacks_is_said_before_the_hours(tmp_path, capsys):
    for package in ("sentencepiece", "safetensors", "sacrebleu", "sacremoses"):
        pytest.importorskip(package)
    with pytest.raises(SystemExit):
        study_length.parse_arguments(["--data", str(tmp_path)])
    assert "expected train.en or train.en.gz" in capsys.readouterr().err


def test_joined_text_is_the_text_again(tmp_path):
    """Every sentence once a round, its translation in the same line, 1 to 3 at a time."""
    pytest.importorskip("sacrebleu")
    from scripts.studies.translations import write_joined

    lines = [f"s{i}" for i in range(20)]
    for split in ("train", "val"):
        (tmp_path / f"{split}.en").write_text("".join(f"{line}\n" for line in lines))
        (tmp_path / f"{split}.fr").write_text("".join(f"t{line}\n" for line in lines))
    write_joined(tmp_path, tmp_path / "joined", at_most=3, rounds=2)
    english, french = ((tmp_path / "joined" / f"train.{end}").read_text().splitlines() for end in ("en", "fr"))
    assert sorted(" ".join(english).split()) == sorted(2 * lines)
    assert [" ".join(f"t{word}" for word in line.split()) for line in english] == french
    assert {len(line.split()) for line in english} == {1, 2, 3}
