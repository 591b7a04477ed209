"""The limits of the machine, measured in turns with the contenders: what no step can exceed."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from timeit import timeit

import numpy as np

from scripts.bench.contenders import Contender
from scripts.bench.machine import MOSTLY_IDLE, WHEN_BUSY, physical_cores
from scripts.bench.report import print_figures, short


class Limits(Contender):
    """A contender whose step measures the limits once, with matrix products of these sizes."""

    def __init__(self, sizes):
        super().__init__("limits", ("numpy",), build_limits)
        self.sizes = sizes
        self.build(sizes)

    def measure_own(self, build):
        """Also measure the own limit of the step that ``build()`` returns, until this is called
        again.
        """
        self.build(self.sizes, build, warm_up=1)


def build_limits(sizes, build=None, copied=2**26):
    """``step`` that measures the limits, with matrix products of these sizes and copies of so many
    numbers.

    It returns the GFLOP/s of NumPy's float32 matrix product on all threads, at the best size
    ("sgemm"), the GB/s that one thread reads and writes ("copy"), or one thread per core
    ("copy_threads"), and those that the product of a matrix and a vector reads ("read"). With
    ``build``, it also returns the limit of the step that ``build()`` returns ("own_limit").
    """
    own_limit = None
    if build:  # own_limit.py imports numba, which no other contender needs
        from scripts.bench.own_limit import build_own_limit

        own_limit = build_own_limit(build)
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((2, n, n), dtype=np.float32) for n in sizes]
    products = [np.empty((n, n), np.float32) for n in sizes]
    source = np.ones(copied, np.float32)
    target = np.zeros(copied, np.float32)
    matrix = source.reshape(2**14, -1)
    vector = np.ones(copied // 2**14, np.float32)
    n_threads = physical_cores()
    pool = ThreadPoolExecutor(n_threads)
    parts = np.array_split(target, n_threads), np.array_split(source, n_threads)

    def step():
        # Copied first, as the threads of BLAS keep the cores busy for a while.
        copy = 2 * speed(source.nbytes, np.copyto, target, source)
        copy_threads = 2 * speed(source.nbytes, lambda: list(pool.map(np.copyto, *parts)))
        sgemm = max(
            speed(2 * n**3, partial(np.matmul, a, b, out=out))
            for n, (a, b), out in zip(sizes, factors, products, strict=True)
        )
        read = speed(source.nbytes, np.matmul, matrix, vector)
        speeds = {"sgemm": sgemm, "copy": copy, "copy_threads": copy_threads, "read": read}
        if own_limit:
            speeds["own_limit"] = own_limit(1e9 * max(copy, copy_threads))
        return speeds

    return step


def speed(amount, function, *arguments):
    """How many thousand millions of something a call does in a second."""
    return amount / timeit(partial(function, *arguments), number=1) / 1e9


def best_of(measured):
    """The best of each limit."""
    return {name: max(limits[name] for limits in measured) for name in measured[0]}


def print_results(results, columns, over=max):
    """Print the figures of all contenders, and the limits."""
    print_figures(results, columns)
    print_limits(results, over)


def print_limits(results, over=max):
    """Print the limits in one line, for comparison with the figures, and a warning if other
    programs were running.
    """
    best = best_of([result["limits"] for result in results])
    best = {name: short(limit) for name, limit in best.items()}
    print(
        f"best of this run: sgemm {best['sgemm']} GFLOP/s, copy {best['copy']} GB/s by one thread, "
        f"{best['copy_threads']} GB/s by {physical_cores()} (bytes read and written); "
        f"median of reading {best['read']} GB/s"
    )
    others = over([result["other_programs_cores"] for result in results])
    if others > MOSTLY_IDLE:
        print(f"WARNING: other programs used {others:.1f} cores meanwhile: {WHEN_BUSY}")
