"""``study_heads.py`` as a user runs it, small and in this process, and where it takes the weights to be."""

import json

import numpy as np
import pytest

from scripts.studies import study_heads

from npformer import Transformer, layers, reference as ops
from npformer.layers.multi_head import self_attention_heads


def test_every_head_is_measured(tmp_path):
    study_heads.main(["--quick", "--steps", "2", "--json", str(tmp_path / "x.json")])
    figures = json.loads((tmp_path / "x.json").read_text())
    assert [head["kind"] for head in figures["heads"]] == [kind for kind in study_heads.KINDS for _ in range(8)]
    for head in figures["heads"]:
        assert all(0 <= share <= 1 for share in head["shares"].values())
        assert np.allclose(np.sum(head["weights"], axis=1), 1, atol=0.05)
    assert len(figures["sublayers"]) == 6


@pytest.mark.parametrize("kind", study_heads.KINDS)
def test_weights_are_found_where_they_are(kind):
    src, tgt = np.array([[3, 4, 5, 0], [3, 4, 5, 6]]), np.array([[1, 5, 4, 3, 2, 0], [1, 6, 5, 4, 3, 2]])
    T, S = {"encoder": (4, 4), "decoder": (5, 5), "memory": (5, 4)}[kind]
    weights = np.zeros((2, T, S))
    for row, n in enumerate((3, 4)):
        for t in range(T):
            weights[row, t, n - 1 - t if kind == "memory" and t < n else 0 if kind == "memory" else t] = 1
    shares, keys = study_heads.places(weights, src, tgt, kind, study_heads.reversed_word, pad_id=0)
    place = "belonging" if kind == "memory" else "own"
    assert shares[place][0] == 1
    assert keys == pytest.approx(1)
    assert study_heads.named(shares, keys) == place


def test_even_weights_have_even_shares():
    src = np.array([[3, 4, 5, 6]])
    shares, keys = study_heads.places(np.full((1, 4, 4), 0.25), src, src, "encoder", None, pad_id=0)
    assert keys == pytest.approx(4)
    for share, even in shares.values():
        assert share == pytest.approx(even)
    assert study_heads.named(shares, keys) == "spread, 4.0 keys"


def test_a_head_without_rows_in_the_output_puts_out_zeros():
    model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8, dtype="float64")
    params, x = model.init(0), np.random.default_rng(0).normal(size=(2, 5, 8))
    without = study_heads.without_heads(model, params, "encoder", 0, [0])["encoder"]["0"]["attention"]
    y, _ = layers.self_attention(ops, without, x, layers.AttentionSettings(2))
    heads, _ = self_attention_heads(ops, params["encoder"]["0"]["attention"], x, layers.AttentionSettings(2))
    heads[..., :4] = 0
    out = params["encoder"]["0"]["attention"]["out"]
    np.testing.assert_allclose(y, heads @ out["weight"] + out["bias"])


def test_an_alignment_needs_data(capsys):
    with pytest.raises(SystemExit):
        study_heads.parse_arguments(["--alignment"])
    assert "needs --data" in capsys.readouterr().err
