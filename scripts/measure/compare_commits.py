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

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from npformer.commands.shared import (  # needs pip install -e .
    above_zero,
    add_json,
    command,
    new_parser,
    positive,
    write_json,
)
from scripts.bench.machine import machine, print_machine

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


@command
def main(argv=None):
    options = parse_arguments(argv)
    facts = print_machine(machine())
    print(f"{'milliseconds':<20} {NAMES[0]:>24} {NAMES[1]:>24} {'ratio':>7}")
    cases = {}
    for kind, size, detail in cases_of(options):
        label = " ".join(map(str, [kind, size, *detail]))
        seconds = times_of_processes((kind, size, detail), options)
        before, after = map(statistics.median, seconds.values())
        cases[label] = {"seconds": seconds, "ratio": after / before}
        cells = " ".join(f"{median_and_range(seconds[name]):>24}" for name in NAMES)
        print(f"{label:<20} {cells} {after / before:7.3f}", flush=True)
    write_json(options.json, {"machine": facts, "cases": cases})


def cases_of(options):
    """(kind, name of a size, the other arguments of what builds it) of each case."""
    steps = [("step", size, []) for size in options.steps.split(",") if size]
    settings = [(b, n) for b in options.batches.split(",") if b for n in options.beams.split(",")]
    return steps + [("decode", options.size, [int(batch), int(beam)]) for batch, beam in settings]


def times_of_processes(case, options):
    """The seconds of a call of a case in each process, for both checkouts."""
    checkouts = dict(zip(NAMES, options.checkouts, strict=True))
    for checkout in checkouts.values():
        timed(checkout, case, 0)  # which may compile kernels
    seconds = {name: [] for name in NAMES}
    for i in range(options.processes):
        for name in NAMES if i % 2 == 0 else reversed(NAMES):
            seconds[name].append(timed(checkouts[name], case, options.seconds))
    return seconds


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
    median, low, high = (1e3 * of(seconds) for of in (statistics.median, min, max))
    return f"{median:.2f} ({low:.2f} … {high:.2f})"


def parse_arguments(argv):
    parser = new_parser(__doc__)
    add = parser.add_argument
    folder = lambda text: str(Path(text).resolve())
    add("checkouts", nargs=2, type=folder, help="folders: before, after")
    sizes = "tiny,copy,small,base,long"
    add("--steps", default=sizes, help="sizes of bench_train.py, or '' for none (default: all)")
    add("--size", default="base", help="size of bench_decode.py (default: base)")
    add("--batches", default="1,4,8,32", help="batch sizes of bench_decode.py, or '' for none")
    add("--beams", default="1,4", help="beam sizes (default: 1,4)")
    add("--processes", type=positive, default=5, help="of each checkout and case (default: 5)")
    add("--seconds", type=above_zero, default=2.0, help="of each process (default: 2)")
    add_json(parser)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
