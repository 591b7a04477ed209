"""What a backend knows of the device that it computes on; here, the processor.

Each backend module has these names: ``npformer.reference`` and ``npformer.cpu`` have those of this file,
``npformer.gpu`` has those of ``npformer/gpu/device.py``. Everything else is written for any device.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from npformer.arrays import Array, on_host
from npformer.threads import FEW_ROWS, in_parallel, kernel_threads, n_threads

__all__ = ["PRECISIONS", "asarray", "asynchronous", "record", "run_rows", "run_shards", "to_numpy"]

EVERY_PRECISION = ("float32", "tf32", "bfloat16", "float16")  # that some device has
PRECISIONS = EVERY_PRECISION[:1]  # in which a step can be computed here, see ``Trainer``
asynchronous = False  # whether the processor is free while operations compute


def asarray(x: Any) -> Array:
    """An array where the operations of the backend take it."""
    return np.asarray(x)


def to_numpy(x: Array) -> np.ndarray:
    """An array in the memory of the processor."""
    return on_host(x)


def run_shards(work: Callable, shards: Sequence) -> list:
    """``[work(shard) for shard in shards]``, side by side on the threads of the processor."""
    return in_parallel(work, shards)


def run_rows(work: Callable[[slice], Any], n: int, size: int = 1) -> list:
    """What ``work`` gives for slices of ``n`` things, each of ``size`` rows of a matrix product.

    Few rows are one slice, whose matrix products the threads share. More are a slice for each thread.
    """
    if n * size <= FEW_ROWS:
        with kernel_threads():
            return [work(slice(0, n))]
    edges = [n * i // n_threads() for i in range(n_threads() + 1)]
    return in_parallel(work, [slice(first, last) for first, last in pairwise(edges) if first < last])


def record(work: Callable, fill_up: Callable) -> Callable:
    """``work`` itself: calling it again costs nothing that a recording would save."""
    return work
