"""Operations as PyTorch computes them, with the names and the arguments of npformer's."""

import numpy as np
import torch
import torch.nn.functional as F

OPERATIONS = {}


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


def operation(function):
    """Decorate an operation that has the name of npformer's."""
    OPERATIONS[function.__name__] = function
    return function


@operation
def dropout(x, dropout_rate=0.0, **_):
    return torch.dropout(x, dropout_rate, True) if dropout_rate else x


@operation
def swiglu(x):
    a, b = x.chunk(2, dim=-1)
    return F.silu(a) * b


@operation
def linear(x, weight, bias=None):
    return F.linear(x, weight.T, bias)


@operation
def linear_activation_dropout(x, weight, bias, activation, **options):
    return dropout(OPERATIONS[activation](linear(x, weight, bias)), **options)


@operation
def linear_dropout_residual(x, weight, bias, residual, **options):
    return residual + dropout(linear(x, weight, bias), **options)


@operation
def conv1d(x, weight, bias, **_):
    return F.conv1d(x.mT, weight.permute(2, 1, 0), bias, padding="same").mT


@operation
def gru(x_gates, h0, weight, bias, **_):
    D = h0.shape[1]
    zeros = torch.zeros(3 * D, dtype=bias.dtype)
    biases = torch.cat([zeros[: 2 * D], bias])
    maps = torch.eye(3 * D, dtype=bias.dtype), weight.T, zeros, biases
    return torch._VF.gru(x_gates, h0[None], maps, True, 1, 0.0, True, False, True)[0]


@operation
def lstm(x_gates, h0, c0, weight, **_):
    maps = torch.eye(4 * h0.shape[1], dtype=h0.dtype), weight.T
    return torch._VF.lstm(x_gates, (h0[None], c0[None]), maps, False, 1, 0.0, True, False, True)[0]


@operation
def embed_tokens(ids, table, positions, **options):
    return dropout(F.embedding(ids, table) * table.shape[1] ** 0.5 + positions, **options)


@operation
def additive_score(q, k, w_q, w_k, w_score):
    return torch.tanh((q @ w_q)[..., :, None, :] + (k @ w_k)[..., None, :, :]) @ w_score


@operation
def attention(q, k, v, keep_mask=None, bias=None, causal=False, dropout_rate=0.0, dropout_key=None):
    mask = keep_mask if bias is None else bias
    if bias is not None and keep_mask is not None:
        mask = torch.where(keep_mask, bias, -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout_rate, is_causal=causal)


@operation
def self_attention(qkv, settings, **_):
    B, T, _ = qkv.shape
    q, k, v = qkv.view(B, T, 3, settings.n_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    return attention(q, k, v, dropout_rate=settings.dropout_rate).transpose(1, 2).reshape(B, T, -1)


@operation
def cross_entropy(logits, targets, label_smoothing=0.0):
    return F.cross_entropy(logits, targets, label_smoothing=label_smoothing)


@operation
def paired_cross_entropy(logits, targets, consistency, **_):
    p, q = F.log_softmax(logits, dim=-1)
    divergences = sum(F.kl_div(a, b, log_target=True, reduction="sum") for a, b in ((p, q), (q, p)))
    losses = sum(F.cross_entropy(side, targets, reduction="sum") for side in logits)
    return (losses + consistency * divergences / 2) / (2 * len(targets))


for of_torch in (torch.tanh, torch.sigmoid, torch.relu):
    operation(of_torch)
OPERATIONS["flash_attention"] = attention


@operation
def gelu(x):
    return F.gelu(x, approximate="tanh")


@operation
def gelu_erf(x):
    return F.gelu(x)


@operation
def silu(x):
    return F.silu(x)


@operation
def softmax(x, axis=-1):
    return F.softmax(x, dim=axis)


@operation
def log_softmax(x, axis=-1):
    return F.log_softmax(x, dim=axis)


@operation
def layer_norm(x, gain, bias, eps=1e-5):
    return F.layer_norm(x, gain.shape, gain, bias, eps)


@operation
def rms_norm(x, gain, eps=1e-6):
    return F.rms_norm(x, gain.shape, gain, eps)


@operation
def embedding(ids, table):
    return F.embedding(ids, table)


@operation
def cosine_score(q, k):
    return F.cosine_similarity(q[..., :, None, :], k[..., None, :, :], dim=-1)


@operation
def global_norm(grad):
    return torch.linalg.vector_norm(grad)
