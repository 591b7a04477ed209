"""Where the time of a training step goes: each operation beside its own limit.

python scripts/bench/bench_limits.py                # tiny, copy, small, base and long: minutes
python scripts/bench/bench_limits.py --steps long --rounds 9
python scripts/bench/bench_limits.py --quick        # tiny only

The line above a table has the median of the rounds and the fastest of them. The limit is made of
the best times of single products in this run: on a machine that others use, the median is further
from it by noise alone, and the share of the fastest round says more of npformer. The table is of
medians.

The time of an operation is that of its calls in a step, by ``npformer.explain()``. While shards are
computed side by side, each call counts as its part of a core's time. Its own limit is explained in
own_limit.py: its products at the best time of this run, and its bytes. What a step does outside of
operations is Python, NumPy between the operations, and waiting.
"""

import statistics
import sys
import time
from collections import defaultdict
from functools import partial

from scripts.bench.benchmark import benchmark  # needs pip install -e .
from scripts.bench.contenders import alternate, build_all, started
from scripts.bench.limits import Limits, print_limits
from scripts.bench.machine import physical_cores
from scripts.bench.options import some, usually
from scripts.bench.report import percent, print_table, short
from scripts.bench.steps import SIZES, build_npformer
from scripts.bench.turns import limits_of

import npformer as nf

HEADER = ["", "calls", "ms", "products, ms", "bytes, ms", "above its limit", "of the step"]


@benchmark()
def main(turns: usually(rounds=7, seconds=1.0, quick_seconds=0.1), *, steps: some(SIZES) = None):
    """Measure where the time of steps goes.

    Parameters
    ----------
    quick
        tiny, 3 short rounds
    """
    names = steps or (["tiny"] if turns.quick else SIZES)
    with Limits(turns.sgemm_sizes) as limits:
        return {"steps": {name: report_step(name, limits, turns) for name in names}}


def report_step(name, limits, turns):
    """Measure a step, and print where its time goes."""
    build = partial(build_npformer, SIZES[name], "cpu")
    with started([("npformer", ("npformer.cpu",), partial(build_watched, build))]) as contenders:
        if not build_all(contenders, warm_up=1):
            sys.exit(f"{name}: the step does not run")
        limits.measure_own(build)
        times, others = alternate([*contenders, limits], turns)
    facts = limits_of(value for _, value in times[limits.name])
    watched = [value for _, value in times["npformer"]]
    result = facts | divided(watched, facts["own_limit"]) | {"other_programs_cores": others}
    print_step(name, result)
    print_limits([result])
    print(flush=True)
    return result


def build_watched(build):
    """``step`` that makes one step to time it, and one to see where its time goes."""
    step = build()

    def watched():
        start, start_of_processor = time.perf_counter(), time.process_time()
        step()
        wall, processor = time.perf_counter() - start, time.process_time() - start_of_processor
        with nf.explain() as calls:  # which takes a little time itself
            step()
        seconds, n_calls = defaultdict(float), defaultdict(int)
        for call in calls:
            seconds[call.operation] += call.seconds
            n_calls[call.operation] += 1
        return {
            "wall": wall,
            "processor": processor,
            "seconds": dict(seconds),
            "calls": dict(n_calls),
        }

    return watched


def divided(watched, own_limit):
    """The medians of a step, and of each of its operations, with their limits."""
    walls = [of["wall"] for of in watched]
    cores = statistics.median(of["processor"] / of["wall"] for of in watched)
    operations = {}
    for name, limit in own_limit["operations"].items():
        n_calls = watched[0]["calls"].get(name, 0)
        at_once = min(max(1, n_calls // limit["calls"]), physical_cores())
        seconds = statistics.median(of["seconds"].get(name, 0.0) for of in watched) / at_once
        operations[name] = limit | {"calls": n_calls, "seconds": seconds}
    seconds = {"seconds": statistics.median(walls), "fastest": min(walls)}
    return seconds | {"cores": cores, "operations": operations}


def print_step(name, result):
    """Print a line for each operation, those first that are furthest above their limit."""
    step = result["seconds"]
    rows = []
    for operation, of in result["operations"].items():
        above = of["seconds"] - of["products"] - of["bytes"]
        times = [short(1e3 * of[part]) for part in ("seconds", "products", "bytes")]
        rows.append((above, [operation, of["calls"], *times, short(1e3 * above)]))
    inside = sum(of["seconds"] for of in result["operations"].values())
    outside = step - inside
    rows.append((outside, ["outside of operations", "", short(1e3 * outside), "", "", ""]))
    rows.sort(key=lambda row: row[0], reverse=True)
    limit = result["own_limit"]["seconds"]
    fastest = result["fastest"]
    print(
        f"{name}: {short(1e3 * step)} ms, {percent(limit / step)} of its own limit; "
        f"fastest {short(1e3 * fastest)} ms, {percent(limit / fastest)}; "
        f"{result['cores']:.2f} cores"
    )
    print_table(HEADER, [[*row, percent(above / step)] for above, row in rows])


if __name__ == "__main__":
    sys.exit(main())
