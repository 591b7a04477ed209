"""Compare the speed of two commits: time training steps and decoding of two checkouts, in turns, in one run.

    git worktree add ../before HEAD~10
    python scripts/measure/compare_commits.py ../before .
    python scripts/measure/compare_commits.py ../before . --steps tiny,copy --beams 1 --rounds 9

The sizes are those of ``bench_train.py`` and ``bench_decode.py``. Each checkout runs in its own process, with its own
package and its own scripts. A ratio above 1 means that the second checkout is slower.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from npformer.commands.arguments import above_zero, new_parser, positive  # needs pip install -e .
from npformer.commands.command import command

WORKER = """
import json, sys, time
import bench_decode, bench_train
import npformer
assert npformer.__file__.startswith(sys.argv[1]), npformer.__file__
built = None
for line in sys.stdin:
    *case, seconds = json.loads(line)
    if case != built:
        function, built, (kind, size, detail) = None, case, case  # forget the last one before the next is built
        module = bench_train if kind == "step" else bench_decode
        function = module.build_npformer(module.SIZES[size], *detail, "cpu")
        for _ in range(3):
            function()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    print(json.dumps(sorted(times)[len(times) // 2]), flush=True)
"""


@command
def main(argv=None):
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("checkouts", nargs=2, type=lambda text: str(Path(text).resolve()), help="folders: before, after")
    add("--steps", default="tiny,copy,small,base,long", help="sizes of bench_train.py, or '' for none")
    add("--size", default="base", help="size of bench_decode.py (default: base)")
    add("--batches", default="1,4,8,32", help="batch sizes of bench_decode.py, or '' for none")
    add("--beams", default="1,4", help="beam sizes (default: 1,4)")
    add("--rounds", type=positive, default=7, help="turns of each checkout (default: 7)")
    add("--seconds", type=above_zero, default=2.0, help="seconds per turn (default: 2)")
    options = parser.parse_args(argv)
    cases = [("step", size, []) for size in filter(None, options.steps.split(","))]
    for batch in filter(None, options.batches.split(",")):
        cases += [("decode", options.size, [int(batch), int(beam)]) for beam in options.beams.split(",")]
    workers = [start(checkout) for checkout in options.checkouts]
    print(f"{'':<24} {'before, ms':>12} {'after, ms':>12} {'ratio':>7}   ratios of the turns")
    for case in cases:
        turns = [[timed(worker, case, options.seconds) for worker in workers] for _ in range(options.rounds)]
        before, after = (statistics.median(turn[i] for turn in turns) for i in range(2))
        ratios = sorted(after / before for before, after in turns)
        label = " ".join(map(str, [case[0], case[1], *case[2]]))
        figures = f"{1e3 * before:12.2f} {1e3 * after:12.2f} {statistics.median(ratios):7.3f}"
        print(f"{label:<24} {figures}   {ratios[0]:.2f} ... {ratios[-1]:.2f}", flush=True)


def start(checkout):
    """Start the process of a checkout. The benchmarks of older commits are in scripts itself."""
    folders = [checkout, f"{checkout}/scripts/bench", f"{checkout}/scripts", os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", WORKER, checkout], cwd=checkout, env=environment, **pipes)


def timed(worker, case, seconds):
    print(json.dumps([*case, seconds]), file=worker.stdin, flush=True)
    line = worker.stdout.readline()
    if not line:
        sys.exit(f"{worker.args[-1]}: the worker ended")
    return json.loads(line)


if __name__ == "__main__":
    sys.exit(main())
