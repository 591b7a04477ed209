"""Compare the speed of two commits: training steps and decoding of two checkouts, in turns.

    git worktree add ../before HEAD~10
    python scripts/measure/compare_commits.py ../before .
    python scripts/measure/compare_commits.py ../before . --steps tiny --batches "" --processes 9

The sizes are those of ``bench_train.py`` and ``bench_decode.py``. Where the memory of a process
happens to lie decides about its speed, by up to a seventh, as long as it lives. So each case is
timed in several processes of each checkout, which take turns, each with the package and the scripts
of its checkout. The time of a process is the median of its calls, and that of a checkout the median
of its processes, with the fastest and the slowest of them. Above a ratio of 1 the second checkout
is slower; where the two ranges overlap, that may be chance.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from npformer.commands.shared import (  # needs pip install -e .
    JsonFile,
    Positive,
    Reading,
    command_line,
    positive,
    write_json,
)
from scripts.bench.machine import print_machine
from scripts.bench.options import AboveZero

NAMES = ("before", "after")
WORKER = """
import json, sys, time
import bench_decode, bench_train
import npformer
checkout, kind, size, detail, seconds = json.loads(sys.argv[1])
assert npformer.__file__.startswith(checkout), npformer.__file__
module = bench_train if kind == "step" else bench_decode
call = module.build_npformer(module.SIZES[size], *detail, "cpu")
for _ in range(3):
    call()
times, end = [], time.perf_counter() + seconds
while len(times) < 3 or time.perf_counter() < end:
    start = time.perf_counter()
    call()
    times.append(time.perf_counter() - start)
print(json.dumps(sorted(times)[len(times) // 2]))
"""


def folder(text):
    """The type of an argument that is a checkout."""
    return str(Path(text).resolve())


def words(text):
    """The type of an option that is words between commas; '' is none."""
    return [word for word in text.split(",") if word]


def positives(text):
    """The type of an option that is positive numbers between commas; '' is none."""
    return [positive(word) for word in words(text)]


Folder = Annotated[str, Reading(type=folder)]
Some = Annotated[list, Reading(type=words, metavar="A,B")]
Positives = Annotated[list, Reading(type=positives, metavar="N,M")]


@command_line
def main(
    before: Folder,
    after: Folder,
    *,
    steps: Some = "tiny,copy,small,base,long",
    size: str = "base",
    batches: Positives = "1,4,8,32",
    beams: Positives = "1,4",
    processes: Positive = 5,
    seconds: AboveZero = 2.0,
    json: JsonFile | None = None,
):
    """Compare two commits.

    Parameters
    ----------
    before : DIR
        a checkout
    after : DIR
        another one
    steps
        sizes of bench_train.py, or '' for none
    size
        of bench_decode.py
    batches
        batch sizes of bench_decode.py, or '' for none
    beams
        beam sizes
    processes
        of each checkout and case
    seconds
        of each process
    """
    facts = print_machine()
    print(f"{'milliseconds':<20} {NAMES[0]:>24} {NAMES[1]:>24} {'ratio':>7}")
    # The kind, the name of a size, and the other arguments of what builds it.
    cases = [("step", step, ()) for step in steps]
    cases += [("decode", size, setting) for setting in itertools.product(batches, beams)]
    figures = {}
    for case in cases:
        kind, name, detail = case
        label = " ".join(map(str, [kind, name, *detail]))
        times = times_of_processes([before, after], case, processes, seconds)
        medians = [statistics.median(of) for of in times.values()]
        ratio = medians[1] / medians[0]
        figures[label] = {"seconds": times, "ratio": ratio}
        cells = " ".join(f"{median_and_range(of):>24}" for of in times.values())
        print(f"{label:<20} {cells} {ratio:7.3f}", flush=True)
    write_json(json, {"machine": facts, "cases": figures})


def times_of_processes(checkouts, case, n, seconds):
    """The seconds of a call of a case in n processes of each checkout."""
    for checkout in checkouts:
        timed(checkout, case, 0)  # which may compile kernels
    times = {name: [] for name in NAMES}
    turn = list(zip(NAMES, checkouts, strict=True))
    for _ in range(n):
        for name, checkout in turn:
            times[name].append(timed(checkout, case, seconds))
        turn.reverse()
    return times


def timed(checkout, case, seconds):
    """The median seconds of a call in a new process, which calls for so many seconds."""
    # The benchmarks of older commits are in scripts itself.
    paths = [checkout, f"{checkout}/scripts/bench", f"{checkout}/scripts"]
    paths.append(os.environ.get("PYTHONPATH", ""))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    worker = [sys.executable, "-c", WORKER, json.dumps([checkout, *case, seconds])]
    done = subprocess.run(worker, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{checkout}, {case}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def median_and_range(seconds):
    """Milliseconds: the median, and from the smallest to the largest."""
    median = 1e3 * statistics.median(seconds)
    low = 1e3 * min(seconds)
    high = 1e3 * max(seconds)
    return f"{median:.2f} ({low:.2f} … {high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
