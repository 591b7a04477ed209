"""A sliding window: each position attends to near ones only (Beltagy et al. 2020; Jiang et al.
2023).
"""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from oracles import assert_close
from promises import THREE_ROWS as SRC, assert_trees_close, params_of
from refusals import refuses

from npformer import Transformer, layers, reference
from npformer.models.initialization import Initializer, LayerShapes

SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 9, "max_len": 16, "dropout": 0.3, "dtype": "float64"}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 3, 30])
def test_a_window_computes_what_a_mask_does(every_backend, causal, window):
    params = Initializer(0, "float64").self_attention(LayerShapes(8, 9))
    x, dy = np.random.default_rng(0).standard_normal((2, 3, 9, 8))
    at = np.arange(9)
    near = abs(at[:, None] - at) < window
    plain = layers.AttentionSettings(2, causal=causal)
    settings = layers.AttentionSettings(2, causal=causal, window=window)
    masked, masked_backward = layers.self_attention(every_backend, params, x, plain, near)
    y, backward = layers.self_attention(every_backend, params, x, settings)
    assert_close(y, masked)
    masked_dx, masked_grads = masked_backward(dy)
    dx, grads = backward(dy)
    assert_close(dx, masked_dx)
    assert_trees_close(grads, masked_grads, 1e-12)


def test_a_model_has_the_window_in_its_layers():
    model = Transformer(11, 11, n_layers=2, **SIZES)
    params = params_of(model)
    expected = model.logits(params, SRC, SRC)
    for window in (2, 30):
        is_same = np.allclose(replace(model, window=window).logits(params, SRC, SRC), expected)
        assert is_same == (window == 30)


def test_a_cache_with_a_mask_and_a_window(every_backend):
    """Step by step as the whole.

    The mask hides position 1 of row 0, from the window of positions 1 and 2.
    """
    params = Initializer(0, "float64").encoder_layer(LayerShapes(8, 9))
    x = np.random.default_rng(0).standard_normal((2, 5, 8))
    settings = layers.LayerSettings(layers.AttentionSettings(2, causal=True, window=2))
    keep_mask = np.ones((2, 1, 1, 5), bool)
    keep_mask[0, ..., 1] = False
    whole, _ = layers.encoder_layer(every_backend, params, x, settings, keep_mask)
    kv = np.zeros((10, 16))
    at = np.arange(10).reshape(2, 5)
    for t in range(5):
        cache = layers.KeyValueCache(kv, at[:, : t + 1], keep_mask[..., : t + 1])
        y, _ = layers.encoder_layer(every_backend, params, x[:, t], settings, cache=cache)
        assert_close(y, whole[:, t], 1e-13)
    wrong = cache._replace(keep_mask=keep_mask[..., 1:])
    arguments = every_backend, params, x[:, 4], settings
    refuses(ValueError, "keep_mask has shape", layers.encoder_layer, *arguments, cache=wrong)


@pytest.mark.parametrize("window", [None, 2])
def test_a_wrong_mask_is_named_with_a_window_as_without_one(window):
    params = Initializer(0, "float64").self_attention(LayerShapes(8, 9))
    settings = layers.AttentionSettings(2, window=window)
    attend = partial(layers.self_attention, reference, params, np.ones((2, 4, 8)), settings)
    refuses(TypeError, "keep_mask has dtype int64, expected bool", attend, np.ones((4, 4), int))
    for shape in ((2, 1, 1, 3), (3, 1, 4, 4)):
        message = re.escape(f"keep_mask has shape {shape}, expected one that broadcasts to")
        refuses(ValueError, message, attend, np.ones(shape, bool))
