"""The training steps that several benchmarks measure, and what a fair comparison of them needs."""

from typing import NamedTuple

import numpy as np

from scripts.bench.contenders import agreeing, build_all, started
from scripts.bench.limits import alternate_with, measure_own_limit
from scripts.bench.machine import physical_cores
from scripts.bench.report import timing

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

    def of_model(self):
        """The sizes of the model as text."""
        return f"V={self.V} N={self.N}+{self.N} D={self.D} H={self.H} F={self.F}"


SIZES = {
    "tiny": Size(V=11, N=2, D=64, H=4, F=256, B=32, S=10, T=9),
    "copy": Size(V=11, N=2, D=512, H=8, F=2048, B=80, S=10, T=9),  # the Annotated Transformer's
    "small": Size(V=8000, N=3, D=256, H=8, F=1024, B=64, S=20, T=20),
    "base": Size(V=16000, N=6, D=512, H=8, F=2048, B=32, S=30, T=30),
    "long": Size(V=11, N=2, D=256, H=4, F=1024, B=4, S=512, T=512),
}
LEARNING_RATE = 1e-4
LABEL_SMOOTHING = 0.1
SAME_LOSS = (
    0.05  # the largest relative difference of the first losses: each library draws its own dropout
)


def model_of(size):
    """The Transformer of this size."""
    V, N, D, H, F, _, S, T = size
    return nf.Transformer(
        V, V, d_model=D, n_heads=H, n_layers=N, d_ff=F, dropout=0.1, max_len=max(S, T)
    )


def batch_of(size):
    """Random ids (B, S) and (B, T+1) without padding."""
    rng = np.random.default_rng(0)
    src, tgt = (
        rng.integers(1, size.V, (size.B, size.S)),
        rng.integers(1, size.V, (size.B, size.T + 1)),
    )
    tgt[:, 0] = 1  # the begin token
    return src, tgt


def training_flops(size):
    """Floating-point operations of forward and backward pass: 6 per token and matrix entry, plus
    those of attention.

    The scores and the weighted sum of a query take 4 · keys · D operations forward and twice that
    backward; causal attention takes half of it.
    """
    V, N, D, _, F, B, S, T = size
    attention, memory_keys_values, feed_forward = 4 * D * D, 2 * D * D, 2 * D * F
    source_weights = N * (
        attention + feed_forward + memory_keys_values
    )  # the decoder projects the source as well
    target_weights = N * (attention + (attention - memory_keys_values) + feed_forward) + D * V
    pairs = S * S + T * S + T * T / 2
    return 6 * B * (S * source_weights + T * target_weights) + 12 * N * B * pairs * D


def trainer_step(model, batch, **settings):
    """``step`` of ``npformer.Trainer``."""
    trainer = nf.Trainer(
        model, nf.Adam(LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9), seed=0, **settings
    )
    return lambda: trainer.step(*batch)


def build_npformer(size, backend, **settings):
    """``step`` of ``npformer.Trainer`` for the Transformer of this size; on a GPU it is recorded
    and then replayed.
    """
    return trainer_step(
        model_of(size), batch_of(size), label_smoothing=LABEL_SMOOTHING, backend=backend, **settings
    )


def build_pytorch(size, n_threads=None, **variant):
    """``step`` of peers/pytorch_model.py."""
    from scripts.bench.peers.pytorch_model import training_step

    n_threads = n_threads or physical_cores()
    return training_step(
        model_of(size), *batch_of(size), LEARNING_RATE, LABEL_SMOOTHING, n_threads, **variant
    )


def compare(wanted, case, options, warm_up=2, limits=None, build=None):
    """Measure contenders, in turns: {name: ``timing``, first loss and memory}, and what
    ``alternate_with`` says.

    With ``limits``, ``build()`` returns the step whose own limit is measured.
    """
    with started(wanted) as contenders:
        contenders = build_all(contenders, *case, warm_up=warm_up)
        if contenders and contenders[0].built.first_value is not None:
            contenders = agreeing(
                contenders, lambda theirs, ours: abs(theirs - ours) > SAME_LOSS * ours
            )
        if limits:
            measure_own_limit(limits, options.sgemm_sizes, build)
        turns, facts = alternate_with(limits, contenders, options)
        return {one.name: figures_of(one, turns) for one in contenders if one.name in turns}, facts


def figures_of(contender, turns):
    """The figures of a contender after its turns, by name."""
    memory = contender.memory()
    return timing(turns, contender.name) | {
        "first_loss": contender.built.first_value,
        "build_seconds": contender.built.build_seconds,
        "libraries_bytes": memory.libraries,
        "training_bytes": memory.peak - memory.libraries,
    }


def print_best_of_pytorch(figures):
    names = [name for name in figures if name.startswith("PyTorch")]
    if names:
        best = min(names, key=lambda name: figures[name]["seconds"]["median"])
        ours, ratio = next(iter(figures)), figures[best]["times_as_long"]
        print(f"PyTorch's best of these is {best!r}: {ratio:.2f} times as long as {ours}")
    print(flush=True)
