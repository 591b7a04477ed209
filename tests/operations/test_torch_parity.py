"""The operations against PyTorch in float64, outputs and gradients."""

from functools import partial

import numpy as np
import pytest
from oracles import assert_close
from tested import npf

from npformer.operations.settings import AttentionSettings

torch = pytest.importorskip("torch")
functional = torch.nn.functional

B, H, T, S, K, KV, D, F, V = 2, 3, 5, 7, 11, 13, 17, 19, 23
TOLERANCE = 1e-10


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def torch_forward_backward(f, arrays, dy):
    """The output of ``f`` and its gradients with respect to each array, by autograd."""
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    y = f(*tensors)
    y.backward(torch.tensor(dy))
    return y.detach().numpy(), [tensor.grad.numpy() for tensor in tensors]


def assert_parity(f, arrays, y, dy, gradients):
    torch_y, torch_gradients = torch_forward_backward(f, arrays, dy)
    assert_close(y, torch_y, TOLERANCE)
    for gradient, torch_gradient in zip(gradients, torch_gradients, strict=True):
        assert_close(gradient, torch_gradient, TOLERANCE)


def keep_mask_with_no_empty_row():
    keep_mask = normal(B, H, T, S, seed=9) > 0
    keep_mask[..., 2] = True
    return keep_mask


ATTENTION = {
    "plain": {},
    "full mask": {"keep_mask": keep_mask_with_no_empty_row()},
    "padding mask": {
        "keep_mask": np.array([[1, 1, 1, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1, 0]], bool)[:, None, None]
    },
    "causal": {"causal": True},
    "scale": {"scale": 0.7},
    "bias": {"bias": normal(B, H, T, S, seed=8)},
    "bias of all sentences": {
        "bias": normal(H, T, S, seed=8),
        "keep_mask": keep_mask_with_no_empty_row(),
    },
    "bias of each key": {"bias": normal(B, 1, 1, S, seed=8), "causal": True},
    "all": {
        "keep_mask": keep_mask_with_no_empty_row(),
        "causal": True,
        "scale": 0.7,
        "bias": normal(H, T, S, seed=8),
    },
}


@pytest.mark.parametrize("option", ATTENTION)
@pytest.mark.parametrize("name", ["attention", "flash_attention"])
def test_attention(name, option):
    options = dict(ATTENTION[option])
    q, k, v = normal(B, H, T, K), normal(B, H, S, K, seed=1), normal(B, H, S, KV, seed=2)
    dout = normal(B, H, T, KV, seed=3)
    keep = options.get("keep_mask", True) & (
        npf.causal_mask(T, S) if options.get("causal") else np.ones((T, S), bool)
    )
    keep = torch.tensor(np.broadcast_to(keep, (B, H, T, S)).copy())

    def torch_attention(q, k, v, *bias):
        mask = bias[0].expand(B, H, T, S).masked_fill(~keep, -torch.inf) if bias else keep
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=options.get("scale")
        )

    arrays = [q, k, v] + [options[name] for name in ["bias"] if name in options]
    if name == "attention":
        out, weights = npf.attention(q, k, v, **options)
        saved = {name: options[name] for name in ("bias", "scale") if name in options}
        gradients = npf.attention_backward(dout, q, k, v, weights, **saved)
    else:
        out, logsumexp = npf.flash_attention(q, k, v, **options)
        gradients = npf.flash_attention_backward(dout, q, k, v, out, logsumexp, **options)
    assert_parity(torch_attention, arrays, out, dout, gradients)


def test_causal_means_what_torch_means_where_lengths_agree():
    q, k, v = normal(3, B, H, T, K)
    out, _ = npf.attention(q, k, v, causal=True)
    torch_out = functional.scaled_dot_product_attention(
        *map(torch.tensor, (q, k, v)), is_causal=True
    )
    assert_close(out, torch_out.numpy(), TOLERANCE)


TORCH_SCORES = {
    "dot": lambda q, k: q @ k.mT,
    "scaled_dot": lambda q, k: q @ k.mT / K**0.5,
    "cosine": lambda q, k: functional.cosine_similarity(
        q[..., :, None, :], k[..., None, :, :], dim=-1
    ),
    "bilinear": lambda q, k, weight: q @ weight @ k.mT,
    "additive": lambda q, k, w_q, w_k, w: (
        torch.tanh((q @ w_q)[..., :, None, :] + (k @ w_k)[..., None, :, :]) @ w
    ),
}


