"""``scripts/studies/``: what they compute, and that they run."""

import importlib.util
import json

import numpy as np
import pytest

from scripts.studies import study_finetuning, study_scaling

import npformer as nf
from npformer import reference


@pytest.mark.filterwarnings("error")
def test_the_study_in_small(tmp_path, capsys):
    short = ("--quick", "--steps", 2, "--seeds", 2, "--seed", 7)
    study_scaling.main([*map(str, (*short, "--out", tmp_path / "pictures", "--json", tmp_path / "f.json"))])
    shown = capsys.readouterr().out
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures["seeds"] == [7, 8]
    assert figures["sizes"]["steps"] == 2
    random = {(row["score"], row["width"]): row for row in figures["random"]}
    for K in (4, 64, 1024):
        assert np.mean(random["dot", K]["variance"]) == pytest.approx(K, rel=0.3)
        assert np.mean(random["scaled_dot", K]["variance"]) == pytest.approx(1, rel=0.3)
        np.testing.assert_allclose(np.divide(random["dot", K]["variance"], random["scaled_dot", K]["variance"]), K)
    assert max(random["dot", 1024]["entropy"]) < 0.5 < 3.5 < min(random["scaled_dot", 1024]["entropy"])
    assert max(random["dot", 1024]["gradient_median"]) < 0.01 < 0.1 < min(random["additive", 1024]["gradient_median"])
    assert {(row["score"], row["width"]) for row in figures["learned"]} == {
        (score, width) for score in ("dot", "scaled_dot", "additive") for width in (4, 64)
    }
    assert all(0 <= found <= 1 for row in figures["learned"] for found in row["found"])
    assert "right word found after 2 steps of Adam" in shown
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "pictures" / "attention_scores.png").read_bytes()[:4] == b"\x89PNG"


def test_finetuning_in_small(tmp_path):
    study_finetuning.main(["--quick", "--seeds", "2", "--json", str(tmp_path / "figures.json")])
    ways = {way["way"]: way for way in json.loads((tmp_path / "figures.json").read_text())["ways"]}
    head, adapters, everything = (ways[name]["n_trained"] for name in ("head", "adapters", "all"))
    in_layers = 2 * (16 + 48) + 2 * (16 + 16) + 2 * 2 * (16 + 32)  # of rank 2
    assert (head, adapters) == (34, 34 + in_layers)
    assert everything > 5 * adapters
    assert all(len(way["right"]) == 2 and 0 <= min(way["right"]) <= max(way["right"]) <= 100 for way in ways.values())
    with pytest.raises(SystemExit):
        study_finetuning.main([])


def test_help_and_wrong_arguments(tmp_path, capsys):
    def said(code, *arguments):
        with pytest.raises(SystemExit) as stop:
            study_scaling.main([*arguments])
        assert stop.value.code == code
        return "".join(capsys.readouterr())

    shown = said(0, "--help")
    for option in ("--quick", "--seed", "--seeds", "--steps", "--out", "--json"):
        assert option in shown
    assert "expected at least 1" in said(2, "--steps", "0")
    assert "expected a file" in said(2, "--json", str(tmp_path))


@pytest.mark.parametrize("score", study_scaling.LABELS)
def test_the_gradients_that_learn_are_derivatives(score):
    """The gradient of the whole model: embeddings, score, softmax, readout and loss."""
    rng = np.random.default_rng(0)
    batch = study_scaling.new_batch(rng, rng.permutation(study_scaling.N_WORDS), size=3)
    flat, params = nf.tree.flatten(study_scaling.new_params(score, 2, rng))
    params = nf.tree.view_as(flat.astype("float64"), params)
    v = np.eye(study_scaling.N_ANSWERS)[batch["answers"]]

    def loss(flat):
        p = nf.tree.view_as(flat, params)
        q, k = p["queries"][batch["asked"]][:, None], p["keys"][batch["shown"]]
        out, _ = reference.score_attention(q, k, v, score, tuple(p["score"].values()))
        return reference.cross_entropy(out[:, 0] @ p["readout"], batch["target"])[0]

    def backward(dloss, flat):
        grads, _ = study_scaling.gradients(nf.tree.view_as(flat, params), score, batch)
        return dloss * nf.tree.flatten(grads)[0]

    nf.gradcheck(loss, backward, [nf.tree.flatten(params)[0]], complex_tolerance=1e-12)


def test_a_batch_asks_for_a_word_that_is_shown_once():
    rng = np.random.default_rng(0)
    translation = rng.permutation(study_scaling.N_WORDS)
    batch = study_scaling.new_batch(rng, translation, 50)
    for row in range(50):
        shown = batch["shown"][row]
        assert len(set(shown)) == study_scaling.N_SHOWN
        assert [translation[word] == batch["asked"][row] for word in shown].index(True) == batch["at"][row]
        assert batch["answers"][row, batch["at"][row]] == batch["target"][row]
