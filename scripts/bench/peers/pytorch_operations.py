"""Operations as PyTorch computes them, with the names and the arguments of npformer's."""

import numpy as np
import torch
import torch.nn.functional as F


def tensors_of(arguments):
    """The arguments with tensors instead of arrays."""
    return {
        name: torch.tensor(x) if isinstance(x, np.ndarray) else x for name, x in arguments.items()
    }


def leaves_of(tensors):
    """Those by which autograd differentiates from now on."""
    return {
        name: x.requires_grad_()
        for name, x in tensors.items()
        if torch.is_tensor(x) and x.is_floating_point()
    }


def dropout(x, dropout_rate=0.0, **_):
    return torch.dropout(x, dropout_rate, True) if dropout_rate else x


def swiglu(x):
    a, b = x.chunk(2, dim=-1)
    return F.silu(a) * b


def linear(x, weight, bias):
    return F.linear(x, weight.T, bias)


def linear_activation_dropout(x, weight, bias, activation, **options):
    return dropout(OPERATIONS[activation](linear(x, weight, bias)), **options)


def linear_dropout_residual(x, weight, bias, residual, **options):
    return residual + dropout(linear(x, weight, bias), **options)


def conv1d(x, weight, bias, **_):
    return F.conv1d(x.mT, weight.permute(2, 1, 0), bias, padding="same").mT


def gru(x_gates, h0, weight, bias, **_):
    D = h0.shape[1]
    biases = torch.cat([torch.zeros(2 * D, dtype=bias.dtype), bias])
    maps = (
        torch.eye(3 * D, dtype=bias.dtype),
        weight.T,
        torch.zeros(3 * D, dtype=bias.dtype),
        biases,
    )
    return torch._VF.gru(x_gates, h0[None], maps, True, 1, 0.0, True, False, True)[0]


def lstm(x_gates, h0, c0, weight, **_):
    maps = torch.eye(4 * h0.shape[1], dtype=h0.dtype), weight.T
    return torch._VF.lstm(x_gates, (h0[None], c0[None]), maps, False, 1, 0.0, True, False, True)[0]


def embed_tokens(ids, table, positions, **options):
    return dropout(F.embedding(ids, table) * table.shape[1] ** 0.5 + positions, **options)


def additive_score(q, k, w_q, w_k, w_score):
    return torch.tanh((q @ w_q)[..., :, None, :] + (k @ w_k)[..., None, :, :]) @ w_score


def attention(q, k, v, keep_mask=None, bias=None, causal=False, dropout_rate=0.0, dropout_key=None):
    mask = keep_mask if bias is None else bias
    if bias is not None and keep_mask is not None:
        mask = torch.where(keep_mask, bias, -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout_rate, is_causal=causal)


def self_attention(qkv, settings, **_):
    B, T, _ = qkv.shape
    q, k, v = qkv.view(B, T, 3, settings.n_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    return attention(q, k, v, dropout_rate=settings.dropout_rate).transpose(1, 2).reshape(B, T, -1)


def cross_entropy(logits, targets, label_smoothing=0.0):
    return F.cross_entropy(logits, targets, label_smoothing=label_smoothing)


def paired_cross_entropy(logits, targets, consistency, **_):
    p, q = F.log_softmax(logits, dim=-1)
    divergences = sum(F.kl_div(a, b, log_target=True, reduction="sum") for a, b in ((p, q), (q, p)))
    losses = sum(F.cross_entropy(side, targets, reduction="sum") for side in logits)
    return (losses + consistency * divergences / 2) / (2 * len(targets))


OF_THE_SAME_NAME = [
    torch.tanh,
    torch.sigmoid,
    torch.relu,
    swiglu,
    dropout,
    linear,
    linear_activation_dropout,
]
OF_THE_SAME_NAME += [
    linear_dropout_residual,
    conv1d,
    gru,
    lstm,
    embed_tokens,
    additive_score,
    attention,
]
OF_THE_SAME_NAME += [self_attention, cross_entropy, paired_cross_entropy]
OPERATIONS = {operation.__name__: operation for operation in OF_THE_SAME_NAME} | {
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": lambda x: F.gelu(x),
    "silu": lambda x: F.silu(x),
    "softmax": lambda x: F.softmax(x, dim=-1),
    "log_softmax": lambda x: F.log_softmax(x, dim=-1),
    "layer_norm": lambda x, gain, bias: F.layer_norm(x, gain.shape, gain, bias, 1e-5),
    "rms_norm": lambda x, gain: F.rms_norm(x, gain.shape, gain, 1e-6),
    "embedding": lambda ids, table: F.embedding(ids, table),
    "flash_attention": attention,
    "cosine_score": lambda q, k: F.cosine_similarity(
        q[..., :, None, :], k[..., None, :, :], dim=-1
    ),
    "global_norm": lambda grad: torch.linalg.vector_norm(grad),
}
