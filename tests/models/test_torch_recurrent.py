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
    sizes = {"d_model": D, "dropout": 0.0, "dtype": "float64"}
    model = Recurrent(V_SRC, V_TGT, cell=cell, attention=attention, **sizes)
    params = model.init(3)
    src = rng.integers(1, V_SRC, (5, 7))
    tgt = rng.integers(1, V_TGT, (5, 12))
    twin, twin_of_gradients = (pytorch_recurrent.Recurrent(model).double() for _ in range(2))
    pytorch_recurrent.load(twin, model, params)

    targets = torch.from_numpy(tgt)
    logits = twin(torch.from_numpy(src), targets[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets[:, 1:])
    loss.backward()
    assert_close(model.logits(params, src, tgt[:, :-1]), logits.detach().numpy(), TOLERANCE)
    ours, grads, _ = model.loss_and_grad(params, src, tgt)
    assert_close(ours, loss.item(), TOLERANCE)

    pytorch_recurrent.load(twin_of_gradients, model, grads)  # the gradients where PyTorch has them
    of_twin = dict(twin_of_gradients.named_parameters())
    for name, parameter in twin.named_parameters():
        gradient = of_twin[name].detach().numpy()
        wanted = parameter.grad.numpy()
        # of the state's biases npformer has those alone that the input's cannot stand for
        if "bias_hh" in name:
            n = len(wanted) // 3 if cell == "gru" else 0
            gradient = gradient[len(wanted) - n :]
            wanted = wanted[len(wanted) - n :]
        assert_close(gradient, wanted, TOLERANCE)
