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
from functools import partial

from scripts.arguments import some_of  # needs pip install -e .
from scripts.bench.contenders import alternate, build_all, of_backends, started
from scripts.bench.machine import machine, physical_cores, print_machine
from scripts.bench.options import add_backends, parsed, parser_of
from scripts.bench.report import print_table, time_cells, timing
from scripts.bench.steps import LEARNING_RATE, Size, batch_of, print_best_of_pytorch, that_begin_alike, trainer_step
from scripts.command import command
from scripts.output import write_json

import npformer as nf

V, D, B, T = 1000, 256, 64, 30
SIZE = Size(V=V, N=1, D=D, H=1, F=0, B=B, S=T, T=T)
ATTENTION = {"none": None, "dot": "dot", "general": "general", "additive": "additive"}


@command
def main(argv=None):
    options = parse_arguments(argv)
    facts, results = print_machine(machine()), {}
    for cell, attention in itertools.product(options.cells, options.attention):
        results[f"{cell}, {attention}"] = measure(cell, attention, options)
    if options.json:
        write_json(options.json, {"machine": facts, "V": V, "D": D, "B": B, "T": T, "results": results})


def measure(cell, attention, options):
    """Measure one model with all contenders, in turns."""
    wanted = of_backends(options.backends, build_npformer)
    if "pytorch" not in options.without:
        wanted.append(("PyTorch", ("torch",), build_pytorch))
        wanted.append(("PyTorch, fused Adam", ("torch",), partial(build_pytorch, fused=True)))
    with started(wanted) as contenders:
        contenders = that_begin_alike(build_all(contenders, cell, attention))
        turns, others = alternate(contenders, options.rounds, options.seconds)
    if not turns:
        sys.exit(f"{cell}, attention {attention}: no contender is left")
    first_loss = {contender.name: contender.built.first_value for contender in contenders}
    figures = {name: timing(turns, name) | {"first_loss": first_loss[name]} for name in turns}
    print(f"{cell}, attention {attention}: D={D}, B={B}, S=T={T}, V={V}; other programs used {others:.1f} cores")
    rows = [[name, *time_cells(f), f"{f['first_loss']:.2f}"] for name, f in figures.items()]
    print_table(["", "ms", "spread", f"× {next(iter(figures))}", "first loss"], rows)
    print_best_of_pytorch(figures)
    return figures


def model_of(cell, attention):
    """The model of one case."""
    return nf.Recurrent(V, V, d_model=D, cell=cell, attention=ATTENTION[attention], dropout=0.1)


def build_npformer(cell, attention, backend):
    """``step`` of ``npformer.Trainer``."""
    return trainer_step(model_of(cell, attention), batch_of(SIZE), backend=backend)


def build_pytorch(cell, attention, **variant):
    """``step`` of peers/pytorch_recurrent.py."""
    from scripts.bench.peers.pytorch_recurrent import training_step

    return training_step(model_of(cell, attention), *batch_of(SIZE), LEARNING_RATE, physical_cores(), **variant)


def parse_arguments(argv):
    quick = "attention general alone, 3 short rounds"
    parser = parser_of(__doc__, rounds=7, seconds=0.5, quick_seconds=0.1, quick=quick)
    parser.add_argument("--cells", type=some_of(["gru", "lstm"]), default=["gru", "lstm"], metavar="A,B")
    parser.add_argument("--attention", type=some_of(list(ATTENTION)), metavar="A,B", help="(default: all)")
    add_backends(parser, default=["cpu"])
    parser.add_argument("--without", type=some_of(["pytorch"]), default=[], metavar="A", help="leave out pytorch")
    options = parsed(parser, argv)
    options.attention = options.attention or (["general"] if options.quick else list(ATTENTION))
    return options


if __name__ == "__main__":
    sys.exit(main())
