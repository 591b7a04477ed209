"""The limits of the machine, measured in turns with the contenders: what no step can exceed."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from timeit import timeit
from typing import NamedTuple

import numpy as np

from scripts.bench.contenders import Contender, alternate
from scripts.bench.machine import MOSTLY_IDLE, WHEN_BUSY, physical_cores
from scripts.bench.report import short


class Limits(NamedTuple):
    """The limits of the machine, which no step can exceed."""

    sgemm: float  # GFLOP/s of NumPy's float32 matrix product, all threads, at the best size
    copy: float  # GB/s read and written, one thread
    copy_threads: float  # the same with one thread per core


def limits_contender(sizes):
    """A contender whose step measures ``Limits`` once, with matrix products of these sizes."""
    limits = Contender("limits", ("numpy",), build_limits)
    limits.build(sizes)
    return limits


def build_limits(sizes, copied=2**26):
    """``step`` that measures the limits, with matrix products of these sizes, and returns them as a tuple.

    The copies are of so many numbers, 256 MB if nothing else is said.
    """
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((2, n, n), dtype=np.float32) for n in sizes]
    products = [np.empty((n, n), np.float32) for n in sizes]
    source = np.ones(copied, np.float32)
    target = np.zeros_like(source)
    n_threads = physical_cores()
    parts = list(zip(np.array_split(target, n_threads), np.array_split(source, n_threads), strict=True))
    pool = ThreadPoolExecutor(n_threads)

    def step():
        rates = [
            2 * n**3 / timeit(partial(np.matmul, a, b, out=out), number=1) / 1e9
            for n, (a, b), out in zip(sizes, factors, products, strict=True)
        ]
        moved = 2 * source.nbytes / 1e9
        copy = moved / timeit(lambda: np.copyto(target, source), number=1)
        copy_threads = moved / timeit(lambda: list(pool.map(lambda part: np.copyto(*part), parts)), number=1)
        return max(rates), copy, copy_threads

    return step


def alternate_with(limits, contenders, options):
    """Let contenders and ``limits`` take turns: the turns, and the conditions, which are ``facts_of``."""
    turns, others = alternate([*contenders, limits], options.rounds, options.seconds)
    return turns, facts_of(turns.pop(limits.name), others)


def facts_of(turns, others):
    """The best limits, and the cores that other programs used, as they stand in every result."""
    limits = Limits(*map(max, zip(*(value for _, value in turns), strict=True)))
    return {"limits": limits._asdict(), "other_programs_cores": others}


def best_of_all(results):
    """The best of each limit over the results."""
    return Limits(*(max(result["limits"][name] for result in results) for name in Limits._fields))


def print_limits(results, over=max):
    """Print the limits in one line, for comparison with the figures, and a warning if other programs were running."""
    limits, others = best_of_all(results), over([result["other_programs_cores"] for result in results])
    print(
        f"best of this run: sgemm {short(limits.sgemm)} GFLOP/s, copy {short(limits.copy)} GB/s with one thread, "
        f"{short(limits.copy_threads)} GB/s with {physical_cores()} (bytes read and bytes written)"
    )
    if others > MOSTLY_IDLE:
        print(f"WARNING: other programs used {others:.1f} cores meanwhile: {WHEN_BUSY}")
