"""The device of a backend, and how work is divided on it; in this file, the device is the CPU."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from npformer.arrays import Array
from npformer.runtime.interrupts import deferred_interrupts
from npformer.runtime.threads import FEW_ROWS, even_slices, in_parallel, kernel_threads, n_threads

PrecisionName = Literal["float32", "tf32", "bfloat16", "float16"]  # of training steps
ROWS_OF_A_SLICE = 512  # of ``run_rows``, which divides fewer rows by 2


def n_slices(n_rows: int) -> int:
    """Into how many slices ``run_rows`` divides more than a few rows.

    >>> n_slices(65), n_slices(4096)
    (2, 8)
    """
    return max(2, n_rows // ROWS_OF_A_SLICE)


class Host:
    """The CPU. ``npformer.gpu.device.Gpu`` has the same for a GPU.

    All code outside of the backends is independent of the device.
    """

    precisions: tuple[str, ...] = ("float32",)  # of training steps that it can compute
    asynchronous = False  # whether operations return before their results are computed

    def asarray(self, x: Any) -> Array:
        """``x`` as an array on the device."""
        return np.asarray(x)

    def host_memory(self, n: int, dtype: np.dtype) -> np.ndarray:
        """An array of n numbers in host memory, which the device copies as fast as it can."""
        return np.empty(n, dtype)

    def wait(self) -> None:
        """Wait until all operations have computed their results."""

    def tf32(self) -> contextlib.AbstractContextManager:
        """Inside, the factors of products are rounded to 11 significant bits, if that is faster."""
        return contextlib.nullcontext()

    def n_parts(self) -> int:
        """How many shards ``run_shards`` computes at once."""
        return n_threads()

    def run_shards(self, work: Callable, shards: Sequence) -> list:
        """``[work(shard) for shard in shards]``, in parallel, each shard on one thread."""
        return in_parallel(work, shards)

    def run_rows(self, work: Callable[[slice], Any], n: int, size: int = 1) -> list:
        """The results of ``work`` for slices of ``n`` items.

        Each item is ``size`` rows of a matrix product.

        If there are few rows, they are one slice, and the threads share its matrix products.
        Otherwise a slice is a part for a thread.
        """
        if n * size <= FEW_ROWS:
            with deferred_interrupts(), kernel_threads():
                return [work(slice(0, n))]
        slices = even_slices(n, min(n, n_slices(n * size)))
        if len(slices) == 1:  # a single long text, whose products are divided instead
            return [work(slices[0])]
        return in_parallel(work, slices)

    def record(self, work: Callable, fill_up: Callable) -> Callable:
        """Return ``work`` itself: on the CPU, a recording would save no time."""
        return work


HOST = Host()
