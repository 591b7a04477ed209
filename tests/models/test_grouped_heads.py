"""Heads of queries that share heads of keys and values (Ainslie et al. 2023)."""

import numpy as np
import pytest
from refusals import refuses
from tested import npf

from npformer import Transformer, tree
from npformer.layers import AttentionSettings, cross_attention, self_attention

B, T, S, H, G, K = 2, 5, 7, 4, 2, 3
SETTINGS = AttentionSettings(H, G, causal=True)
SIZES = {"d_model": 8, "n_heads": 4, "n_layers": (1, 2), "d_ff": 9}
SIZES |= {"max_len": 16, "dropout": 0.3, "dtype": "float64"}
SRC = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 0, 0, 0]])
normal = np.random.default_rng(0).standard_normal


@pytest.mark.parametrize("has_bias", [True, False])
def test_separate_projections_compute_what_a_packed_one_does(every_backend, has_bias):
    """Forward and gradients, for q (D, D) and narrower k and v, as in the weights of Llama."""
    D = H * K
    maps = {}
    for name, n in {"q": H * K, "k": G * K, "v": G * K, "out": H * K}.items():
        maps[name] = {"weight": normal((D, n))} | ({"bias": normal(n)} if has_bias else {})
    x, memory, dy = normal((B, T, D)), normal((B, S, D)), normal((B, T, D))

    def packed(params, *names):
        joined = {}
        for key in params["q"]:
            joined[key] = np.concatenate([params[name][key] for name in names], axis=-1)
        others = {name: params[name] for name in params.keys() - {*names}}
        return {"".join(names): joined} | others

    for layer, inputs, names in (
        (self_attention, [x], "qkv"),
        (cross_attention, [x, memory], "kv"),
    ):
        results = []
        for params in (maps, packed(maps, *names)):
            y, backward = layer(every_backend, params, *inputs, AttentionSettings(H, G))
            *dinputs, grads = backward(dy)
            grads = packed(grads, *names) if params is maps else grads
            results.append(dict(tree.leaves({"y": y, **dict(enumerate(dinputs)), **grads})))
        assert results[0].keys() == results[1].keys()
        for path, value in results[0].items():
            np.testing.assert_allclose(value, results[1][path], rtol=0, atol=1e-11, err_msg=path)


def test_as_many_as_heads_of_queries_change_nothing():
    model, other = (Transformer(11, 11, n_kv_heads=n, **SIZES) for n in (None, 4))
    assert (tree.flatten(model.init(0))[0] == tree.flatten(other.init(0))[0]).all()
    model = Transformer(11, 11, n_kv_heads=2, **SIZES)
    decoder = model.decoder(model.init(0), SRC, max_rows=3, max_len=4)
    assert decoder.kv.shape[-1] == 2 * 2 * 2  # keys and values, heads, width
    assert model.attention_weights(model.init(0), SRC, SRC)["memory"][0].shape == (3, 4, 4, 4)


def test_a_number_that_does_not_divide_the_heads_and_widths_that_do_not_fit():
    message = "n_kv_heads=3, expected a divisor of n_heads=4"
    refuses(ValueError, message, Transformer, 11, 11, n_kv_heads=3, **SIZES)
    message = r"kv has shape \(2, 7, 24\), expected \(B, S, 2\*G\*K\) with .*G = 2 from settings"
    q, kv = normal((B, T, H * K)), normal((B, S, 2 * H * K))
    refuses(ValueError, message, npf.cross_attention, q, kv, AttentionSettings(H, G))
