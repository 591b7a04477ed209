"""A whole ByteNet against one written in PyTorch, sentence by sentence without any padding,
in float64.
"""

import math

import numpy as np
import pytest
from oracles import assert_close
from promises import assert_trees_close
from whole_models import shaken

from npformer import ByteNet, tree

torch = pytest.importorskip("torch")
functional = torch.nn.functional

V_SRC, V_TGT, D, DILATIONS = 17, 19, 14, (1, 2, 4)
SRC = np.array([[3, 4, 5, 6, 7, 16, 15], [3, 9, 8, 0, 0, 0, 0], [5, 0, 0, 0, 0, 0, 0]])
TGT = np.array([[1, 5, 6, 2, 0, 0, 0, 0], [1, 4, 18, 5, 6, 7, 3, 2], [1, 2, 0, 0, 0, 0, 0, 0]])


def norm(params, x):
    return functional.layer_norm(x, x.shape[-1:], params["gain"], params["bias"])


def linear(params, x):
    return x @ params["weight"] + params["bias"]


def stack(params, x, dilations, causal):
    """Residual blocks on (length, D)."""
    for i, dilation in enumerate(dilations):
        block = params[str(i)]
        h = linear(block["reduce"], functional.relu(norm(block["reduce_norm"], x)))
        h = functional.relu(norm(block["conv_norm"], h))
        conv = block["conv"]
        weight = conv["weight"].permute(2, 1, 0)
        reach = dilation * (weight.shape[2] - 1)
        around = (reach, 0) if causal else (reach // 2, reach // 2)
        padded = functional.pad(h.T[None], around)
        h = functional.conv1d(padded, weight, conv["bias"], dilation=dilation)[0].T
        x = x + linear(block["expand"], functional.relu(norm(block["expand_norm"], h)))
    return norm(params["norm"], x)


def logits_of_one(params, src, tgt_in, unfold):
    """(T, V), step t given what the encoder has in column t, if it has one."""
    n_columns = math.ceil(unfold[0] * len(src)) + unfold[1]
    blank = torch.zeros(n_columns - len(src), D, dtype=torch.float64)
    words = params["source_embedding"][src] * D**0.5
    encoded = stack(params["encoder"], torch.cat([words, blank]), DILATIONS, causal=False)
    memory = linear(params["decoder"]["memory"], encoded)
    x = params["target_embedding"][tgt_in] * D**0.5
    rows = [row + memory[t] if t < n_columns else row for t, row in enumerate(x)]
    y = stack(params["decoder"], torch.stack(rows), 2 * DILATIONS, causal=True)
    return linear(params["output"], y)


@pytest.mark.parametrize("unfold", [(1.2, 0), (1, 0), (1.5, 2)])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_loss_and_all_parameter_gradients(backend, unfold):
    sizes = {"d_model": D, "n_sets": (1, 2), "dilations": DILATIONS}
    model = ByteNet(V_SRC, V_TGT, **sizes, unfold=unfold, dtype="float64")
    params = shaken(model.init(0))
    theirs = tree.map_leaves(lambda x: torch.tensor(x, requires_grad=True), params)

    losses = []
    for src, tgt in zip(SRC, TGT, strict=True):
        src = torch.tensor(src[src != 0])
        tgt = torch.tensor(tgt[tgt != 0])
        logits = logits_of_one(theirs, src, tgt[:-1], unfold)
        options = {"label_smoothing": 0.1, "reduction": "none"}
        losses.append(functional.cross_entropy(logits, tgt[1:], **options))
    mean = torch.cat(losses).mean()
    mean.backward()

    options = {"label_smoothing": 0.1, "backend": backend}
    loss, grads, n = model.loss_and_grad(params, SRC, TGT, **options)
    assert n == sum(map(len, losses))
    assert_close(loss, mean.item(), 1e-12)
    assert_trees_close(grads, tree.map_leaves(lambda x: x.grad.numpy(), theirs), 1e-10)
