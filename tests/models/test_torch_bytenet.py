"""A whole ByteNet against one written in PyTorch, sentence by sentence without any padding,
in float64.
"""

import math

import numpy as np
import pytest
from oracles import assert_close

from npformer import ByteNet, tree

torch = pytest.importorskip("torch")
functional = torch.nn.functional

V_SRC, V_TGT, D, DILATIONS = 17, 19, 14, (1, 2, 4)
SRC = np.array([[3, 4, 5, 6, 7, 16, 15], [3, 9, 8, 0, 0, 0, 0], [5, 0, 0, 0, 0, 0, 0]])
TGT = np.array([[1, 5, 6, 2, 0, 0, 0, 0], [1, 4, 18, 5, 6, 7, 3, 2], [1, 2, 0, 0, 0, 0, 0, 0]])


def norm(params, x):
    return functional.layer_norm(x, x.shape[-1:], params["gain"], params["bias"])


def stack(params, x, dilations, causal):
    """Residual blocks on (length, D)."""
    for i, dilation in enumerate(dilations):
        block = params[str(i)]
        h = (
            functional.relu(norm(block["reduce_norm"], x)) @ block["reduce"]["weight"]
            + block["reduce"]["bias"]
        )
        h = functional.relu(norm(block["conv_norm"], h))
        weight = block["conv"]["weight"].permute(2, 1, 0)
        reach = dilation * (weight.shape[2] - 1)
        padded = functional.pad(h.T[None], (reach, 0) if causal else (reach // 2, reach // 2))
        h = functional.conv1d(padded, weight, block["conv"]["bias"], dilation=dilation)[0].T
        h = (
            functional.relu(norm(block["expand_norm"], h)) @ block["expand"]["weight"]
            + block["expand"]["bias"]
        )
        x = x + h
    return norm(params["norm"], x)


def logits_of_one(params, src, tgt_in, unfold):
    """(T, V), step t given what the encoder has in column t, if it has one."""
    n_columns = math.ceil(unfold[0] * len(src)) + unfold[1]
    blank = torch.zeros(n_columns - len(src), D, dtype=torch.float64)
    words = params["source_embedding"][src] * D**0.5
    encoded = stack(params["encoder"], torch.cat([words, blank]), DILATIONS, causal=False)
    memory = encoded @ params["decoder"]["memory"]["weight"] + params["decoder"]["memory"]["bias"]
    x = params["target_embedding"][tgt_in] * D**0.5
    rows = [row + memory[t] if t < n_columns else row for t, row in enumerate(x)]
    y = stack(params["decoder"], torch.stack(rows), 2 * DILATIONS, causal=True)
    return y @ params["output"]["weight"] + params["output"]["bias"]


@pytest.mark.parametrize("unfold", [(1.2, 0), (1, 0), (1.5, 2)])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_loss_and_all_parameter_gradients(backend, unfold):
    model = ByteNet(
        V_SRC, V_TGT, d_model=D, n_sets=(1, 2), dilations=DILATIONS, unfold=unfold, dtype="float64"
    )
    rng = np.random.default_rng(1)
    params = tree.map_leaves(lambda x: x + 0.1 * rng.standard_normal(x.shape), model.init(0))
    theirs = tree.map_leaves(lambda x: torch.tensor(x, requires_grad=True), params)

    total = n_tokens = 0
    for src, tgt in zip(SRC, TGT, strict=True):
        src, tgt = torch.tensor(src[src != 0]), torch.tensor(tgt[tgt != 0])
        logits = logits_of_one(theirs, src, tgt[:-1], unfold)
        total = total + functional.cross_entropy(
            logits, tgt[1:], label_smoothing=0.1, reduction="sum"
        )
        n_tokens += len(tgt) - 1
    (total / n_tokens).backward()

    loss, grads, n = model.loss_and_grad(
        params, SRC, TGT[:, :-1], TGT[:, 1:], label_smoothing=0.1, backend=backend
    )
    assert n == n_tokens
    assert_close(loss, (total / n_tokens).item(), 1e-12)
    for (path, ours), (other_path, their) in zip(
        tree.leaves(grads), tree.leaves(theirs), strict=True
    ):
        assert path == other_path
        assert_close(ours, their.grad.numpy(), 1e-10)
