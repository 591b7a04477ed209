"""The GPU backend: which arrays its kernels take, and how other arrays are converted for them."""

import cupy

from npformer.operations.backend import Backend


def suited(x, as_it_lies):
    """The function that converts an array to a layout the kernels take, or None if it has one."""
    if as_it_lies:
        suits = all(step % x.itemsize == 0 for step in x.strides)
    else:
        suits = x.flags.c_contiguous
    return None if suits else cupy.ascontiguousarray


def wait():
    """Wait until all kernels have finished. Returns at once during recording, when no kernel runs."""
    stream = cupy.cuda.get_current_stream()
    if not stream.is_capturing():
        stream.synchronize()


DTYPES = "float16 bfloat16 float32 float64"
backend = Backend("gpu", cupy.ndarray, dtypes=DTYPES, layout="{x}.strides", suited=suited, wait=wait)
kernel_of = backend.kernel_of


def as_rows(x):
    """A contiguous (..., D) reshaped to (n, D)."""
    return x.reshape(-1, x.shape[-1])
