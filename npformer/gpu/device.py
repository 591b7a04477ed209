"""The GPU as the device of a backend."""

from typing import get_args

import cupy
import numpy as np

from npformer.gpu.blas import tf32
from npformer.gpu.recording import Recorder
from npformer.operations.host import Host, PrecisionName


class Gpu(Host):
    """The current GPU; all methods are those of ``npformer.operations.host.Host``."""

    precisions = get_args(PrecisionName)
    asynchronous = True

    def asarray(self, x):
        """``x`` as an array on the GPU."""
        return cupy.asarray(x)

    def host_memory(self, n, dtype):
        """Pinned memory: the GPU reads and writes it itself."""
        return np.frombuffer(cupy.cuda.alloc_pinned_memory(n * dtype.itemsize), dtype, n)

    def wait(self):
        """Wait until all kernels have finished. Returns at once during recording, when no kernel
        runs.
        """
        stream = cupy.cuda.get_current_stream()
        if not stream.is_capturing():
            stream.synchronize()

    def tf32(self):
        """``npformer.gpu.blas.tf32``."""
        return tf32()

    def n_parts(self):
        """One: it uses the whole GPU."""
        return 1

    def run_shards(self, work, shards):
        """Process the shards one after another: each uses the whole GPU."""
        return [work(shard) for shard in shards]

    def run_rows(self, work, n, size=1):
        """Process all rows at once."""
        return [work(slice(0, n))]

    def record(self, work, fill_up):
        """A function that records ``work`` and replays it, see ``Recorder``."""
        return Recorder(work, fill_up)
