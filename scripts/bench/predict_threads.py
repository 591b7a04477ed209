"""Predict a training step on many cores from parts that one or two cores measure.

    python scripts/bench/predict_threads.py
    python scripts/bench/predict_threads.py --steps copy,small,base,long --bandwidth 100
    python scripts/bench/predict_threads.py --memory 2,4,8,16,32,64

A thread computes its shards one after another. A shard takes a time for each of its rows, and a fixed time: what it
takes with one row, in which weights are read, gradients written and added up, and Python runs between the kernels. A
step can be no faster than the Python of all shards, as one thread at a time runs it, nor than the memory moves the
weights and gradients of all shards. The update comes after that and moves bytes on all cores.

Assumed, not measured: more than two threads disturb each other no more than two do, except by these two limits; the
memory gives each core what one core measures, up to ``--bandwidth``; BLAS divides the products of a single shard
without loss, and only these and the update are divided.
"""

import math
import statistics
import sys
from typing import NamedTuple
from unittest import mock

from npformer.commands.arguments import above_zero, new_parser  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, write_json
from scripts.bench.contenders import Contender
from scripts.bench.limits import best_of, build_limits
from scripts.bench.machine import machine, print_machine
from scripts.bench.options import positives, some_of
from scripts.bench.report import print_table, short
from scripts.bench.steps import LABEL_SMOOTHING, SIZES, batch_of, model_of, trainer_step, training_flops

from npformer import tree
from npformer.operations.host import HOST
from npformer.runtime import threads
from npformer.runtime.blas_threads import blas_threads
from npformer.runtime.cores import cores
from npformer.training.shards import Sharding

CORES = [1, 2, 4, 8, 16, 32, 64]
SHARDS = [1, 2, 4, 8]
OF_A_SHARD, OF_THE_UPDATE = 24, 32  # bytes for each parameter: read twice, gradient written, two added; Adam and norm


class Parts(NamedTuple):
    """The parts of a step, in seconds."""

    rows: int  # of the batch
    row: float  # of one shard on one core
    products: float  # of all rows on one core, at the speed of the best sgemm: a part of ``rows * row``
    alone: float  # of a shard, whatever its rows
    together: float  # the same, beside a shard in another thread
    python: float  # of a shard, a part of ``alone``
    n_params: int
    core_bandwidth: float  # bytes per second that one core reads and writes
    bandwidth: float  # and all together


def predict(parts, shards, cores):
    """The seconds of a step of so many shards on so many cores; a single shard has all threads of BLAS.

    Examples
    --------
    >>> parts = Parts(64, 0.01, 0.5, 0.01, 0.02, 0.002, 0, 1e10, 1e11)
    >>> [round(predict(parts, n, 64), 3) for n in (1, 8, 16, 64)]
    [0.158, 0.1, 0.06, 0.128]
    """
    together = min(shards, cores)
    bandwidth = min(cores * parts.core_bandwidth, parts.bandwidth)
    update = OF_THE_UPDATE * parts.n_params / bandwidth
    if shards == 1:
        return parts.rows * parts.row - parts.products * (1 - 1 / cores) + parts.alone + update
    of_a_shard = math.ceil(parts.rows / shards) * parts.row + (parts.alone if together == 1 else parts.together)
    limits = shards * parts.python, shards * OF_A_SHARD * parts.n_params / bandwidth
    return max(math.ceil(shards / cores) * of_a_shard, *limits) + update


def best(parts, cores):
    """The number of shards, at most one a core, that is the fastest."""
    return min(range(1, min(cores, parts.rows) + 1), key=lambda n: predict(parts, n, cores))


def chosen(size, cores):
    """The number of shards that a trainer chooses."""
    sharding = Sharding(HOST, 1, None, model_of(size).shapes())
    with mock.patch.object(threads, "cores", lambda: cores), blas_threads(cores):
        return sharding.count(batch_of(size))


# -- measurements -------------------------------------------------------------------------------------------------


def build_step(size, n_shards, n_threads):
    """``step`` of a trainer on so many threads, which may be more than there are cores."""
    threads.cores = lambda: n_threads
    step = trainer_step(model_of(size), batch_of(size), label_smoothing=LABEL_SMOOTHING, n_shards=n_shards)

    def on_threads():
        with blas_threads(n_threads):
            return step()

    return on_threads


