"""The default ``npformer.LanguageModel`` in PyTorch, with its parameters."""

import math

import torch
from torch import nn

from npformer import tree


class Network(nn.Module):
    """A pre-norm decoder with rotary positions, as ``LanguageModel`` is by default."""

    def __init__(self, model, params):
        super().__init__()
        self.model = model
        leaves = {path.replace(".", "_"): x for path, x in tree.leaves(params)}
        self.p = nn.ParameterDict({path: nn.Parameter(torch.tensor(x)) for path, x in leaves.items()})
        K = model.d_model // model.n_heads
        angles = torch.arange(model.max_len)[:, None] * 10000.0 ** (-2 * torch.arange(K // 2) / K)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids):
        """The logits."""
        D, H = self.model.d_model, self.model.n_heads
        x = nn.functional.embedding(ids, self.p["embedding"]) * math.sqrt(D)
        for i in range(self.model.n_layers):
            qkv = self._linear(self._norm(x, f"{i}_attention_norm"), f"{i}_attention_qkv")
            q, k, v = (part.unflatten(-1, (H, D // H)).transpose(1, 2) for part in qkv.split(D, dim=-1))
            heads = nn.functional.scaled_dot_product_attention(self._turned(q), self._turned(k), v, is_causal=True)
            x = x + self._linear(heads.transpose(1, 2).flatten(2), f"{i}_attention_out")
            hidden = self._linear(self._norm(x, f"{i}_feed_forward_norm"), f"{i}_feed_forward_hidden")
            x = x + self._linear(nn.functional.gelu(hidden, approximate="tanh"), f"{i}_feed_forward_out")
        return self._norm(x, "norm") @ self.p["embedding"].T

    def loss(self, ids):
        """The mean cross-entropy of ids (B, T+1), a NumPy array."""
        ids = torch.from_numpy(ids)
        return nn.functional.cross_entropy(self(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    def _linear(self, x, name):
        return x @ self.p[f"layers_{name}_weight"] + self.p[f"layers_{name}_bias"]

    def _norm(self, x, name):
        return nn.functional.layer_norm(x, x.shape[-1:], self.p[f"layers_{name}_gain"], self.p[f"layers_{name}_bias"])

    def _turned(self, x):
        a, b = x.chunk(2, dim=-1)
        cos, sin = self.cos[: x.shape[2]], self.sin[: x.shape[2]]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
