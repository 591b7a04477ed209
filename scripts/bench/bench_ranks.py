"""Time training steps on several ranks of MPI against the same steps in one process, in turns.

    python scripts/bench/bench_ranks.py
    python scripts/bench/bench_ranks.py --steps base --ranks 2,4 --rounds 9

Strong scaling: all compute the same batch. Weak scaling: each rank has a batch of the full size. *Waiting* is the part
of a step in which a rank waits for others, with the gradients sent while the backward pass computes ("waiting") or
all at its end ("at the end").
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where command.py is
from arguments import above_zero, positive, positives, some_of
from bench_train import LABEL_SMOOTHING, LEARNING_RATE, SIZES, batch_of, model_of
from benchmarking import machine, print_table, summary
from command import command
from on_ranks import mpiexec
from output import output_file, write_json

from npformer import Adam, Trainer
from npformer.ranks import world
from npformer.threads import blas_threads, cores


@command
def main(argv=None):
    options = parse_arguments(argv)
    if options.worker:
        work(**json.loads(options.worker))
        return
    figures = {"machine": machine(), "steps": {}}
    for name in options.steps:
        figures["steps"][name] = report(name, options)
    if options.json:
        write_json(options.json, figures)


def work(size, seconds, shards, rows, at_end):
    """Make steps for some time, and print how long each took."""
    ranks, size = world(), SIZES[size]
    src, tgt = batch_of(size._replace(B=size.B * rows))
    settings = {"label_smoothing": LABEL_SMOOTHING, "n_shards": max(shards, ranks.size), "ranks": ranks}
    with blas_threads(1 if ranks.size > 1 else shards):
        trainer = Trainer(model_of(size), Adam(LEARNING_RATE), **settings)
        if at_end:
            trainer.sums.reports = False
        for _ in range(3):
            trainer.step(src, tgt)
        taken, waited, end = [], ranks.seconds_waited, time.perf_counter() + seconds
        while max(ranks.gather(time.perf_counter() < end)):
            start = time.perf_counter()
            trainer.step(src, tgt)
            taken.append(time.perf_counter() - start)
    if ranks.is_first:
        waited = (ranks.seconds_waited - waited) / len(taken)
        print(json.dumps({"step": statistics.median(taken), "waited": waited, "parameters": trainer.flat_params.size}))


def report(name, options):
    """Let the contenders take turns, and print a table of medians."""
    contenders = {"1 process, 1 thread": (1, {"shards": 1})}
    for n in options.ranks:
        if n <= cores():
            contenders[f"1 process, {n} shards"] = (1, {"shards": n})
        contenders[f"{n} ranks"] = (n, {})
        contenders[f"{n} ranks, at the end"] = (n, {"at_end": True})
        contenders[f"{n} ranks, {n} × the batch"] = (n, {"rows": n})
    measured = {contender: [] for contender in contenders}
    for _ in range(options.rounds):
        for contender, (n, settings) in contenders.items():
            measured[contender].append(measure(n, {"size": name, "seconds": options.seconds} | settings))
    rows = {
        contender: summary([1000 * run["step"] for run in runs])
        | {"waited": 1000 * statistics.median(run["waited"] for run in runs)}
        for contender, runs in measured.items()
    }
    parameters = measured["1 process, 1 thread"][0]["parameters"]
    print(f"\n{name}: {parameters:,} parameters; {4e-6 * parameters:.1f} MB of gradients")
    columns = "median", "min", "max", "waited"
    table = [[contender, *(f"{row[column]:.1f}" for column in columns)] for contender, row in rows.items()]
    print_table(["", "ms a step", "smallest", "largest", "waiting"], table)
    for n in options.ranks:
        ours = rows[f"{n} ranks"]["median"]
        if one := rows.get(f"1 process, {n} shards"):
            print(f"throughput of {n} ranks / 1 process with {n} shards: {one['median'] / ours:.3f}")
        weak = rows["1 process, 1 thread"]["median"] / rows[f"{n} ranks, {n} × the batch"]["median"]
        print(f"weak scaling, {n} ranks: {weak:.3f} of the throughput per rank")
    return {"parameters": parameters, "contenders": rows}


def measure(n, settings):
    """Run the worker on n ranks."""
    settings = {"shards": 1, "rows": 1, "at_end": False} | settings
    command = [*mpiexec(n), sys.executable, __file__, "--worker", json.dumps(settings)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    sizes = [name for name in SIZES if name != "long"]
    add("--steps", type=some_of(sizes), default=["copy", "small", "base"], metavar="A,B", help=f"some of {sizes}")
    add("--ranks", type=positives, default=[2], metavar="N,M")
    add("--rounds", type=positive, default=5, help="turns of each contender (default: 5)")
    add("--seconds", type=above_zero, default=4.0, help="of each turn (default: 4)")
    add("--json", type=output_file, metavar="FILE", help="write the figures to FILE")
    add("--worker", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
