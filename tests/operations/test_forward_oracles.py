"""Every forward operation against loops over scalars."""

import math

import numpy as np
import oracles
import pytest
from oracles import assert_close
from tested import npf

from npformer.operations.settings import AttentionSettings

B, H, T, S, K, KV, D, F, V = 2, 3, 5, 7, 11, 13, 17, 19, 23
RATE, KEY = 0.3, 2024


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(
    "wrong", [[1.0, np.nan], [1.0, -2.0], [1.0, 2.0 + 1e-12], [[1.0, 2.0]], [1.0]]
)
def test_the_comparison_itself_can_fail(wrong):
    with pytest.raises(AssertionError):
        assert_close(np.array(wrong), np.array([1.0, 2.0]))


@pytest.mark.parametrize(
    ("operation", "oracle"),
    [
        (npf.relu, oracles.relu),
        (npf.sigmoid, oracles.sigmoid),
        (npf.silu, oracles.silu),
        (npf.gelu, oracles.gelu),
        (npf.gelu_erf, oracles.gelu_erf),
        (npf.tanh, math.tanh),
    ],
)
def test_activations(operation, oracle):
    x = 3 * normal(B, T, D)
    assert_close(operation(x), oracles.elementwise(oracle, x))


def test_gelu_erf_has_as_many_digits_where_it_is_small():
    x = np.linspace(-37, 37, 2001)
    exact = oracles.elementwise(oracles.gelu_erf, x)
    # an argument of ε
    assert (np.abs(npf.gelu_erf(x) - exact) <= 1e-15 * (1 + x * x) * np.abs(exact)).all()


def test_sigmoid_far_out():
    assert_close(npf.sigmoid(np.array([-745.0, -800.0, 800.0])), [0, 0, 1])


@pytest.mark.parametrize(
    ("operation", "oracle"),
    [(npf.softmax, oracles.softmax), (npf.log_softmax, oracles.log_softmax)],
)
@pytest.mark.parametrize("shift", [0, 1000, -1000])
def test_softmax(operation, oracle, shift):
    x = 5 * normal(T, S, K) + shift
    assert_close(operation(x), oracle(x), 1e-12 if shift else 1e-13)


@pytest.mark.parametrize(
    ("operation", "oracle"),
    [(npf.softmax, oracles.softmax), (npf.log_softmax, oracles.log_softmax)],
)
def test_softmax_over_the_first_axis(operation, oracle):
    x = normal(T, S, K)
    assert_close(operation(x, axis=0), np.moveaxis(oracle(np.moveaxis(x, 0, -1)), -1, 0))


@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_layer_norm(eps):
    x, gain, bias = 3 + 2 * normal(B, T, D), normal(D, seed=1), normal(D, seed=2)
    y, mean, rstd = npf.layer_norm(x, gain, bias, eps)
    assert_close(y, oracles.layer_norm(x, gain, bias, eps))
    assert_close(mean[..., 0], oracles.along_last_axis(lambda row: math.fsum(row) / D, x))
    assert_close(rstd, 1 / np.sqrt(x.var(axis=-1, keepdims=True) + eps))


def test_layer_norm_far_from_zero():
    x, gain, bias = 1e6 + normal(T, D), np.ones(D), np.zeros(D)
    assert_close(npf.layer_norm(x, gain, bias)[0], oracles.layer_norm(x, gain, bias), 1e-9)


def test_rms_norm():
    x, gain = 3 + 2 * normal(B, T, D), normal(D, seed=1)
    y, rstd = npf.rms_norm(x, gain, 0.1)
    root = oracles.along_last_axis(
        lambda row: math.sqrt(math.fsum(entry**2 for entry in row) / D + 0.1), x
    )
    assert_close(rstd[..., 0], 1 / root)
    assert_close(y, x / root[..., None] * gain)


@pytest.mark.parametrize("bias", [None, normal(F, seed=2)])
def test_linear(bias):
    x, weight = normal(B, T, D), normal(D, F, seed=1)
    assert_close(npf.linear(x, weight, bias), oracles.linear(x, weight, bias))


