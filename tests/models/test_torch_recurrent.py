"""The recurrent model against its twin in PyTorch, in float64: logits, loss and every gradient."""

import numpy as np
import pytest
from oracles import assert_close

from npformer import Recurrent

torch = pytest.importorskip("torch")
pytorch_recurrent = pytest.importorskip(
    "scripts.bench.peers.pytorch_recurrent", reason="needs the scripts folder"
)

V_SRC, V_TGT, D, TOLERANCE = 13, 17, 6, 1e-10


@pytest.mark.parametrize("attention", [None, "dot", "general", "additive"], ids=str)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_logits_loss_and_gradients(cell, attention):
    rng = np.random.default_rng(0)
    model = Recurrent(
        V_SRC, V_TGT, d_model=D, cell=cell, attention=attention, dropout=0.0, dtype="float64"
    )
    params = model.init(3)
    src, tgt = rng.integers(1, V_SRC, (5, 7)), rng.integers(1, V_TGT, (5, 12))
    twin, twin_of_gradients = (pytorch_recurrent.Recurrent(model).double() for _ in range(2))
    pytorch_recurrent.load(twin, model, params)

    logits = twin(torch.from_numpy(src), torch.from_numpy(tgt[:, :-1]))
    assert_close(model.logits(params, src, tgt[:, :-1]), logits.detach().numpy(), TOLERANCE)
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.from_numpy(tgt[:, 1:].copy()).flatten()
    )
    loss.backward()
    ours, grads, _ = model.loss_and_grad(params, src, tgt[:, :-1], tgt[:, 1:])
    assert_close(ours, loss.item(), TOLERANCE)

    pytorch_recurrent.load(twin_of_gradients, model, grads)  # the gradients where PyTorch has them
    mine = dict(twin_of_gradients.named_parameters())
    for name, parameter in twin.named_parameters():
        if "bias_hh" not in name:
            assert_close(mine[name].detach().numpy(), parameter.grad.numpy(), TOLERANCE)
        # of the state's biases npformer has those alone that the input's cannot stand for
        elif cell == "gru":
            n = len(parameter) // 3
            assert_close(mine[name].detach().numpy()[-n:], parameter.grad.numpy()[-n:], TOLERANCE)
