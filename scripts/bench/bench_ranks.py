"""Time training steps on several ranks of MPI against the same steps in one process, in turns.

    python scripts/bench/bench_ranks.py
    python scripts/bench/bench_ranks.py --steps base --ranks 2,4 --rounds 9

Strong scaling: all compute the same batch. Weak scaling: each rank has a batch of the full size.
*Waiting* is the part of a step in which a rank waits for others: for messages, and for ranks that
are slower.

The messages are also timed alone, between ranks that do nothing else: the exchange of the
gradients, the gathering of the parameters, and a message of one number. What predict_ranks.py
predicts from them is printed beside the measured step.
"""

import argparse
import json
import statistics
import sys
import time

import numpy as np

from npformer.commands.shared import (  # needs pip install -e .
    above_zero,
    add_json,
    command,
    new_parser,
    positive,
    write_json,
)
from scripts.bench.machine import machine, print_machine
from scripts.bench.memory import peak_bytes
from scripts.bench.options import positives, some_of
from scripts.bench.predict_ranks import Network, Step, predict
from scripts.bench.report import print_table, summary
from scripts.bench.steps import LABEL_SMOOTHING, LEARNING_RATE, SIZES, batch_of, model_of
from scripts.bench.workers import found_by_worker, mpiexec

from npformer import Adam, Trainer
from npformer.runtime.blas_threads import blas_threads
from npformer.runtime.cores import cores
from npformer.runtime.ranks import world
from npformer.training.ranks import OverRanks


@command
def main(argv=None):
    options = parse_arguments(argv)
    if options.worker:
        print(json.dumps(work(**options.worker)))  # rank 0 alone prints
        return
    facts = print_machine(machine())
    steps = {name: report(name, options) for name in options.steps}
    write_json(options.json, {"machine": facts, "steps": steps})


def work(size, seconds, shards=1, rows=1):
    """Make steps for some time, and return what they took."""
    ranks = world()
    size = SIZES[size]
    batch = batch_of(size._replace(B=size.B * rows))
    with blas_threads(1 if ranks.size > 1 else shards):
        trainer = trainer_of(size, max(shards, ranks.size), ranks)
        for _ in range(3):
            trainer.step(*batch)
        taken = []
        waited = ranks.seconds_waited
        end = time.perf_counter() + seconds
        while max(ranks.gather(time.perf_counter() < end)):
            start = time.perf_counter()
            trainer.step(*batch)
            taken.append(time.perf_counter() - start)
        found = {
            "step": statistics.median(taken),
            "waited": (ranks.seconds_waited - waited) / len(taken),
            "memory": max(ranks.gather(peak_bytes())) / 1e6,
            "parameters": trainer.flat_params.size,
        }
        return found | (messages(trainer, ranks) if ranks.size > 1 else {})


def trainer_of(size, n_shards, ranks):
    settings = {"label_smoothing": LABEL_SMOOTHING, "n_shards": n_shards, "ranks": ranks}
    return Trainer(model_of(size), Adam(LEARNING_RATE), **settings)


def messages(trainer, ranks, turns=9):
    """The median seconds of a step's messages between ranks that do nothing else, and the bytes
    that each receives.
    """
    n_shards = trainer.settings.n_shards
    taken = []
    for _ in range(turns):
        ranks.stack(np.zeros(1))  # all begin together
        moments = [time.perf_counter()]
        tree = OverRanks.tree(trainer.loss_and_grad, n_shards, is_first=True, is_last=True)
        tree.sending.finish()
        moments.append(time.perf_counter())
        trainer.flat_optimizer.share_parameters()
        moments.append(time.perf_counter())
        for _ in range(20):
            ranks.stack(np.zeros(1))
        taken.append(np.diff([*moments, time.perf_counter()]))
    exchange, gathering, numbers = np.median(taken, axis=0).tolist()
    chunks = trainer.flat_optimizer.chunks
    own = sum(chunk.own.stop - chunk.own.start for chunk in chunks)
    # The gradients of its own chunks from each other rank, and the parameters of all others.
    n_received = own * (ranks.size - 1) + trainer.flat_params.size - own
    return {
        "exchange": exchange,
        "gathering": gathering,
        "one number": numbers / 20,
        "bytes": trainer.flat_params.itemsize * n_received,
        "chunks": len(chunks),
    }


