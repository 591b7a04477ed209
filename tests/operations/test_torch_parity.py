"""The operations and their gradients against PyTorch in float64, at the cases of the table that
PyTorch can compute.
"""

import importlib

import numpy as np
import pytest
from oracles import assert_close, order

from npformer.gradients import cotangent
from npformer.gradients.cases import CASES

torch = pytest.importorskip("torch")
functional = torch.nn.functional
PEERS = importlib.import_module("scripts.bench.peers.pytorch_operations").OPERATIONS

TOLERANCE = 1e-10
# The same operation in PyTorch, by the name of ours, for the same arguments. The benchmarks have
# those of one line; others have more arguments here than there.
ONE_LINE = (
    "relu silu tanh sigmoid gelu gelu_erf softmax log_softmax layer_norm rms_norm linear embedding"
)
TORCH = {name: PEERS[name] for name in ONE_LINE.split()}
NOT_IN_PYTORCH = {"dropout_rate", "softcap", "n_tokens", "loss_scale"}


def of_torch(function):
    TORCH[function.__name__] = function
    return function


@of_torch
def conv1d(x, weight, bias=None, dilation=1, causal=False):
    """PyTorch has (B, D, T) and (D_out, D_in, W)."""
    reach = dilation * (len(weight) - 1)
    around = (reach, 0) if causal else (reach // 2, reach // 2)
    x = functional.pad(x.transpose(1, 2), around)
    y = functional.conv1d(x, weight.permute(2, 1, 0), bias, dilation=dilation)
    return y.transpose(1, 2)


@of_torch
def attention(q, k, v, keep_mask=None, bias=None, causal=False, scale=None):
    T, S = q.shape[-2], k.shape[-2]
    sees = torch.ones(T, S, dtype=torch.bool).tril(S - T if causal else S)
    if keep_mask is not None:
        sees = sees & keep_mask
    mask = torch.zeros(T, S, dtype=q.dtype)
    if bias is not None:
        mask = mask + bias
    options = {"attn_mask": mask.masked_fill(~sees, -torch.inf), "scale": scale}
    return functional.scaled_dot_product_attention(q, k, v, **options)


TORCH["flash_attention"] = attention


@of_torch
def cosine_score(q, k):
    return functional.cosine_similarity(q[..., None, :], k[..., None, :, :], -1)


@of_torch
def cross_entropy(logits, targets, ignore_id=None, label_smoothing=0.0):
    ignore_index = -100 if ignore_id is None else ignore_id
    options = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten(), **options)


def counted_in(x, keep_mask):
    """PyTorch has no mask: it is given the entries that count."""
    return x if keep_mask is None else x[keep_mask.expand(x.shape)]


@of_torch
def mse_loss(x, targets, keep_mask=None):
    return functional.mse_loss(counted_in(x, keep_mask), counted_in(targets, keep_mask))


@of_torch
def huber_loss(x, targets, keep_mask=None, delta=1.0):
    arrays = counted_in(x, keep_mask), counted_in(targets, keep_mask)
    return functional.huber_loss(*arrays, delta=delta)


def steps(cell, x_gates, state, keep_mask, reverse):
    """The states after each step, of a cell that returns a tuple of them."""
    states = {}
    for t in order(x_gates.shape[1], reverse):
        new = cell(x_gates[:, t], state)
        if keep_mask is not None:
            kept = keep_mask[:, t, None]
            new = tuple(torch.where(kept, x, old) for x, old in zip(new, state, strict=True))
        states[t] = state = new
    each = zip(*(states[t] for t in sorted(states)), strict=True)
    return [torch.stack(x, dim=1) for x in each]


@of_torch
def gru(x_gates, h0, weight, bias, keep_mask=None, reverse=False):
    """The gates of x are given, so that the map of x is the identity."""
    zero = torch.zeros_like(bias)
    one = torch.eye(len(weight.T), dtype=weight.dtype)
    biases = torch.cat([zero, zero, zero]), torch.cat([zero, zero, bias])

    def cell(x, state):
        return (torch.gru_cell(x, *state, one, weight.T, *biases),)

    return steps(cell, x_gates, (h0,), keep_mask, reverse)


@of_torch
def lstm(x_gates, h0, c0, weight, keep_mask=None, reverse=False):
    one = torch.eye(len(weight.T), dtype=weight.dtype)

    def cell(x, state):
        return torch.lstm_cell(x, state, one, weight.T)

    return steps(cell, x_gates, (h0, c0), keep_mask, reverse)


def is_in_pytorch(case):
    is_set = {name for name, value in case.options.items() if value}
    return case.operation in TORCH and not is_set & NOT_IN_PYTORCH


@pytest.mark.parametrize("case", [*filter(is_in_pytorch, CASES)], ids=str)
def test_as_pytorch(case):
    f, f_backward, arrays = case.derivative()
    arguments = case.arguments()
    for name, x in arguments.items():
        if isinstance(x, np.ndarray):
            arguments[name] = torch.tensor(x, requires_grad=name in arrays)
    results = TORCH[case.operation](**arguments)
    results = results if isinstance(results, list) else [results]
    y = torch.cat([x.flatten() for x in results])
    expected = f(*arrays.values())
    y = y[: len(expected)]
    assert_close(expected, y.detach().numpy(), TOLERANCE)
    dy = cotangent(y.shape)
    y.backward(torch.tensor(dy))
    gradients = f_backward(dy, *arrays.values())
    for name, gradient in zip(arrays, gradients, strict=True):
        assert_close(gradient, arguments[name].grad.numpy(), TOLERANCE)
