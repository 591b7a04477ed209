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
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import numpy as np

from npformer.commands.shared import Reading, command_line, write_json  # needs pip install -e .
from scripts.bench.machine import print_machine
from scripts.bench.memory import peak_bytes
from scripts.bench.options import Positives, some, usually
from scripts.bench.predict_ranks import Network, Step, predict
from scripts.bench.report import print_table, summary
from scripts.bench.steps import (
    LABEL_SMOOTHING,
    LEARNING_RATE,
    SHORT_STEPS,
    SIZES,
    batch_of,
    model_of,
)

from npformer import Adam, Trainer
from npformer.runtime.blas_threads import blas_threads
from npformer.runtime.cores import cores
from npformer.runtime.ranks import world
from npformer.training.ranks import OverRanks

MPIEXEC = Path(sys.executable).with_name("mpiexec")  # the one that mpich of the extra mpi installs
ONE_THREAD = "1 process, 1 thread"
COLUMNS = {
    "median": "ms a step",
    "min": "smallest",
    "max": "largest",
    "waited": "waiting",
    "memory": "MB of a rank",
}

# The settings of this script as a worker, which it starts itself.
Worker = Annotated[dict, Reading(type=json.loads, help=argparse.SUPPRESS)]


@command_line
def main(
    turns: usually(rounds=5, seconds=4.0, quick_seconds=0.4),
    *,
    steps: some(SHORT_STEPS, "some of {}") = "copy,small,base",
    ranks: Positives = "2",
    worker: Worker | None = None,
):
    """Time steps on ranks."""
    if worker:
        print(json.dumps(work(**worker)))  # on ranks, rank 0 alone prints
        return
    facts = print_machine()
    results = {name: report(name, ranks, turns) for name in steps}
    write_json(turns.json, {"machine": facts, "steps": results})


def work(size, seconds, shards=1, rows=1):
    """Make steps for some time, and return what they took."""
    ranks = world()
    size = SIZES[size]
    batch = batch_of(size._replace(B=size.B * rows))
    with blas_threads(1 if ranks.size > 1 else shards):
        trainer = trainer_of(size, max(shards, ranks.size), ranks)
        for _ in range(3):
            trainer.step(*batch)
        times = []
        waited = ranks.seconds_waited
        end = time.perf_counter() + seconds
        while max(ranks.gather(time.perf_counter() < end)):
            start = time.perf_counter()
            trainer.step(*batch)
            times.append(time.perf_counter() - start)
        figures = {
            "step": statistics.median(times),
            "waited": (ranks.seconds_waited - waited) / len(times),
            "memory": max(ranks.gather(peak_bytes())) / 1e6,
            "parameters": trainer.flat_params.size,
        }
        return figures | (messages(trainer, ranks) if ranks.size > 1 else {})


def trainer_of(size, n_shards, ranks):
    settings = {"label_smoothing": LABEL_SMOOTHING, "n_shards": n_shards, "ranks": ranks}
    return Trainer(model_of(size), Adam(LEARNING_RATE), **settings)


def messages(trainer, ranks, turns=9):
    """The median seconds of a step's messages between ranks that do nothing else, and the bytes
    that each receives.
    """
    n_shards = trainer.settings.n_shards
    times = []
    for _ in range(turns):
        ranks.stack(np.zeros(1))  # all begin together
        moments = [time.perf_counter()]
        gradients = OverRanks.sums_of_subtrees(trainer.loss_and_grad, n_shards)
        gradients.exchange.finish()
        moments.append(time.perf_counter())
        trainer.flat_optimizer.share_parameters()
        moments.append(time.perf_counter())
        for _ in range(20):
            ranks.stack(np.zeros(1))
        times.append(np.diff([*moments, time.perf_counter()]))
    exchange, gathering, numbers = np.median(times, axis=0).tolist()
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


def report(name, ranks, turns):
    """Let the contenders take turns, and print a table of medians."""
    contenders = {ONE_THREAD: (1, {"shards": 1})}
    for n in ranks:
        if n <= cores():
            contenders[f"1 process, {n} shards"] = (1, {"shards": n})
        contenders[f"{n} ranks"] = (n, {})
        contenders[f"{n} ranks, {n} × the batch"] = (n, {"rows": n})
    turn = {"size": name, "seconds": turns.seconds}
    runs = {contender: [] for contender in contenders}
    for _ in range(turns.rounds):
        for contender, (n, settings) in contenders.items():
            runs[contender].append(measure(n, turn | settings))
    rows = {contender: row_of(of) for contender, of in runs.items()}
    parameters = runs[ONE_THREAD][0]["parameters"]
    print(f"\n{name}: {parameters:,} parameters; {4e-6 * parameters:.1f} MB of gradients")
    table = []
    for contender, row in rows.items():
        table.append([contender, *(f"{row[column]:.1f}" for column in COLUMNS)])
    print_table(["", *COLUMNS.values()], table)
    tokens = SIZES[name].B * SIZES[name].T
    alone = {n: compare(n, parameters, rows, runs[f"{n} ranks"]) for n in ranks}
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
    if shards := rows.get(f"1 process, {n} shards"):
        ratio = shards["median"] / ours["median"]
        print(f"throughput of {n} ranks / 1 process with {n} shards: {ratio:.3f}")
        less = shards["memory"] - ours["memory"]
        moments = 8e-6 * parameters * (n - 1) / n
        print(f"memory of a rank: {less:.0f} MB less, of which {moments:.0f} MB are Adam's moments")
    one = rows[ONE_THREAD]["median"]
    print(f"strong scaling, {n} ranks: {one / ours['median']:.2f} times the throughput of 1 thread")
    weak = rows[f"{n} ranks, {n} × the batch"]["median"]
    print(f"weak scaling, {n} ranks: {one / weak:.3f} of the throughput per rank")
    alone = {key: median_of(runs, key) for key in ("exchange", "gathering", "one number")}
    times = ", ".join(f"{key} {1000 * seconds:.3g} ms" for key, seconds in alone.items())
    n_bytes = runs[0]["bytes"]
    print(f"each rank receives {n_bytes / 1e6:.1f} MB a step; alone: {times}")
    bandwidth = n_bytes / (alone["exchange"] + alone["gathering"])
    step = Step(one / 1000, n_bytes=4.0 * parameters, n_chunks=runs[0]["chunks"])
    predicted = 1000 * predict(step, Network(alone["one number"], bandwidth), n).step
    times = f"{predicted:.1f} ms a step, measured {weak:.1f}"
    print(f"weak scaling, predicted: {times}", flush=True)
    return alone | {"bytes": n_bytes, "bandwidth": bandwidth, "predicted": predicted}


def measure(n, settings):
    """What the worker prints, with these settings, on n ranks."""
    command = [*mpiexec(n), sys.executable, __file__, "--worker", json.dumps(settings)]
    worker = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(worker.stdout)


def mpiexec(n):
    """The beginning of a command that runs on n ranks; empty for one process."""
    return [str(MPIEXEC), "-n", str(n)] if n > 1 else []


if __name__ == "__main__":
    sys.exit(main())