def build_python(size):
    """``step`` of loss and gradient with arrays so small that almost only Python takes time."""
    size = size._replace(V=11, D=2 * size.H, F=8, B=1, S=1, T=1)
    model, batch = model_of(size), batch_of(size)
    params = model.init()
    return lambda: model.loss_and_grad(params, *batch, dropout_key=0, label_smoothing=LABEL_SMOOTHING)[0]


def measure(build, *case, n=5):
    """(the median of the seconds of n steps, the peak of the memory in bytes), in a process of its own."""
    with Contender(build.__name__, ("npformer.cpu",), build) as contender:
        contender.build(*case)
        seconds = [contender.run(1)[0] for _ in range(n)]
        return statistics.median(seconds), contender.memory().peak


def measured_parts(size, bandwidth):
    """The ``Parts`` of a step on this machine."""
    step = build_limits([2048])
    limits = best_of([step() for _ in range(3)])
    n, core = tree.count(model_of(size).shapes()), limits["copy"] * 1e9
    update = OF_THE_UPDATE * n / core
    whole, alone = (measure(build_step, size._replace(B=B), 1, 1)[0] for B in (size.B, 1))
    together = measure(build_step, size._replace(B=2), 2, 2)[0] - OF_THE_UPDATE * n / min(2 * core, bandwidth)
    row = (whole - alone) / (size.B - 1)
    products = min(training_flops(size) / (limits["sgemm"] * 1e9), size.B * row)
    python, _ = measure(build_python, size, n=50)
    return Parts(size.B, row, products, alone - update - row, together - row, python, n, core, bandwidth)


def report(name, size, options):
    """Print the parts of a step, the predictions beside what was measured, and those for many cores."""
    with blas_threads(1):
        parts = measured_parts(size, options.bandwidth * 1e9)
    print(f"{name}: " + ", ".join(f"{key} {short(value)}" for key, value in parts._asdict().items()), flush=True)
    rows = []
    for n_cores in range(1, 1 + min(2, cores())):
        for shards in filter(lambda n: n <= size.B, SHARDS):
            seconds, peak = measure(build_step, size, shards, n_cores)
            predicted = short(1e3 * predict(parts, shards, n_cores))
            rows.append([n_cores, shards, predicted, short(1e3 * seconds), short(peak / 1e6)])
    print_table(["cores", "shards", "predicted ms", "measured ms", "MB"], rows)
    lines = {
        "one shard": lambda cores: 1,
        "a shard for each core": lambda cores: min(cores, size.B),
        "as Trainer chooses": lambda cores: chosen(size, cores),
        "the fastest": lambda cores: best(parts, cores),
    }
    cell = lambda shards, cores: f"{short(1e3 * predict(parts, shards, cores))} ({shards})"
    predicted = [[line, *(cell(of(cores), cores) for cores in CORES)] for line, of in lines.items()]
    print_table(["ms (shards) on … cores", *map(str, CORES)], predicted)
    return {"parts": parts._asdict(), "measured": rows}


def report_memory(name, size, options):
    """Measure the peak memory of n shards on n threads, however many cores there are; each has one row or more."""
    peaks = [
        [n, short(measure(build_step, size._replace(B=max(size.B, n)), n, n, n=1)[1] / 1e6)] for n in options.memory
    ]
    print_table([f"{name}: shards, and threads", "MB"], peaks)
    return {"memory": peaks}


@command
def main(argv=None):
    parser = new_parser(__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=some_of(list(SIZES)), default=["base"], metavar="A,B", help=f"some of {','.join(SIZES)}")
    add("--bandwidth", type=above_zero, default=200.0, help="GB/s that all cores read and write (default: 200)")
    memory = "instead: measure the memory of N shards on N threads"
    add("--memory", type=positives, default=[], metavar="N,M", help=memory)
    add_json(parser)
    options = parser.parse_args(argv)
    figures = {"machine": print_machine(machine())}
    reported = report_memory if options.memory else report
    figures["steps"] = {name: reported(name, SIZES[name], options) for name in options.steps}
    write_json(options.json, figures)


if __name__ == "__main__":
    sys.exit(main())