@pytest.mark.parametrize("score", TORCH_SCORES)
def test_score_attention(score):
    params = {
        "bilinear": [normal(K, K, seed=4)],
        "additive": [normal(K, D, seed=4), normal(K, D, seed=5), normal(D, seed=6)],
    }.get(score, [])
    q, k, v = normal(B, H, T, K), normal(B, H, S, K, seed=1), normal(B, H, S, KV, seed=2)
    dout, keep_mask = normal(B, H, T, KV, seed=3), keep_mask_with_no_empty_row()
    out, weights = npf.score_attention(q, k, v, score, params, keep_mask)
    gradients = npf.score_attention_backward(dout, q, k, v, weights, score, params)

    def torch_attention(q, k, v, *params):
        scores = TORCH_SCORES[score](q, k, *params).masked_fill(
            torch.tensor(~keep_mask), -torch.inf
        )
        return torch.softmax(scores, dim=-1) @ v

    assert_parity(torch_attention, [q, k, v, *params], out, dout, gradients)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, axis):
    x, dy = 3 * normal(T, S, K), normal(T, S, K, seed=1)
    y = getattr(npf, name)(x, axis)
    dx = getattr(npf, f"{name}_backward")(dy, y, axis)
    assert_parity(lambda x: getattr(functional, name)(x, dim=axis), [x], y, dy, [dx])


def test_layer_norm():
    x = 3 + normal(B, T, D)
    gain = normal(D, seed=1)
    bias = normal(D, seed=2)
    dy = normal(B, T, D, seed=3)
    y, mean, rstd = npf.layer_norm(x, gain, bias, 1e-3)
    gradients = npf.layer_norm_backward(dy, x, gain, mean, rstd)
    assert_parity(
        lambda x, gain, bias: functional.layer_norm(x, (D,), gain, bias, 1e-3),
        [x, gain, bias],
        y,
        dy,
        gradients,
    )


def test_rms_norm():
    x, gain, dy = 3 + normal(B, T, D), normal(D, seed=1), normal(B, T, D, seed=3)
    y, rstd = npf.rms_norm(x, gain, 1e-3)
    gradients = npf.rms_norm_backward(dy, x, gain, rstd)
    assert_parity(
        lambda x, gain: functional.rms_norm(x, (D,), gain, 1e-3), [x, gain], y, dy, gradients
    )


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_erf", "silu"])
def test_activations_that_keep_their_input(name):
    x, dy = 3 * normal(B, T, D), normal(B, T, D, seed=1)
    gelus = {"gelu": partial(functional.gelu, approximate="tanh"), "gelu_erf": functional.gelu}
    y, dx = getattr(npf, name)(x), getattr(npf, f"{name}_backward")(dy, x)
    assert_parity(gelus.get(name) or getattr(functional, name), [x], y, dy, [dx])


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_activations_that_keep_their_output(name):
    x, dy = 3 * normal(B, T, D), normal(B, T, D, seed=1)
    y = getattr(npf, name)(x)
    assert_parity(getattr(torch, name), [x], y, dy, [getattr(npf, f"{name}_backward")(dy, y)])


@pytest.mark.parametrize("ignore_id", [-100, 1])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 1.0])
def test_cross_entropy(ignore_id, label_smoothing):
    logits, targets = 3 * normal(B * T, V), np.array([3, 1, 4, 1, 5, 22, ignore_id, 5, 3, 1])
    loss, dlogits = npf.cross_entropy(
        logits, targets, ignore_id=ignore_id, label_smoothing=label_smoothing
    )

    def torch_loss(logits):
        return functional.cross_entropy(
            logits, torch.tensor(targets), ignore_index=ignore_id, label_smoothing=label_smoothing
        )

    assert_parity(torch_loss, [logits], loss, 1.0, [dlogits])


