"""The training step of ``npformer.Transformer`` (pre-norm, ReLU) in PyTorch.

Modules have the names of npformer's parameters, so that ``load`` can copy them. Projections that
read the same input are one product; attention is PyTorch's own. (``nn.TransformerEncoderLayer`` and
the related modules compute the same and take a little longer.) There is no padding mask, since the
benchmark has no padding.
"""

from collections import OrderedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import npformer as nf


class Attention(nn.Module):
    """Multi-head attention: to ``x`` itself, or to a memory."""

    def __init__(self, d_model, n_heads, dropout, causal=False, to_memory=False):
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.causal = causal
        if to_memory:
            self.q = nn.Linear(d_model, d_model)
            self.kv = nn.Linear(d_model, 2 * d_model)
        else:
            self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x, memory=None):
        """(B, T, D) and (B, S, D) -> (B, T, D)."""
        if memory is None:
            q, k, v = self.heads(self.qkv(x), 3)
        else:
            (q,) = self.heads(self.q(x), 1)
            k, v = self.heads(self.kv(memory), 2)
        rate = self.dropout if self.training else 0.0
        heads = F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=self.causal)
        return self.out(heads.transpose(1, 2).reshape(x.shape))

    def heads(self, x, n_parts):
        """(B, T, n_parts D) -> n_parts times (B, H, T, K)."""
        B, T, _ = x.shape
        return x.view(B, T, n_parts, self.n_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)


class Layer(nn.Module):
    """Self-attention, which in the decoder is causal and followed by attention to the memory, then
    feed-forward.
    """

    def __init__(self, model, in_decoder):
        super().__init__()
        D = model.d_model
        F = model.d_ff
        rate = model.dropout
        self.attention = Attention(D, model.n_heads, rate, causal=in_decoder)
        self.attention_norm = nn.LayerNorm(D)
        if in_decoder:
            self.memory_attention = Attention(D, model.n_heads, rate, to_memory=True)
            self.memory_attention_norm = nn.LayerNorm(D)
        parts = {
            "hidden": nn.Linear(D, F),
            "relu": nn.ReLU(),
            "dropout": nn.Dropout(rate),
            "out": nn.Linear(F, D),
        }
        self.feed_forward = nn.Sequential(OrderedDict(parts))
        self.feed_forward_norm = nn.LayerNorm(D)
        self.dropout = nn.Dropout(rate)

    def forward(self, x, memory=None):
        """(B, T, D) and in the decoder (B, S, D) -> (B, T, D)."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        if memory is not None:
            x = x + self.dropout(self.memory_attention(self.memory_attention_norm(x), memory))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class Embedding(nn.Embedding):
    """√D times the rows of the table, plus the sinusoidal encoding, then dropout."""

    def __init__(self, vocab, d_model, dropout, longest):
        super().__init__(vocab, d_model)
        self.dropout = nn.Dropout(dropout)
        positions = torch.from_numpy(nf.sinusoidal_encoding(longest, d_model, dtype="float32"))
        self.register_buffer("positions", positions, persistent=False)

    def forward(self, ids):
        """(B, T) -> (B, T, D)."""
        return self.dropout(
            super().forward(ids) * self.embedding_dim**0.5 + self.positions[: ids.shape[1]]
        )


class Transformer(nn.Module):
    """The twin of an ``npformer.Transformer``, for sequences up to ``longest``."""

    def __init__(self, model, longest):
        super().__init__()
        self.source_embedding = Embedding(model.src_vocab, model.d_model, model.dropout, longest)
        self.target_embedding = Embedding(model.tgt_vocab, model.d_model, model.dropout, longest)
        self.encoder, self.decoder = (
            nn.ModuleDict(
                {
                    **{str(i): Layer(model, in_decoder) for i in range(n)},
                    "norm": nn.LayerNorm(model.d_model),
                }
            )
            for n, in_decoder in zip(model.depths, (False, True), strict=True)
        )
        self.output = nn.Linear(model.d_model, model.tgt_vocab)

    def forward(self, src, tgt_in):
        """(B, S) and (B, T) ids -> (B, T, V) logits."""
        memory = through(self.encoder, self.source_embedding(src))
        return self.output(through(self.decoder, self.target_embedding(tgt_in), memory))


def through(stack, x, *memory):
    """The result of the layers of the encoder, or of the decoder, and of the norm after them."""
    *layers, norm = stack.values()
    for layer in layers:
        x = layer(x, *memory)
    return norm(x)


def load(twin, params):
    """Copy all of npformer's parameters to the twin."""
    state = {}
    for path, array in nf.tree.leaves(params):
        if path.endswith("embedding"):
            path = f"{path}.weight"
        elif path.endswith(".weight"):
            array = array.T  # npformer's are (D_in, D_out)
        state[path.replace(".gain", ".weight")] = torch.from_numpy(array.copy())
    twin.load_state_dict(state)


def training_step(model, src, tgt, lr, **settings):
    """``step_of`` an ``npformer.Transformer``'s twin."""
    twin = Transformer(model, longest=max(src.shape[1], tgt.shape[1]))
    load(twin, model.init(seed=0))
    return step_of(twin, src, tgt, lr, **settings)


def step_of(
    twin,
    src,
    tgt,
    lr,
    n_threads,
    label_smoothing=0.0,
    fused=False,
    compiled=False,
    device="cpu",
    precision="float32",
):
    """``step()`` -> loss, of a model in PyTorch, with Adam on one array at a time, or fused.

    ``step(src, tgt, lr=...)`` uses another batch or learning rate. On a GPU ("cuda") the precision
    may be "tf32" or "bfloat16", which is PyTorch's automatic mixed precision, and ``compiled`` a
    mode of ``torch.compile``.
    """
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    mixed = torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16")
    torch.set_num_threads(n_threads)
    torch.manual_seed(0)
    twin.to(device)
    optimizer = torch.optim.Adam(
        twin.parameters(), lr=lr, betas=(0.9, 0.98), eps=1e-9, fused=fused or None
    )

    def tensors(src, tgt):
        return [
            torch.from_numpy(np.ascontiguousarray(x)).to(device)
            for x in (src, tgt[:, :-1], tgt[:, 1:])
        ]

    def loss_of(source, target_in, target_out):
        with mixed:
            logits = twin(source, target_in)
        return F.cross_entropy(
            logits.flatten(0, 1), target_out.flatten(), label_smoothing=label_smoothing
        )

    if compiled:  # on a processor, the generator of eager mode is faster
        how = {"options": {"fallback_random": True}} if device == "cpu" else {"mode": compiled}
        loss_of = torch.compile(loss_of, **how)

    first = tensors(src, tgt)

    def step(*batch, lr=lr):
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(*(tensors(*batch) if batch else first))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