def report(name, options):
    """Let the contenders take turns, and print a table of medians."""
    contenders = {"1 process, 1 thread": (1, {"shards": 1})}
    for n in options.ranks:
        if n <= cores():
            contenders[f"1 process, {n} shards"] = (1, {"shards": n})
        contenders[f"{n} ranks"] = (n, {})
        contenders[f"{n} ranks, {n} × the batch"] = (n, {"rows": n})
    turn = {"size": name, "seconds": options.seconds}
    runs = {contender: [] for contender in contenders}
    for _ in range(options.rounds):
        for contender, (n, settings) in contenders.items():
            runs[contender].append(measure(n, turn | settings))
    rows = {contender: row_of(of) for contender, of in runs.items()}
    parameters = runs["1 process, 1 thread"][0]["parameters"]
    print(f"\n{name}: {parameters:,} parameters; {4e-6 * parameters:.1f} MB of gradients")
    columns = ("median", "min", "max", "waited", "memory")
    cells = lambda row: [f"{row[column]:.1f}" for column in columns]
    table = [[contender, *cells(row)] for contender, row in rows.items()]
    print_table(["", "ms a step", "smallest", "largest", "waiting", "MB of a rank"], table)
    tokens = SIZES[name].B * SIZES[name].T
    alone = {n: compare(n, parameters, rows, runs[f"{n} ranks"]) for n in options.ranks}
    return {"parameters": parameters, "tokens": tokens, "contenders": rows, "messages": alone}


def row_of(runs):
    """Milliseconds of a step, and of these waiting, and the memory, of the runs of a contender."""
    row = summary([1000 * run["step"] for run in runs])
    row["waited"] = 1000 * median_of(runs, "waited")
    row["memory"] = median_of(runs, "memory")
    return row


def median_of(runs, key):
    return statistics.median(run[key] for run in runs)


def compare(n, parameters, rows, runs):
    """Print how n ranks scale, and what their messages take."""
    ours = rows[f"{n} ranks"]
    if one := rows.get(f"1 process, {n} shards"):
        ratio = one["median"] / ours["median"]
        print(f"throughput of {n} ranks / 1 process with {n} shards: {ratio:.3f}")
        less = one["memory"] - ours["memory"]
        moments = 8e-6 * parameters * (n - 1) / n
        print(f"memory of a rank: {less:.0f} MB less, of which {moments:.0f} MB are Adam's moments")
    one = rows["1 process, 1 thread"]
    ratio = one["median"] / ours["median"]
    print(f"strong scaling, {n} ranks: {ratio:.2f} times the throughput of 1 thread")
    weak = rows[f"{n} ranks, {n} × the batch"]
    ratio = one["median"] / weak["median"]
    print(f"weak scaling, {n} ranks: {ratio:.3f} of the throughput per rank")
    alone = {key: median_of(runs, key) for key in ("exchange", "gathering", "one number")}
    times = ", ".join(f"{key} {1000 * seconds:.3g} ms" for key, seconds in alone.items())
    n_bytes = runs[0]["bytes"]
    print(f"each rank receives {n_bytes / 1e6:.1f} MB a step; alone: {times}")
    bandwidth = n_bytes / (alone["exchange"] + alone["gathering"])
    step = Step(one["median"] / 1000, n_bytes=4.0 * parameters, n_chunks=runs[0]["chunks"])
    predicted = 1000 * predict(step, Network(alone["one number"], bandwidth), n).step
    times = f"{predicted:.1f} ms a step, measured {weak['median']:.1f}"
    print(f"weak scaling, predicted: {times}", flush=True)
    facts = {"bytes": n_bytes, "bandwidth": bandwidth, "predicted": predicted}
    return alone | facts


def measure(n, settings):
    """Run the worker on n ranks."""
    return found_by_worker([*mpiexec(n), sys.executable, __file__], settings)


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    add = parser.add_argument
    sizes = [name for name in SIZES if name != "long"]
    add(
        "--steps",
        type=some_of(sizes),
        default=["copy", "small", "base"],
        metavar="A,B",
        help=f"some of {sizes}",
    )
    add("--ranks", type=positives, default=[2], metavar="N,M")
    add("--rounds", type=positive, default=5, help="turns of each contender (default: 5)")
    add("--seconds", type=above_zero, default=4.0, help="of each turn (default: 4)")
    add_json(parser)
    add("--worker", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
