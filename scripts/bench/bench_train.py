"""Time one training step of npformer, PyTorch and JAX, each in a process of its own, in turns.

python scripts/bench/bench_train.py                               # all five steps, all contenders
python scripts/bench/bench_train.py --quick                       # tiny and copy, without torch.compile
python scripts/bench/bench_train.py --steps base --without compile,jax --rounds 9
python scripts/bench/bench_train.py --scaling --plot scaling.png  # npformer alone: time against B, T, D and V
python scripts/bench/bench_train.py --first-step                  # from `import npformer` to the end of the first step

The model is an encoder-decoder Transformer, pre-norm, dropout 0.1, label smoothing 0.1, Adam(0.9, 0.98), float32, on
random tokens without padding. All contenders start with the same parameters (the models are in peers/) and use all
cores; contenders that do not start with the same loss are left out. FLOP/s count the arithmetic that the step needs,
not what a library actually computes. A step's own limit is explained in own_limit.py.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial

import numpy as np

from npformer.commands.command import command  # needs pip install -e .
from npformer.commands.output import picture_file, write_json
from scripts.bench.contenders import build_all, of_backends, started
from scripts.bench.limits import alternate_with, limits_contender, print_limits
from scripts.bench.machine import machine, print_machine
from scripts.bench.options import add_backends, add_some, add_without, parsed, parser_of
from scripts.bench.report import fit_power, percent, print_table, rated, short, time_cells, upper_half
from scripts.bench.steps import (
    LABEL_SMOOTHING,
    LEARNING_RATE,
    SIZES,
    Size,
    batch_of,
    build_npformer,
    build_pytorch,
    compare,
    model_of,
    print_best_of_pytorch,
    training_flops,
)

import npformer as nf


@command
def main(argv=None):
    options = parse_arguments(argv)
    report = report_first_step if options.first_step else report_scaling if options.scaling else report_steps
    facts = print_machine(machine())
    write_json(options.json, {"machine": facts} | report(options))


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


def report_steps(options):
    with limits_contender(options.sgemm_sizes) as limits:
        return {"steps": {name: report_step(name, SIZES[name], options, limits) for name in options.steps}}


def report_step(name, size, options, limits):
    flops = training_flops(size)
    print(
        f"{name}: {size.of_model()}, B={size.B} S={size.S} T={size.T}, "
        f"{nf.tree.count(model_of(size).init()):,} parameters, {short(flops / 1e9)} GFLOP a step",
        flush=True,
    )
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
    times = f"× {next(iter(figures))}"
    shares = ["GFLOP/s", "of sgemm", "of own limit"]
    header = ["", "ms", "min", "spread", times, *shares, "first loss", "libraries MB", "training MB"]
    rows = []
    for name, f in figures.items():
        median, *more = time_cells(f)
        rates = short(f["gflops"]), percent(f["share_of_sgemm"]), percent(f["share_of_own_limit"])
        memory = (f"{f[kind] / 1e6:,.0f}" for kind in ("libraries_bytes", "training_bytes"))
        rows.append([name, median, short(1e3 * f["seconds"]["min"]), *more, *rates, f"{f['first_loss']:.2f}", *memory])
    print_table(header, rows)


MIDDLE = Size(V=1000, N=2, D=256, H=4, F=1024, B=16, S=32, T=32)
SCALED = {
    "B": [8, 16, 32, 64, 128],
    "T": [8, 16, 32, 64, 128, 256, 512],
    "D": [64, 128, 256, 512, 1024],
    "V": [500, 1000, 2000, 4000, 8000, 16000, 32000],
}


def scaled(axis, value):
    """The middle size with another B or V, another T (and S), or another D (and F)."""
    others = {"T": {"S": value}, "D": {"F": 4 * value}}
    return MIDDLE._replace(**{axis: value}, **others.get(axis, {}))


def report_scaling(options):
    [(name, *contender)] = of_backends(options.backends[:1], build_npformer)
    print(f"{name}: around {MIDDLE}; S grows with T, F with D\n")
    results = {}
    with limits_contender(options.sgemm_sizes) as limits:
        for axis, values in SCALED.items():
            values = values[:3] if options.quick else values
            results[axis] = scaling_along(axis, values, *contender, options, limits)
    if options.plot:
        draw_scaling(results, options.plot, name)
    return {"middle": MIDDLE._asdict(), "scaling": results}


def scaling_along(axis, values, libraries, build, options, limits):
    with started([(f"{axis}={value}", libraries, partial(build, scaled(axis, value))) for value in values]) as points:
        able = build_all(points)
        turns, facts = alternate_with(limits, able, options) if len(able) == len(values) else ({}, {})
    if len(turns) < len(values):
        sys.exit(f"no fit along {axis}: a point is missing")
    seconds = [statistics.median(second for second, _ in turn) for turn in turns.values()]
    flops = [training_flops(scaled(axis, value)) for value in values]
    (exponent, factor), (flops_exponent, _) = fit_power(values, seconds), fit_power(values, flops)
    rows = []
    for value, second, n in zip(values, seconds, flops, strict=True):
        rate = n / second / 1e9
        share = percent(rate / facts["limits"]["sgemm"])
        rows.append([value, short(1e3 * second), short(n / 1e9), short(rate), share])
    print_table([axis, "ms", "GFLOP", "GFLOP/s", "of sgemm"], rows)
    print(f"upper half: time ~ {axis}^{exponent:.2f}, FLOPs ~ {axis}^{flops_exponent:.2f}")
    print_limits([facts])
    print(flush=True)
    fit = {"exponent": exponent, "factor": factor, "flops_exponent": flops_exponent}
    return {"values": values, "seconds": seconds, "flops": flops, **fit, **facts}


def draw_scaling(results, path, name):
    """Draw time against each axis, with the fitted line, and the FLOPs, scaled to go through the last point."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 3.6), layout="constrained")
    for axes, (axis, result) in zip(figure.subplots(1, len(results)), results.items(), strict=True):
        x, seconds, flops = (np.array(result[key]) for key in ("values", "seconds", "flops"))
        axes.loglog(x, 1e3 * seconds, "o", label="measured")
        fitted = upper_half(x)
        line = 1e3 * result["factor"] * fitted ** result["exponent"]
        axes.loglog(fitted, line, label=f"upper half: {axis}^{result['exponent']:.2f}")
        model = 1e3 * seconds[-1] * flops / flops[-1]
        axes.loglog(x, model, "--", color="0.5", label=f"FLOPs, scaled: {axis}^{result['flops_exponent']:.2f}")
        axes.set(xlabel=axis, ylabel="ms a training step", title=f"{name}: time against {axis}")
        axes.set_xticks(x, x, fontsize=8)
        axes.xaxis.minorticks_off()
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    figure.savefig(path)


