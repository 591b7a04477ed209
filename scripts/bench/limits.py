"""The limits of the machine, measured in turns with the contenders: what no step can exceed."""

import statistics
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from timeit import timeit

import numpy as np

from scripts.bench.contenders import Contender, alternate
from scripts.bench.machine import MOSTLY_IDLE, WHEN_BUSY, physical_cores
from scripts.bench.report import short


def limits_contender(sizes):
    """A contender whose step measures the limits once, with matrix products of these sizes."""
    limits = Contender("limits", ("numpy",), build_limits)
    limits.build(sizes)
    return limits


def measure_own_limit(limits, sizes, build):
    """Let ``limits`` also measure the own limit of the step that ``build()`` returns, until this is
    called again.
    """
    limits.build(sizes, build, warm_up=1)


def build_limits(sizes, build=None, copied=2**26):
    """``step`` that measures the limits, with matrix products of these sizes and copies of so many
    numbers.

    It returns the GFLOP/s of NumPy's float32 matrix product on all threads, at the best size
    ("sgemm"), the GB/s that one thread reads and writes ("copy"), or one thread per core
    ("copy_threads"), and those that the product of a matrix and a vector reads ("read"). With
    ``build``, it also returns the limit of the step that ``build()`` returns ("own_limit").
    """
    own_limit = None
    if build:
        from scripts.bench.own_limit import (
            build_own_limit,
        )  # imports numba, which no other contender needs

        own_limit = build_own_limit(build)
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((2, n, n), dtype=np.float32) for n in sizes]
    products = [np.empty((n, n), np.float32) for n in sizes]
    source = np.ones(copied, np.float32)
    target, matrix, vector = (
        np.zeros_like(source),
        source.reshape(2**14, -1),
        np.ones(copied // 2**14, np.float32),
    )
    n_threads = physical_cores()
    parts = list(
        zip(np.array_split(target, n_threads), np.array_split(source, n_threads), strict=True)
    )
    pool = ThreadPoolExecutor(n_threads)

    def step():
        moved = (
            2 * source.nbytes / 1e9
        )  # copied first, as the threads of BLAS keep the cores busy for a while
        copy = moved / timeit(lambda: np.copyto(target, source), number=1)
        copy_threads = moved / timeit(
            lambda: list(pool.map(lambda part: np.copyto(*part), parts)), number=1
        )
        rates = [
            2 * n**3 / timeit(partial(np.matmul, a, b, out=out), number=1) / 1e9
            for n, (a, b), out in zip(sizes, factors, products, strict=True)
        ]
        read = source.nbytes / 1e9 / timeit(lambda: matrix @ vector, number=1)
        found = {"sgemm": max(rates), "copy": copy, "copy_threads": copy_threads, "read": read}
        return found | (
            {"own_limit": own_limit(1e9 * max(copy, copy_threads))} if own_limit else {}
        )

    return step


def alternate_with(limits, contenders, options):
    """Let contenders and ``limits`` take turns: the turns, and the best limits with the cores of
    other programs.

    Of the speed of reading it is the median. ``own_limit`` has the seconds of the limit of a step,
    if ``limits`` measures it, and those of each operation.

    ``limits`` may be None, if no limits are to be measured.
    """
    turns, others = alternate(
        [*contenders, *filter(None, [limits])], options.rounds, options.seconds
    )
    found = {}
    if limits:
        measured = [value for _, value in turns.pop(limits.name)]
        own = [of.pop("own_limit", None) for of in measured][-1]  # each is at most the one before
        if own:
            seconds = sum(of["products"] + of["bytes"] for of in own.values())
            found["own_limit"] = {"seconds": seconds, "operations": own}
        # Memory is faster at one time than at another, and a contender's time is a median, too.
        found["limits"] = best_of(measured) | {
            "read": statistics.median([of["read"] for of in measured])
        }
    return turns, found | {"other_programs_cores": others}


def best_of(measured):
    """The best of each limit."""
    return {name: max(limits[name] for limits in measured) for name in measured[0]}


def print_limits(results, over=max):
    """Print the limits in one line, for comparison with the figures, and a warning if other
    programs were running.
    """
    best = {
        name: short(limit)
        for name, limit in best_of([result["limits"] for result in results]).items()
    }
    print(
        f"best of this run: sgemm {best['sgemm']} GFLOP/s, copy {best['copy']} GB/s by one thread, "
        f"{best['copy_threads']} GB/s by {physical_cores()} (bytes read and written); "
        f"median of reading {best['read']} GB/s"
    )
    others = over([result["other_programs_cores"] for result in results])
    if others > MOSTLY_IDLE:
        print(f"WARNING: other programs used {others:.1f} cores meanwhile: {WHEN_BUSY}")
