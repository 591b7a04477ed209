"""A sliding window: each position attends to near ones only (Beltagy et al. 2020; Jiang et al.
2023).
"""

import numpy as np
import pytest
from promises import assert_steps_equal_recomputation, params_of
from whole_models import (
    assert_gradient_along_directions,
    assert_same_gradient,
    loss_of_leaves,
    shaken,
)

from npformer import Transformer, layers, reference, tree
from npformer.models.initialization import Initializer, LayerShapes

SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 9, "max_len": 16, "dropout": 0.3, "dtype": "float64"}
SRC = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 0, 0, 0]])


@pytest.mark.parametrize(("causal", "sees"), [(False, {2, 3, 4, 5, 6}), (True, {2, 3, 4})])
def test_a_position_sees_those_at_a_distance_below_the_window(every_backend, causal, sees):
    params = Initializer(0, "float64").self_attention(LayerShapes(8, 9))
    x = np.random.default_rng(0).standard_normal((1, 9, 8))
    settings, changes = layers.AttentionSettings(2, causal=causal, window=3), set()
    before, _ = layers.self_attention(every_backend, params, x, settings)
    for s in range(9):
        changed = x.copy()
        changed[0, s] += 1
        after, _ = layers.self_attention(every_backend, params, changed, settings)
        changes |= {s} if (after != before)[0, 4].any() else set()
    assert changes == sees


@pytest.mark.parametrize("causal", [False, True])
def test_as_pytorch_with_a_mask(every_backend, causal):
    torch = pytest.importorskip("torch")
    params, (x, dy) = (
        Initializer(0, "float64").self_attention(LayerShapes(8, 9)),
        np.random.default_rng(0).standard_normal((2, 3, 9, 8)),
    )
    y, backward = layers.self_attention(
        every_backend, params, x, layers.AttentionSettings(2, causal=causal, window=3)
    )
    dx, grads = backward(dy)

    leaves = {name: torch.tensor(w, requires_grad=True) for name, w in tree.leaves(params)}
    at, torch_x = torch.arange(9), torch.tensor(x, requires_grad=True)
    near = (at[:, None] - at).abs() < 3
    qkv = torch_x @ leaves["qkv.weight"] + leaves["qkv.bias"]
    q, k, v = (part.reshape(3, 9, 2, 4).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
    mask = near & (at <= at[:, None]) if causal else near
    heads = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch_y = heads.transpose(1, 2).reshape(3, 9, 8) @ leaves["out.weight"] + leaves["out.bias"]
    torch_y.backward(torch.tensor(dy))
    np.testing.assert_allclose(y, torch_y.detach().numpy(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(dx, torch_x.grad.numpy(), rtol=0, atol=1e-13)
    for name, gradient in tree.leaves(grads):
        np.testing.assert_allclose(gradient, leaves[name].grad.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [1, 2, 30])
def test_a_model_trains_and_decodes_with_it(every_backend, window):
    model = Transformer(7, 9, n_layers=(1, 2), window=window, **SIZES)
    params = shaken(model.init(0))
    f, f_backward = loss_of_leaves(model, params, 5)
    assert_gradient_along_directions(f, f_backward, params)
    assert_same_gradient(f_backward, loss_of_leaves(model, params, 5, every_backend)[1], params)
    model, whole = (Transformer(11, 11, n_layers=2, window=n, **SIZES) for n in (window, None))
    params, tgt = params_of(model), np.array([[1, 5, 6, 7, 8]] * 3)
    assert_steps_equal_recomputation(model, params, SRC, every_backend)
    assert np.allclose(model.logits(params, SRC, tgt), whole.logits(params, SRC, tgt)) == (
        window == 30
    )


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
    kv, at = np.zeros((10, 16)), np.arange(10).reshape(2, 5)
    for t in range(5):
        cache = layers.KeyValueCache(kv, at[:, : t + 1], keep_mask[..., : t + 1])
        y, _ = layers.encoder_layer(every_backend, params, x[:, t], settings, cache=cache)
        np.testing.assert_allclose(y, whole[:, t], rtol=0, atol=1e-13)
    with pytest.raises(ValueError, match=r"keep_mask has shape"):
        layers.encoder_layer(
            every_backend,
            params,
            x[:, 4],
            settings,
            cache=cache._replace(keep_mask=keep_mask[..., 1:]),
        )


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (np.ones((2, 1, 1, 4)), TypeError, "keep_mask has dtype float64, expected bool"),
        (np.ones((2, 1, 1, 4), int), TypeError, "keep_mask has dtype int64, expected bool"),
        ([[True] * 4] * 4, TypeError, "keep_mask is a list"),
        (
            np.ones((2, 1, 1, 3), bool),
            ValueError,
            r"keep_mask has shape \(2, 1, 1, 3\), expected one that broadcasts to",
        ),
        (
            np.ones((3, 1, 4, 4), bool),
            ValueError,
            r"keep_mask has shape \(3, 1, 4, 4\), expected one that broadcasts to",
        ),
    ],
    ids=["float", "int", "list", "length", "rows"],
)
def test_a_wrong_mask_is_named_with_a_window_as_without_one(window, mask, error, message):
    params, x = Initializer(0, "float64").self_attention(LayerShapes(8, 9)), np.ones((2, 4, 8))
    with pytest.raises(error, match=message):
        layers.self_attention(
            reference, params, x, layers.AttentionSettings(2, window=window), mask
        )


def test_a_window_of_no_position_is_refused():
    with pytest.raises(ValueError, match="window=0, expected at least 1"):
        Transformer(11, 11, window=0, **SIZES)