MASKS = {
    "none": None,
    "full": normal(B, H, T, S, seed=5) > 0,
    "keys": normal(B, 1, 1, S, seed=6) > 0,
    "queries": normal(B, 1, T, 1, seed=7) > 0,
    "one sentence": normal(T, S, seed=8) > 0,
}


@pytest.mark.parametrize("n_queries", [T, S, S + 4])
@pytest.mark.parametrize("mask", ["none", "full", "keys"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("rate", [0.0, RATE])
@pytest.mark.parametrize(
    ("biased", "softcap"), [(False, None), (True, None), (False, 0.7), (True, 0.7)]
)
def test_attention(n_queries, mask, causal, scale, rate, biased, softcap):
    q, k, v = normal(B, H, n_queries, K), normal(B, H, S, K, seed=1), normal(B, H, S, KV, seed=2)
    keep_mask = {"none": None, "full": normal(B, H, n_queries, S) > 0, "keys": MASKS["keys"]}[mask]
    options = {
        "causal": causal,
        "scale": scale,
        "dropout_rate": rate,
        "dropout_key": KEY,
        "softcap": softcap,
    }
    options["bias"] = bias = normal(H, n_queries, S, seed=9) if biased else None
    dropout_keep = oracles.dropout_keep((B, H, n_queries, S), rate, KEY)
    given = keep_mask, causal, scale, dropout_keep, rate, bias, softcap
    expected, weights, logsumexp = oracles.attention(q, k, v, *given)

    out, actual_weights = npf.attention(q, k, v, keep_mask, **options)
    assert_close(out, expected)
    assert_close(actual_weights, weights)

    out, actual_logsumexp = npf.flash_attention(q, k, v, keep_mask, **options)
    assert_close(out, expected)
    # -inf where nothing is seen
    np.testing.assert_allclose(actual_logsumexp, logsumexp, rtol=0, atol=1e-13)


@pytest.mark.parametrize("mask", MASKS)
def test_attention_mask_shapes(mask):
    q, k, v = normal(B, H, T, K), normal(B, H, S, K, seed=1), normal(B, H, S, KV, seed=2)
    assert_close(npf.attention(q, k, v, MASKS[mask])[0], oracles.attention(q, k, v, MASKS[mask])[0])


@pytest.mark.parametrize(
    "shape", [(B, H, T, S), (B, 1, 1, S), (B, 1, T, 1), (T, S), (S,), (1,), ()]
)
def test_attention_bias_shapes(shape):
    q, k, v = normal(B, H, T, K), normal(B, H, S, K, seed=1), normal(B, H, S, KV, seed=2)
    bias = np.asarray(normal(*shape, seed=9))
    expected, weights, _ = oracles.attention(q, k, v, bias=bias)
    assert_close(npf.attention(q, k, v, bias=bias)[0], expected)
    assert_close(npf.attention(q, k, v, bias=bias)[1], weights)
    assert_close(npf.flash_attention(q, k, v, bias=bias)[0], expected)


@pytest.mark.parametrize("batch", [(), (B,), (B, H), (2, 1, 3)])
def test_attention_with_any_number_of_leading_axes(batch):
    q, k, v = normal(*batch, T, K), normal(*batch, S, K, seed=1), normal(*batch, S, KV, seed=2)
    expected, weights, _ = oracles.attention(q, k, v)
    assert_close(npf.attention(q, k, v)[0], expected)
    assert_close(npf.attention(q, k, v)[1], weights)
    assert_close(npf.flash_attention(q, k, v)[0], expected)


@pytest.mark.parametrize("ignore_id", [None, 1, -100])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 1.0])
def test_cross_entropy(ignore_id, label_smoothing):
    logits, targets = 3 * normal(B, T, V), np.array([[3, 1, 4, 1, 5], [22, 0, 5, 3, 1]])
    if ignore_id is not None:
        targets[0, 2] = ignore_id
    options = {"ignore_id": ignore_id, "label_smoothing": label_smoothing}
    loss, dlogits = npf.cross_entropy(logits, targets, **options)
    expected_loss, expected_dlogits = oracles.cross_entropy(logits, targets, **options)
    assert_close(loss, expected_loss)
    assert_close(dlogits, expected_dlogits)


