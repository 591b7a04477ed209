"""The training steps that several benchmarks measure."""

from typing import NamedTuple

import numpy as np

from scripts.bench.machine import physical_cores

import npformer as nf


class Size(NamedTuple):
    """The sizes of a model and of its batch."""

    V: int
    N: int  # layers of the encoder, and of the decoder
    D: int
    H: int
    F: int
    B: int
    S: int
    T: int  # of the decoder's input; the target has one token more

    def __str__(self):
        return f"V={self.V} N={self.N}+{self.N} D={self.D} H={self.H} F={self.F}"


class Recurrent(NamedTuple):
    """The step of a recurrent model, of a size that all have."""

    cell: str
    attention: str | None = None

    def __str__(self):
        return f"V={OF_RECURRENT.V} D={OF_RECURRENT.D}"


SIZES = {
    "tiny": Size(V=11, N=2, D=64, H=4, F=256, B=32, S=10, T=9),
    "copy": Size(V=11, N=2, D=512, H=8, F=2048, B=80, S=10, T=9),  # the Annotated Transformer's
    "small": Size(V=8000, N=3, D=256, H=8, F=1024, B=64, S=20, T=20),
    "base": Size(V=16000, N=6, D=512, H=8, F=2048, B=32, S=30, T=30),
    "long": Size(V=11, N=2, D=256, H=4, F=1024, B=4, S=512, T=512),
}
SHORT_STEPS = [name for name in SIZES if name != "long"]  # of few words
OF_RECURRENT = Size(V=1000, N=1, D=256, H=1, F=0, B=64, S=30, T=30)
RECURRENT = {cell: Recurrent(cell) for cell in ("gru", "lstm")} | {
    f"{cell}-{attention}": Recurrent(cell, attention)
    for cell in ("gru", "lstm")
    for attention in ("dot", "general", "additive")
}
LEARNING_RATE = 1e-4
LABEL_SMOOTHING = 0.1
SAME_LOSS = 0.05  # relative difference of first losses: each library draws its own dropout


def loss_differs(theirs, ours):
    return abs(theirs - ours) > SAME_LOSS * ours


def model_of(step):
    """The model of a step."""
    if isinstance(step, Recurrent):
        V = OF_RECURRENT.V
        D = OF_RECURRENT.D
        cell, attention = step
        return nf.Recurrent(V, V, d_model=D, cell=cell, attention=attention, dropout=0.1)
    V, N, D, H, F, _, S, T = step
    sizes = {"d_model": D, "n_heads": H, "n_layers": N, "d_ff": F, "max_len": max(S, T)}
    return nf.Transformer(V, V, **sizes, dropout=0.1)


def size_of(step):
    return OF_RECURRENT if isinstance(step, Recurrent) else step


def batch_of(step):
    """Random ids (B, S) and (B, T+1) without padding."""
    size = size_of(step)
    rng = np.random.default_rng(0)
    src = rng.integers(1, size.V, (size.B, size.S))
    tgt = rng.integers(1, size.V, (size.B, size.T + 1))
    tgt[:, 0] = 1  # the begin token
    return src, tgt


def smoothing_of(step):
    """The label smoothing of a step: the peers of recurrent models have none."""
    return 0.0 if isinstance(step, Recurrent) else LABEL_SMOOTHING


def training_flops(size):
    """Floating-point operations of forward and backward pass: 6 per token and matrix entry, plus
    those of attention.

    The scores and the weighted sum of a query take 4 · keys · D operations forward and twice that
    backward; causal attention takes half of it.
    """
    V, N, D, _, F, B, S, T = size
    attention = 4 * D * D
    memory_keys_values = 2 * D * D
    feed_forward = 2 * D * F
    # The decoder projects the source as well.
    source_weights = N * (attention + feed_forward + memory_keys_values)
    target_weights = N * (attention + (attention - memory_keys_values) + feed_forward) + D * V
    pairs = S * S + T * S + T * T / 2
    return 6 * B * (S * source_weights + T * target_weights) + 12 * N * B * pairs * D


def build_npformer(step, backend, **settings):
    """``step`` of ``npformer.Trainer``; on a GPU it is recorded and then replayed."""
    optimizer = nf.Adam(LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9)
    settings |= {"label_smoothing": smoothing_of(step), "backend": backend, "seed": 0}
    trainer = nf.Trainer(model_of(step), optimizer, **settings)
    batch = batch_of(step)
    return lambda: trainer.step(*batch)


def build_pytorch(step, n_threads=None, **variant):
    """``step`` of peers/pytorch_model.py, or of peers/pytorch_recurrent.py."""
    from scripts.bench.peers import pytorch_model, pytorch_recurrent

    peer = pytorch_recurrent if isinstance(step, Recurrent) else pytorch_model
    variant |= {"label_smoothing": smoothing_of(step), "n_threads": n_threads or physical_cores()}
    return peer.training_step(model_of(step), *batch_of(step), LEARNING_RATE, **variant)
