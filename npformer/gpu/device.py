"""The functions and constants of ``npformer/host.py``, for the GPU."""

import cupy

from npformer.arrays import on_host
from npformer.gpu.recording import Recorder
from npformer.host import EVERY_PRECISION
from npformer.host import __all__ as __all__

PRECISIONS = EVERY_PRECISION
asynchronous = True
asarray, to_numpy, record = cupy.asarray, on_host, Recorder


def run_shards(work, shards):
    """Process the shards one after another: each uses the whole GPU."""
    return [work(shard) for shard in shards]


def run_rows(work, n, size=1):
    """Process all rows at once."""
    return [work(slice(0, n))]
