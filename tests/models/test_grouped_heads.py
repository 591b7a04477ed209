"""Heads of queries that share heads of keys and values (Ainslie et al. 2023)."""

from dataclasses import replace

import numpy as np
import pytest
from oracles import assert_all_close, assert_close
from promises import THREE_ROWS as SRC, assert_trees_close
from refusals import refuses
from tested import npf

from npformer import Transformer, tree
from npformer.layers import AttentionSettings, cross_attention, self_attention

B, T, S, H, G, K = 2, 5, 7, 4, 2, 3
SIZES = {"d_model": 8, "n_heads": 4, "n_layers": (1, 2), "d_ff": 9}
SIZES |= {"max_len": 16, "dropout": 0.3, "dtype": "float64"}
normal = np.random.default_rng(0).standard_normal


def packed(params, names):
    """The maps of these names as one."""
    others = {name: x for name, x in params.items() if name not in names}
    parts = [params[name] for name in names]
    joined = tree.map_leaves(lambda *arrays: np.concatenate(arrays, axis=-1), *parts)
    return {names: joined} | others


@pytest.mark.parametrize("has_bias", [True, False])
def test_separate_projections_compute_what_a_packed_one_does(every_backend, has_bias):
    """Forward and gradients, for q (D, D) and narrower k and v, as in the weights of Llama."""
    D = H * K
    maps = {}
    for name, n in {"q": H * K, "k": G * K, "v": G * K, "out": H * K}.items():
        maps[name] = {"weight": normal((D, n))}
        if has_bias:
            maps[name]["bias"] = normal(n)
    x, dy = normal((2, B, T, D))
    memory = normal((B, S, D))

    def results(layer, params, *inputs):
        y, backward = layer(every_backend, params, *inputs, AttentionSettings(H, G))
        return y, *backward(dy)

    for layer, inputs, names in (
        (self_attention, [x], "qkv"),
        (cross_attention, [x, memory], "kv"),
    ):
        *arrays, grads = results(layer, maps, *inputs)
        *expected, of_packed = results(layer, packed(maps, names), *inputs)
        assert_all_close(arrays, expected, 1e-11)
        grads = dict(tree.leaves(packed(grads, names)))
        for path, grad in tree.leaves(of_packed):
            assert_close(grad, grads[path], 1e-11)


def test_as_many_as_heads_of_queries_change_nothing():
    model = Transformer(11, 11, **SIZES)
    assert_trees_close(replace(model, n_kv_heads=4).init(0), model.init(0))


def test_weights_of_attention_are_those_of_each_head_of_queries():
    model = Transformer(11, 11, n_kv_heads=2, **SIZES)
    params = model.init(0)
    decoder = model.decoder(params, SRC, max_rows=3, max_len=4)
    assert decoder.kv.shape[-1] == 2 * 2 * 2  # keys and values, heads, width
    assert model.attention_weights(params, SRC, SRC)["memory"][0].shape == (3, 4, 4, 4)


def test_a_number_that_does_not_divide_the_heads_and_widths_that_do_not_fit():
    message = "n_kv_heads=3, expected a divisor of n_heads=4"
    refuses(ValueError, message, Transformer, 11, 11, n_kv_heads=3, **SIZES)
    message = r"kv has shape \(2, 7, 24\), expected \(B, S, 2\*G\*K\) with .*G = 2 from settings"
    q, kv = normal((B, T, H * K)), normal((B, S, 2 * H * K))
    refuses(ValueError, message, npf.cross_attention, q, kv, AttentionSettings(H, G))
