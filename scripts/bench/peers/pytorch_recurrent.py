"""The training step of ``npformer.Recurrent`` in PyTorch, with its own ``nn.GRU`` and ``nn.LSTM``.

The model has one layer, which is bidirectional in the encoder; batches have no padding. ``load``
copies npformer's parameters.
"""

import numpy as np
import torch
from torch import nn

from scripts.bench.peers.pytorch_model import step_of


class Recurrent(nn.Module):
    """The twin of an ``npformer.Recurrent`` with n_layers=1 and bidirectional=True."""

    def __init__(self, model):
        super().__init__()
        D = model.d_model
        self.attention = model.attention
        layer = {"gru": nn.GRU, "lstm": nn.LSTM}[model.cell]
        self.source_embedding = nn.Embedding(model.src_vocab, D)
        self.target_embedding = nn.Embedding(model.tgt_vocab, D)
        self.encoder = layer(D, D // 2, batch_first=True, bidirectional=True)
        self.decoder = layer(D, D, batch_first=True)
        if self.attention == "general":
            self.bridge = nn.Linear(D, D, bias=False)
        if self.attention == "additive":
            self.w_q = nn.Linear(D, D, bias=False)
            self.w_k = nn.Linear(D, D, bias=False)
            self.w_score = nn.Linear(D, 1, bias=False)
        self.combine = nn.Linear(D if self.attention is None else 2 * D, D)
        self.output = nn.Linear(D, model.tgt_vocab)
        self.dropout = nn.Dropout(model.dropout)

    def forward(self, src, tgt_in):
        """(B, S) and (B, T) ids -> (B, T, V) logits."""
        scale = self.source_embedding.embedding_dim**0.5
        memory, end = self.encoder(self.dropout(scale * self.source_embedding(src)))
        memory = self.dropout(memory)
        y = self.dropout(scale * self.target_embedding(tgt_in))
        states, _ = self.decoder(y, self.both_ends(end))
        states = self.dropout(states)
        if self.attention is not None:
            states = torch.cat([states, self.weights(states, memory) @ memory], dim=-1)
        return self.output(self.dropout(torch.tanh(self.combine(states))))

    def both_ends(self, end):
        """The last states of the two directions, concatenated: (1, B, D) for each state."""
        if isinstance(end, tuple):
            return tuple(map(self.both_ends, end))
        return torch.cat([*end], dim=-1)[None]

    def weights(self, states, memory):
        """(B, T, D) and (B, S, D) -> (B, T, S)."""
        if self.attention == "additive":
            hidden = torch.tanh(self.w_q(states)[:, :, None] + self.w_k(memory)[:, None])
            return self.w_score(hidden)[..., 0].softmax(dim=-1)
        queries = self.bridge(states) if self.attention == "general" else states
        return (queries @ memory.transpose(1, 2)).softmax(dim=-1)


def load(twin, model, params):
    """Copy all of npformer's parameters to the twin."""
    encoder = params["encoder"]["0"]
    decoder = params["decoder"]
    state = {f"{name}.weight": params[name] for name in ("source_embedding", "target_embedding")}
    state |= layer_state("encoder", encoder["forward"]) | layer_state(
        "encoder", encoder["backward"], "_reverse"
    )
    state |= layer_state("decoder", decoder["0"])
    for name, linear in (("combine", decoder["combine"]), ("output", params["output"])):
        state |= {
            f"{name}.weight": linear["weight"].T,
            f"{name}.bias": linear["bias"],
        }  # theirs are (D_out, D_in)
    for name, weight in decoder.get("attention", {}).items():
        state["bridge.weight" if name == "weight" else f"{name}.weight"] = np.atleast_2d(weight.T)
    twin.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in state.items()})


def layer_state(name, params, suffix=""):
    """The parameters of a recurrent layer.

    PyTorch has a bias of the hidden state for every gate. Only that of a GRU's third gate is not
    redundant with the bias of the input; the others are set to 0.
    """
    bias = params["input"]["bias"]
    hidden = np.zeros_like(params["input"]["bias"])
    if "bias" in params["hidden"]:
        hidden[-len(bias) // 3 :] = params["hidden"]["bias"]
    arrays = {"bias_ih": bias, "bias_hh": hidden}
    arrays |= {"weight_ih": params["input"]["weight"].T, "weight_hh": params["hidden"]["weight"].T}
    return {f"{name}.{kind}_l0{suffix}": array for kind, array in arrays.items()}


def training_step(model, src, tgt, lr, **settings):
    """``step_of`` an ``npformer.Recurrent``'s twin."""
    twin = Recurrent(model)
    load(twin, model, model.init(seed=0))
    return step_of(twin, src, tgt, lr, **settings)
