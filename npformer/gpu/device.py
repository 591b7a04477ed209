"""What the backend knows of its device: the names of ``npformer/host.py``, for the GPU."""

import cupy

from npformer.arrays import on_host as to_numpy
from npformer.gpu.recording import Recorder as record

__all__ = ["PRECISIONS", "asarray", "asynchronous", "record", "run_rows", "run_shards", "to_numpy"]

PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
asynchronous = True
asarray = cupy.asarray


def run_shards(work, shards):
    """One after the other: each uses the whole GPU."""
    return [work(shard) for shard in shards]


def run_rows(work, n, size=1):
    """All at once."""
    return [work(slice(0, n))]
