"""The functions and constants of ``npformer/runtime/host.py``, for the GPU."""

import cupy
import numpy as np

from npformer.arrays import on_host
from npformer.gpu.backend import wait as wait
from npformer.gpu.recording import Recorder
from npformer.runtime.host import EVERY_PRECISION, __all__ as __all__

PRECISIONS = EVERY_PRECISION
asynchronous = True
asarray, to_numpy, record = cupy.asarray, on_host, Recorder


def host_memory(n, dtype):
    """Pinned memory: the GPU reads and writes it itself."""
    return np.frombuffer(cupy.cuda.alloc_pinned_memory(n * dtype.itemsize), dtype, n)


def run_shards(work, shards):
    """Process the shards one after another: each uses the whole GPU."""
    return [work(shard) for shard in shards]


def run_rows(work, n, size=1):
    """Process all rows at once."""
    return [work(slice(0, n))]