FIRST_STEP = """
import json, sys, time
size, backend = json.loads(sys.argv[1]), sys.argv[2]
start = time.perf_counter()
import numpy as np
import npformer as nf
imported = time.perf_counter()
model = nf.Transformer(size["V"], size["V"], size["D"], size["H"], size["N"], size["F"])
trainer = nf.Trainer(model, nf.Adam(1e-4), label_smoothing=0.1, backend=backend)
src, tgt = np.full((size["B"], size["S"]), 3), np.full((size["B"], size["T"] + 1), 3)
trainer.step(src, tgt)
print(json.dumps({"import": imported - start, "first_step": time.perf_counter() - start}))
"""


def report_first_step(options):
    """The time until a new user's first step has ended, in two new processes: without and with numba's cache."""
    backend, results = options.backends[0], {}
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("cold", "warm"):
            command = [sys.executable, "-c", FIRST_STEP, json.dumps(SIZES["tiny"]._asdict()), backend]
            environment = os.environ | {"NUMBA_CACHE_DIR": folder}
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"the first step failed: {done.stderr.strip().splitlines()[-1]}")
            results[cache] = json.loads(done.stdout)
    print(f"backend {backend}, step 'tiny': seconds since before `import npformer`\n")
    rows = [[f"{cache} cache", short(r["import"]), short(r["first_step"])] for cache, r in results.items()]
    print_table(["", "to the import's end", "to the first step's end"], rows)
    return {"backend": backend, "first_step": results}


def parse_arguments(argv):
    quick = "tiny and copy, no compilation, 3 short rounds: under a minute"
    parser = parser_of(__doc__, rounds=7, seconds=0.7, quick_seconds=0.3, quick=quick)
    add_some(parser, "--steps", SIZES, help=f"some of {','.join(SIZES)} (default: all)")
    add_backends(parser, default=["cpu"])
    add_without(parser, list(PEERS))
    parser.add_argument("--plot", type=picture_file, metavar="FILE", help="with --scaling: draw it into FILE")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--scaling", action="store_true", help="instead: npformer's time against B, T, D, V, and exponents"
    )
    first_step = "instead: the time until the first step ends, cold or warm cache"
    mode.add_argument("--first-step", action="store_true", help=first_step)
    options = parsed(parser, argv)
    options.steps = options.steps or (["tiny", "copy"] if options.quick else list(SIZES))
    if options.quick:
        options.without = [*options.without, "compile"]
    if options.plot and not options.scaling:
        parser.error("argument --plot: only --scaling draws a picture")
    return options


if __name__ == "__main__":
    sys.exit(main())
