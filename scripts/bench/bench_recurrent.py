"""Time a training step of the recurrent models in npformer and PyTorch, each in a process of its own, in turns.

python scripts/bench/bench_recurrent.py
python scripts/bench/bench_recurrent.py --quick
python scripts/bench/bench_recurrent.py --cells lstm --attention none,additive

The models have one layer, which is bidirectional in the encoder, and D 256. Batches have 64 pairs of 30 words without
padding, V 1,000; dropout 0.1, Adam(0.9, 0.98), float32. Both libraries start with the same parameters (the PyTorch
model is in peers/) and have to start with the same loss; both use all cores.
"""

import itertools
import sys
from contextlib import ExitStack
from functools import partial

import numpy as np

from scripts.arguments import some_of  # needs pip install -e .
from scripts.bench.bench_train import begins_alike, print_best_of_pytorch
from scripts.bench.benchmarking import (
    Contender,
    add_backends,
    alternate,
    backend_name,
    build_all,
    machine,
    new_parser,
    physical_cores,
    print_machine,
    print_table,
    short,
    timing,
)
from scripts.command import command
from scripts.output import write_json

import npformer as nf

V, D, B, T = 1000, 256, 64, 30
LEARNING_RATE = 1e-4
ATTENTION = {"none": None, "dot": "dot", "general": "general", "additive": "additive"}


@command
def main(argv=None):
    options = parse_arguments(argv)
    facts, results = machine(), {}
    print_machine(facts)
    for cell, attention in itertools.product(options.cells, options.attention):
        results[f"{cell}, {attention}"] = measure(cell, attention, options)
    if options.json:
        write_json(options.json, {"machine": facts, "V": V, "D": D, "B": B, "T": T, "results": results})


def measure(cell, attention, options):
    """Measure one model with all contenders, in turns."""
    wanted = [
        (backend_name(backend), (f"npformer.{backend}",), partial(build_npformer, backend=backend))
        for backend in options.backends
    ]
    if "pytorch" not in options.without:
        wanted.append(("PyTorch", ("torch",), build_pytorch))
        wanted.append(("PyTorch, fused Adam", ("torch",), partial(build_pytorch, fused=True)))
    with ExitStack() as stack:
        contenders = build_all([stack.enter_context(Contender(*each)) for each in wanted], cell, attention)
        contenders = [contender for contender in contenders if begins_alike(contender, contenders)]
        turns, others = alternate(contenders, options.rounds, options.seconds)
    if not turns:
        sys.exit(f"{cell}, attention {attention}: no contender is left")
    first_loss = {contender.name: contender.built.first_value for contender in contenders}
    figures = {name: timing(turns, name) | {"first_loss": first_loss[name]} for name in turns}
    print(f"{cell}, attention {attention}: D={D}, B={B}, S=T={T}, V={V}; other programs used {others:.1f} cores")
    rows = [
        [
            name,
            short(1e3 * f["seconds"]["median"]),
            f"{100 * f['seconds']['spread']:.0f} %",
            f"{f['times_as_long']:.2f}",
            f"{f['first_loss']:.2f}",
        ]
        for name, f in figures.items()
    ]
    print_table(["", "ms", "spread", f"× {next(iter(figures))}", "first loss"], rows)
    print_best_of_pytorch(figures)
    return figures


def model_of(cell, attention):
    """The model of one case."""
    return nf.Recurrent(V, V, d_model=D, cell=cell, attention=ATTENTION[attention], dropout=0.1)


def batch():
    """Random ids (B, S) and (B, T+1) without padding."""
    rng = np.random.default_rng(0)
    src, tgt = rng.integers(1, V, (B, T)), rng.integers(1, V, (B, T + 1))
    tgt[:, 0] = 1  # the begin token
    return src, tgt


def build_npformer(cell, attention, backend):
    """``step`` of ``npformer.Trainer``."""
    adam = nf.Adam(LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9)
    trainer = nf.Trainer(model_of(cell, attention), adam, seed=0, backend=backend)
    src, tgt = batch()
    return lambda: trainer.step(src, tgt)


def build_pytorch(cell, attention, **variant):
    """``step`` of peers/pytorch_recurrent.py."""
    from scripts.bench.peers.pytorch_recurrent import training_step

    return training_step(model_of(cell, attention), *batch(), LEARNING_RATE, physical_cores(), **variant)


def parse_arguments(argv):
    parser = new_parser(__doc__, rounds=7, seconds="0.5", quick="attention general alone, 3 short rounds")
    parser.add_argument("--cells", type=some_of(["gru", "lstm"]), default=["gru", "lstm"], metavar="A,B")
    parser.add_argument("--attention", type=some_of(list(ATTENTION)), metavar="A,B", help="(default: all)")
    add_backends(parser, default=["cpu"])
    parser.add_argument("--without", type=some_of(["pytorch"]), default=[], metavar="A", help="leave out pytorch")
    options = parser.parse_args(argv)
    options.attention = options.attention or (["general"] if options.quick else list(ATTENTION))
    options.rounds = options.rounds or (3 if options.quick else 7)
    options.seconds = options.seconds or (0.1 if options.quick else 0.5)
    return options


if __name__ == "__main__":
    sys.exit(main())