def test_paired_cross_entropy():
    """As the authors of R-Drop compute it, with the mean
    of both divergences from PyTorch's kl_div.
    """
    logits, targets = 3 * normal(2, T, V), np.array([3, 1, 4, 1, 5])
    loss, dlogits = npf.paired_cross_entropy(logits, targets, 5.0, ignore_id=1, label_smoothing=0.1)

    def torch_loss(logits):
        counted = torch.tensor(targets != 1)
        p, q = (functional.log_softmax(side[counted], dim=-1) for side in logits)
        kl = [
            functional.kl_div(a, b, log_target=True, reduction="sum") for a, b in ((p, q), (q, p))
        ]
        options = {"ignore_index": 1, "label_smoothing": 0.1, "reduction": "sum"}
        ce = [functional.cross_entropy(side, torch.tensor(targets), **options) for side in logits]
        return (sum(ce) + 5.0 * sum(kl) / 2) / (2 * counted.sum())

    assert_parity(torch_loss, [logits], loss, 1.0, [dlogits])


@pytest.mark.parametrize("delta", [None, 1.0, 0.3])
@pytest.mark.parametrize("masked", [False, True])
def test_regression_losses(delta, masked):
    """PyTorch has no mask: it is given the entries that count."""
    x = normal(B, T)
    targets = normal(B, T, seed=1)
    keep_mask = normal(B, T, seed=2) > -0.3 if masked else None
    counts = torch.ones(B, T, dtype=torch.bool) if keep_mask is None else torch.tensor(keep_mask)
    theirs = functional.mse_loss if delta is None else partial(functional.huber_loss, delta=delta)
    ours = npf.mse_loss if delta is None else partial(npf.huber_loss, delta=delta)
    loss, dx = ours(x, targets, keep_mask)
    assert_parity(lambda x: theirs(x[counts], torch.tensor(targets)[counts]), [x], loss, 1.0, [dx])


def test_embedding():
    ids = np.array([[3, 1, 4, 1, 5], [22, 0, 5, 3, 1]])
    table = normal(V, D)
    dy = normal(B, T, D, seed=1)
    dtable = npf.embedding_backward(dy, ids, table.shape)
    assert_parity(
        lambda table: functional.embedding(torch.tensor(ids), table),
        [table],
        npf.embedding(ids, table),
        dy,
        [dtable],
    )


def test_linear():
    x = normal(B, T, D)
    weight = normal(D, F, seed=1)
    bias = normal(F, seed=2)
    dy = normal(B, T, F, seed=3)
    assert_parity(
        lambda x, weight, bias: functional.linear(x, weight.T, bias),
        [x, weight, bias],
        npf.linear(x, weight, bias),
        dy,
        npf.linear_backward(dy, x, weight, bias),
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dilation", [1, 2, 4])
@pytest.mark.parametrize("W", [1, 3, 5])
def test_conv1d(W, dilation, causal):
    x = normal(B, T, D)
    weight = normal(W, D, F, seed=1)
    bias = normal(F, seed=2)
    dy = normal(B, T, F, seed=3)
    reach = dilation * (W - 1)

    def torch_conv1d(x, weight, bias):  # which has (B, D, T) and (D_out, D_in, W)
        x = functional.pad(x.transpose(1, 2), (reach, 0) if causal else (reach // 2, reach // 2))
        return functional.conv1d(x, weight.permute(2, 1, 0), bias, dilation=dilation).transpose(
            1, 2
        )

    assert_parity(
        torch_conv1d,
        [x, weight, bias],
        npf.conv1d(x, weight, bias, dilation=dilation, causal=causal),
        dy,
        npf.conv1d_backward(dy, x, weight, bias, dilation=dilation, causal=causal),
    )


def test_multi_head_attention():
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(H * K, H, batch_first=True, dtype=torch.float64)
    torch.nn.init.normal_(theirs.in_proj_bias)
    torch.nn.init.normal_(theirs.out_proj.bias)
    x, is_word = normal(B, T, H * K), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)
    in_weight, in_bias, out_weight, out_bias = (
        parameter.detach().numpy() for parameter in theirs.parameters()
    )

    qkv, keep_mask = npf.linear(x, in_weight.T, in_bias), is_word[:, None, None, :]
    q, k, v = (npf.split_heads(part, H) for part in np.split(qkv, 3, axis=-1))
    _, weights = npf.attention(q, k, v, keep_mask)
    y = npf.linear(
        npf.self_attention(qkv, AttentionSettings(H), keep_mask)[0], out_weight.T, out_bias
    )

    x = torch.tensor(x)
    torch_y, torch_weights = theirs(
        x, x, x, key_padding_mask=torch.tensor(~is_word), average_attn_weights=False
    )
    assert_close(y, torch_y.detach().numpy(), TOLERANCE)
    assert_close(weights, torch_weights.detach().numpy(), TOLERANCE)
