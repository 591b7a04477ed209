"""The whole model against ``torch.nn.Transformer`` in float64.

Loss, and every parameter's gradient.
"""

from functools import partial

import numpy as np
import pytest
from oracles import assert_close
from promises import assert_trees_close

from npformer import pretrained, tree

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")

B, S, T, H, D, F, V_SRC, V_TGT = 3, 7, 5, 2, 22, 13, 17, 19
NAMES = {"source_embedding": "source", "target_embedding": "target", "output": "output"}
ACTIVATIONS = {"relu": "relu", "gelu_erf": "gelu", "silu": functional.silu}
ACTIVATIONS["gelu"] = partial(functional.gelu, approximate="tanh")


class Program(nn.Module):
    def __init__(self, norm, activation):
        super().__init__()
        self.source = nn.Embedding(V_SRC, D)
        self.target = nn.Embedding(V_TGT, D)
        self.output = nn.Linear(D, V_TGT)
        options = {"dim_feedforward": F, "dropout": 0.0, "batch_first": True}
        options |= {"norm_first": norm == "pre", "activation": ACTIVATIONS[activation]}
        self.inner = nn.Transformer(D, H, num_encoder_layers=2, num_decoder_layers=1, **options)

    def forward(self, src, tgt):
        masks = {"tgt_mask": torch.ones(T, T, dtype=torch.bool).triu(1)}
        masks["src_key_padding_mask"] = masks["memory_key_padding_mask"] = src == 0
        masks["tgt_key_padding_mask"] = tgt == 0
        words = self.source(src) * (src != 0)[..., None]
        return self.output(self.inner(words, self.target(tgt), **masks))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_loss_and_all_parameter_gradients(norm, activation):
    torch.manual_seed(0)
    program = Program(norm, activation).double()
    with torch.no_grad():
        for parameter in program.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # no bias at 0, no gain at 1
    rng = np.random.default_rng(0)
    src = rng.integers(1, V_SRC, (B, S))
    tgt = rng.integers(1, V_TGT, (B, T + 1))
    src[1, 5:] = src[2, 3:] = tgt[1, 4:] = 0
    ids = torch.tensor(tgt)
    logits = program(torch.tensor(src), ids[:, :-1])
    options = {"ignore_index": 0, "label_smoothing": 0.1}
    their_loss = functional.cross_entropy(logits.mT, ids[:, 1:], **options)
    their_loss.backward()

    def loaded(tensors):
        settings = {"n_heads": H, "norm": norm, "activation": activation, "dtype": "float64"}
        model, params, _ = pretrained.load(tensors, names=NAMES, **settings)
        return model, params

    model, params = loaded(program.state_dict())
    _, wanted = loaded({name: x.grad for name, x in program.named_parameters()})
    is_target = tgt[:, 1:] != 0
    ours = model.logits(params, src, tgt[:, :-1])
    assert_close(ours[is_target], logits.detach().numpy()[is_target], 1e-10)
    loss, grads, _ = model.loss_and_grad(params, src, tgt, label_smoothing=0.1)
    assert_close(loss, their_loss.item(), 1e-10)
    assert_trees_close(grads, wanted, 1e-10)
    for path, grad in tree.leaves(grads):
        assert np.abs(grad).max() > 1e-6 or path.endswith("bias"), path
