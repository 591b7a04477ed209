"""The training step of ``npformer.Recurrent`` in PyTorch, with its own ``nn.GRU`` and ``nn.LSTM``.

The model has one layer, which is bidirectional in the encoder; batches have no padding. ``load`` copies npformer's
parameters.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Recurrent(nn.Module):
    """The twin of an ``npformer.Recurrent`` with n_layers=1 and bidirectional=True."""

    def __init__(self, model):
        super().__init__()
        D, self.attention = model.d_model, model.attention
        layer = {"gru": nn.GRU, "lstm": nn.LSTM}[model.cell]
        self.source_embedding = nn.Embedding(model.src_vocab, D)
        self.target_embedding = nn.Embedding(model.tgt_vocab, D)
        self.encoder = layer(D, D // 2, batch_first=True, bidirectional=True)
        self.decoder = layer(D, D, batch_first=True)
        if self.attention == "general":
            self.bridge = nn.Linear(D, D, bias=False)
        if self.attention == "additive":
            self.w_q, self.w_k = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)
            self.w_score = nn.Linear(D, 1, bias=False)
        self.combine = nn.Linear(D if self.attention is None else 2 * D, D)
        self.output = nn.Linear(D, model.tgt_vocab)
        self.dropout = nn.Dropout(model.dropout)

    def forward(self, src, tgt_in):
        """(B, S) and (B, T) ids -> (B, T, V) logits."""
        scale = self.source_embedding.embedding_dim**0.5
        memory, end = self.encoder(self.dropout(scale * self.source_embedding(src)))
        memory, y = self.dropout(memory), self.dropout(scale * self.target_embedding(tgt_in))
        states, _ = self.decoder(y, self.both_ends(end))
        states = self.dropout(states)
        if self.attention is not None:
            context = self.weights(states, memory) @ memory
            combined = torch.tanh(self.combine(torch.cat([states, context], dim=-1)))
        else:
            combined = torch.tanh(self.combine(states))
        return self.output(self.dropout(combined))

    def both_ends(self, end):
        """The last states of the two directions, concatenated: (1, B, D) for each state."""
        if isinstance(end, tuple):
            return tuple(torch.cat([part[0], part[1]], dim=-1)[None] for part in end)
        return torch.cat([end[0], end[1]], dim=-1)[None]

    def weights(self, states, memory):
        """(B, T, D) and (B, S, D) -> (B, T, S)."""
        if self.attention == "additive":
            hidden = torch.tanh(self.w_q(states)[:, :, None] + self.w_k(memory)[:, None])
            return self.w_score(hidden)[..., 0].softmax(dim=-1)
        queries = self.bridge(states) if self.attention == "general" else states
        return (queries @ memory.transpose(1, 2)).softmax(dim=-1)


def load(twin, model, params):
    """Copy all of npformer's parameters to the twin."""
    with torch.no_grad():
        for name in ("source_embedding", "target_embedding"):
            getattr(twin, name).weight.copy_(tensor(params[name]))
        for name in ("forward", "backward"):
            suffix = "_reverse" if name == "backward" else ""
            load_cell(twin.encoder, model.cell, params["encoder"]["0"][name], suffix)
        load_cell(twin.decoder, model.cell, params["decoder"]["0"], "")
        load_linear(twin.combine, params["decoder"]["combine"])
        load_linear(twin.output, params["output"])
        learned = params["decoder"].get("attention", {})
        if "weight" in learned:
            twin.bridge.weight.copy_(tensor(learned["weight"].T))
        for name in learned.keys() - {"weight"}:
            weight = learned[name].T
            getattr(twin, name).weight.copy_(tensor(weight if weight.ndim == 2 else weight[None]))


def load_cell(layer, cell, params, suffix):
    """Copy the parameters of a recurrent layer.

    PyTorch has a bias of the hidden state for every gate. Only that of a GRU's third gate is not redundant with the
    bias of the input; the others are set to 0.
    """
    bias = torch.zeros_like(getattr(layer, f"bias_hh_l0{suffix}"))
    if cell == "gru":
        bias[-len(bias) // 3 :] = tensor(params["hidden"]["bias"])
    getattr(layer, f"bias_hh_l0{suffix}").copy_(bias)
    getattr(layer, f"bias_ih_l0{suffix}").copy_(tensor(params["input"]["bias"]))
    getattr(layer, f"weight_ih_l0{suffix}").copy_(tensor(params["input"]["weight"].T))
    getattr(layer, f"weight_hh_l0{suffix}").copy_(tensor(params["hidden"]["weight"].T))


def load_linear(layer, params):
    """Copy the parameters of a linear layer: PyTorch's weights are (D_out, D_in)."""
    layer.weight.copy_(tensor(params["weight"].T))
    layer.bias.copy_(tensor(params["bias"]))


def tensor(array):
    """A tensor with a copy of the array."""
    return torch.from_numpy(np.array(array))


def training_step(model, src, tgt, lr, n_threads, fused=False):
    """``step()`` -> loss, of an ``npformer.Recurrent``'s twin, with Adam on one array at a time, or fused."""
    torch.set_num_threads(n_threads)
    torch.manual_seed(0)
    twin = Recurrent(model)
    load(twin, model, model.init(seed=0))
    optimizer = torch.optim.Adam(twin.parameters(), lr=lr, betas=(0.9, 0.98), eps=1e-9, fused=fused or None)
    source, target_in, target_out = (tensor(x) for x in (src, tgt[:, :-1], tgt[:, 1:]))

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = twin(source, target_in)
        loss = F.cross_entropy(logits.flatten(0, 1), target_out.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