@pytest.mark.parametrize("ignore_id", [None, 1])
def test_paired_cross_entropy(ignore_id):
    logits, targets = 3 * normal(2, T, V), np.array([3, 1, 4, 1, 5])
    options = {"ignore_id": ignore_id, "label_smoothing": 0.1}
    loss, _ = npf.paired_cross_entropy(logits, targets, 0.7, **options)
    assert_close(loss, oracles.paired_cross_entropy(logits, targets, 0.7, **options))
    alone = npf.cross_entropy(logits, np.stack([targets, targets]), **options)
    for x, wanted in zip(
        npf.paired_cross_entropy(logits, targets, 0, **options), alone, strict=True
    ):
        assert_close(x, wanted)
    n = T if ignore_id is None else np.count_nonzero(targets != ignore_id)
    part, whole = (
        npf.paired_cross_entropy(logits, targets, 0.7, **options, n_tokens=n) for n in (9, n)
    )
    for x, wanted in zip(part, whole, strict=True):
        assert_close(9 * x, n * wanted)
    assert_close(whole[0], loss)


@pytest.mark.parametrize("mask", [None, (B, T, V), (B, T, 1), (V,)])
@pytest.mark.parametrize(
    ("name", "options"), [("mse_loss", {}), ("huber_loss", {}), ("huber_loss", {"delta": 0.3})]
)
def test_regression_losses(name, options, mask):
    x, targets = normal(B, T, V), normal(B, T, V, seed=1)
    options = options if mask is None else options | {"keep_mask": normal(*mask, seed=2) > 0}
    loss, dx = getattr(npf, name)(x, targets, **options)
    expected_loss, expected_dx = getattr(oracles, name)(x, targets, **options)
    assert_close(loss, expected_loss)
    assert_close(dx, expected_dx)
    assert {a.dtype for a in getattr(npf, name)(*np.float32([x, targets]), **options)} == {
        np.dtype("float32")
    }
    n = np.count_nonzero(np.broadcast_to(options.get("keep_mask", True), x.shape))
    loss, dx = getattr(npf, name)(x, targets, **options, n_tokens=2 * n, loss_scale=8.0)
    assert_close(loss, expected_loss / 2)
    assert_close(dx, 4 * expected_dx)


def test_a_huber_loss_with_a_large_delta_is_half_the_squared_error():
    x, targets = normal(B, T), normal(B, T, seed=1)
    for half, whole in zip(
        npf.huber_loss(x, targets, delta=99.0), npf.mse_loss(x, targets), strict=True
    ):
        assert_close(half, whole / 2)


def test_embedding():
    ids, table = np.array([[3, 1, 4, 1, 5], [22, 0, 5, 3, 1]]), normal(V, D)
    assert_close(npf.embedding(ids, table), oracles.embedding(ids, table), 0)


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
@pytest.mark.parametrize("d_model", [1, 2, 3, 16, 17])
def test_sinusoidal_encoding(d_model, layout):
    actual = npf.sinusoidal_encoding(50, d_model, layout)
    assert_close(actual, oracles.sinusoidal_encoding(50, d_model, layout))
    for dtype in ("float16", np.float32, np.dtype("complex128")):
        rounded = npf.sinusoidal_encoding(50, d_model, layout, dtype)
        assert rounded.dtype == dtype
        np.testing.assert_array_equal(rounded, actual.astype(dtype))


def test_split_and_merge_heads():
    packed, heads = normal(B, T, H * K), normal(B, H, T, K, seed=1)
    assert_close(npf.split_heads(packed, H), oracles.split_heads(packed, H), 0)
    assert_close(npf.merge_heads(heads), oracles.merge_heads(heads), 0)
    assert np.shares_memory(npf.split_heads(packed, H), packed)


@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, None), (3, 7), (7, 3), (1, 4), (4, 1)])
def test_causal_mask(n_queries, n_keys):
    T, S = n_queries, n_keys or n_queries
    expected = np.array([[s <= t + S - T for s in range(S)] for t in range(T)])
    assert_close(npf.causal_mask(n_queries, n_keys), expected, 0)
    assert npf.causal_mask(n_queries, n_keys).dtype == bool


