"""Time a training step of the recurrent models in npformer and PyTorch, each in a process of its
own, in turns.

python scripts/bench/bench_recurrent.py
python scripts/bench/bench_recurrent.py --quick
python scripts/bench/bench_recurrent.py --cells lstm --attention none,additive

The models have one layer, which is bidirectional in the encoder, and D 256. Batches have 64 pairs
of 30 words without padding, V 1,000; dropout 0.1, Adam(0.9, 0.98), float32. Both libraries start
with the same parameters (the PyTorch model is in peers/) and have to start with the same loss; both
use all cores.
"""

import itertools
import sys
from functools import partial

from npformer.commands.command import command  # needs pip install -e .
from npformer.commands.output import write_json
from scripts.bench.contenders import of_backends
from scripts.bench.machine import machine, physical_cores, print_machine
from scripts.bench.options import add_backends, add_some, add_without, parsed, parser_of
from scripts.bench.report import print_table, time_cells
from scripts.bench.steps import (
    LEARNING_RATE,
    Size,
    batch_of,
    compare,
    print_best_of_pytorch,
    trainer_step,
)

import npformer as nf

V, D, B, T = 1000, 256, 64, 30
SIZE = Size(V=V, N=1, D=D, H=1, F=0, B=B, S=T, T=T)
ATTENTION = {"none": None, "dot": "dot", "general": "general", "additive": "additive"}


@command
def main(argv=None):
    quick = "attention general alone, 3 short rounds"
    parser = parser_of(__doc__, rounds=7, seconds=0.5, quick_seconds=0.1, quick=quick)
    add_some(parser, "--cells", ["gru", "lstm"], ["gru", "lstm"])
    add_some(parser, "--attention", ATTENTION, help="(default: all)")
    add_backends(parser, default=["cpu"])
    add_without(parser, ["pytorch"])
    options = parsed(parser, argv)
    options.attention = options.attention or (["general"] if options.quick else list(ATTENTION))
    facts, results = print_machine(machine()), {}
    for cell, attention in itertools.product(options.cells, options.attention):
        results[f"{cell}, {attention}"] = measure(cell, attention, options)
    write_json(options.json, {"machine": facts, "V": V, "D": D, "B": B, "T": T, "results": results})


def measure(cell, attention, options):
    """Measure one model with all contenders, in turns."""
    wanted = of_backends(options.backends, build_npformer)
    if "pytorch" not in options.without:
        wanted.append(("PyTorch", ("torch",), build_pytorch))
        wanted.append(("PyTorch, fused Adam", ("torch",), partial(build_pytorch, fused=True)))
    figures, facts = compare(wanted, (cell, attention), options)
    if not figures:
        sys.exit(f"{cell}, attention {attention}: no contender is left")
    others = f"other programs used {facts['other_programs_cores']:.1f} cores"
    print(f"{cell}, attention {attention}: D={D}, B={B}, S=T={T}, V={V}; {others}")
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

    return training_step(
        model_of(cell, attention), *batch_of(SIZE), LEARNING_RATE, physical_cores(), **variant
    )


if __name__ == "__main__":
    sys.exit(main())
