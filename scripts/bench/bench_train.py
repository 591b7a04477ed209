"""Time one training step of npformer, PyTorch and JAX, each in a process of its own, in turns.

python scripts/bench/bench_train.py           # all five steps, all contenders
python scripts/bench/bench_train.py --quick   # tiny and copy, without torch.compile
python scripts/bench/bench_train.py --steps base --without compile,jax --rounds 9

The model is an encoder-decoder Transformer, pre-norm, dropout 0.1, label smoothing 0.1, Adam(0.9,
0.98), float32, on random tokens without padding. All contenders start with the same parameters (the
models are in peers/) and use all cores; contenders that do not start with the same loss are left
out. FLOP/s count the arithmetic that the step needs, not what a library actually computes. A step's
own limit is explained in own_limit.py.
"""

import sys
from functools import partial

from npformer.commands.command import command  # needs pip install -e .
from npformer.commands.output import write_json
from scripts.bench.contenders import of_backends
from scripts.bench.limits import limits_contender, print_limits
from scripts.bench.machine import machine, print_machine
from scripts.bench.options import add_backends, add_some, add_without, parsed, parser_of
from scripts.bench.report import milliseconds, percent, print_table, rated, short, time_cells
from scripts.bench.steps import (
    LABEL_SMOOTHING,
    LEARNING_RATE,
    SIZES,
    batch_of,
    build_npformer,
    build_pytorch,
    compare,
    model_of,
    print_best_of_pytorch,
    training_flops,
)

import npformer as nf


def build_jax(size):
    """``step`` of peers/jax_model.py."""
    from scripts.bench.peers.jax_model import training_step

    return training_step(model_of(size), *batch_of(size), LEARNING_RATE, LABEL_SMOOTHING)


PEERS = {  # option -> (name, libraries, build)
    "pytorch": ("PyTorch", ("torch",), build_pytorch),
    "fused": ("PyTorch, fused Adam", ("torch",), partial(build_pytorch, fused=True)),
    "compile": ("PyTorch, compiled", ("torch",), partial(build_pytorch, fused=True, compiled=True)),
    "jax": ("JAX", ("jax",), build_jax),
}


@command
def main(argv=None):
    options = parse_arguments(argv)
    facts = print_machine(machine())
    with limits_contender(options.sgemm_sizes) as limits:
        steps = {name: report_step(name, options, limits) for name in options.steps}
    write_json(options.json, {"machine": facts, "steps": steps})


def report_step(name, options, limits):
    """Measure a step with all contenders, and print their figures."""
    size = SIZES[name]
    flops = training_flops(size)
    n_parameters = nf.tree.count(model_of(size).shapes())
    batch = f"B={size.B} S={size.S} T={size.T}"
    work = f"{n_parameters:,} parameters, {short(flops / 1e9)} GFLOP a step"
    print(f"{name}: {size.of_model()}, {batch}, {work}", flush=True)
    wanted = of_backends(options.backends, build_npformer)
    wanted += [peer for key, peer in PEERS.items() if key not in options.without]
    build = partial(build_npformer, size, options.backends[0])
    figures, facts = compare(wanted, (size,), options, limits=limits, build=build)
    if not figures:
        sys.exit(f"{name}: no contender is left")
    figures = {one: rated(found, flops, facts) for one, found in figures.items()}
    print_steps(figures)
    print_limits([facts])
    print_best_of_pytorch(figures)
    return {"size": size._asdict(), "flops": flops, **facts, "contenders": figures}


def print_steps(figures):
    """Print a line for each contender."""
    header = ["", "ms", "spread", f"× {next(iter(figures))}", "min"]
    header += ["GFLOP/s", "of sgemm", "of own limit", "first loss", "libraries MB", "training MB"]
    rows = []
    for name, of in figures.items():
        row = [name, *time_cells(of), milliseconds(of, "min"), short(of["gflops"])]
        row += [percent(of["share_of_sgemm"]), percent(of["share_of_own_limit"])]
        row.append(f"{of['first_loss']:.2f}")
        row += [f"{of[kind] / 1e6:,.0f}" for kind in ("libraries_bytes", "training_bytes")]
        rows.append(row)
    print_table(header, rows)


def parse_arguments(argv):
    quick = "tiny and copy, no compilation, 3 short rounds: under a minute"
    parser = parser_of(__doc__, rounds=7, seconds=0.7, quick_seconds=0.3, quick=quick)
    add_some(parser, "--steps", SIZES, help=f"some of {','.join(SIZES)} (default: all)")
    add_backends(parser, default=["cpu"])
    add_without(parser, list(PEERS))
    options = parsed(parser, argv)
    options.steps = options.steps or (["tiny", "copy"] if options.quick else list(SIZES))
    if options.quick:
        options.without = [*options.without, "compile"]
    return options


if __name__ == "__main__":
    sys.exit(main())