def test_padding_mask():
    ids = np.array([[5, 3, 0], [7, 0, 0]])
    assert npf.padding_mask(ids).tolist() == [[[[True, True, False]]], [[[True, False, False]]]]
    assert npf.padding_mask(ids, pad_id=7).tolist() == [
        [[[True, True, True]]],
        [[[False, True, True]]],
    ]


def test_dropout():
    x = normal(B, T, D)
    assert_close(npf.dropout(x, RATE, KEY), oracles.dropout(x, RATE, KEY))


def test_self_attention():
    qkv, keep_mask = normal(B, T, 3 * H * K), normal(B, 1, 1, T) > -0.5
    out, *_ = npf.self_attention(
        qkv, AttentionSettings(H, causal=True, dropout_rate=RATE), keep_mask, dropout_key=KEY
    )
    q, k, v = (oracles.split_heads(part, H) for part in np.split(qkv, 3, axis=-1))
    dropout_keep = oracles.dropout_keep((B, H, T, T), RATE, KEY)
    expected, _, _ = oracles.attention(q, k, v, keep_mask, True, None, dropout_keep, RATE)
    assert_close(oracles.split_heads(out, H), expected)


def test_cross_attention():
    q = normal(B, T, H * K)
    kv = normal(B, S, 2 * H * K, seed=1)
    keep_mask = normal(B, 1, 1, S) > -0.5
    out, *_ = npf.cross_attention(q, kv, AttentionSettings(H), keep_mask)
    k, v = (oracles.split_heads(part, H) for part in np.split(kv, 2, axis=-1))
    expected, _, _ = oracles.attention(oracles.split_heads(q, H), k, v, keep_mask)
    assert_close(oracles.split_heads(out, H), expected)


@pytest.mark.parametrize("bias", [None, normal(KV)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dilation", [1, 2, 4])
@pytest.mark.parametrize("W", [1, 3, 5])
def test_conv1d(W, dilation, causal, bias):
    x, weight = normal(B, T, K), normal(W, K, KV, seed=1)
    expected = oracles.conv1d(x, weight, bias, dilation, causal)
    assert_close(npf.conv1d(x, weight, bias, dilation=dilation, causal=causal), expected)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_erf", "silu"])
def test_linear_activation_dropout(activation):
    x, weight, bias = normal(B, T, D), normal(D, F, seed=1), normal(F, seed=2)
    y, h = npf.linear_activation_dropout(x, weight, bias, activation, RATE, KEY)
    expected_h = oracles.linear(x, weight, bias)
    activated = oracles.elementwise(getattr(oracles, activation), expected_h)
    assert_close(h, expected_h)
    assert_close(y, oracles.dropout(activated, RATE, KEY))


def test_linear_swiglu_dropout():
    x, weight, bias = normal(B, T, D), normal(D, 2 * F, seed=1), normal(2 * F, seed=2)
    y, h = npf.linear_activation_dropout(x, weight, bias, "swiglu", RATE, KEY)
    assert_close(h, oracles.linear(x, weight, bias))
    assert_close(
        y, oracles.dropout(oracles.elementwise(oracles.silu, h[..., :F]) * h[..., F:], RATE, KEY)
    )


def test_linear_dropout_residual():
    x = normal(B, T, D)
    weight = normal(D, F, seed=1)
    bias = normal(F, seed=2)
    residual = normal(B, T, F, seed=3)
    dropped = oracles.dropout(oracles.linear(x, weight, bias), RATE, KEY)
    assert_close(
        npf.linear_dropout_residual(x, weight, bias, residual, RATE, KEY), residual + dropped
    )


def test_embed_tokens():
    ids = np.array([[3, 1, 4, 1, 5], [22, 2, 5, 0, 0]])
    table = normal(V, D)
    positions = normal(T, D, seed=1)
    expected = math.sqrt(D) * oracles.embedding(ids, table) + positions
    expected[1, 3:] = 0
    actual = npf.embed_tokens(ids, table, positions, 0, RATE, KEY)
    assert_close(actual, oracles.dropout(expected, RATE, KEY))
