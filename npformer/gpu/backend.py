"""The backend of the kernels on the GPU: which arrays they take, and how others are made to suit."""

import cupy

from npformer.operation import Backend


def suited(x, as_it_lies):
    """What makes the layout of an array suit the kernels, or None."""
    if as_it_lies:
        suits = all(step % x.itemsize == 0 for step in x.strides)
    else:
        suits = x.flags.c_contiguous
    return None if suits else cupy.ascontiguousarray


def wait():
    """Until all kernels have ended; but not while they are recorded, when none has begun."""
    stream = cupy.cuda.get_current_stream()
    if not stream.is_capturing():
        stream.synchronize()


DTYPES = "float16 bfloat16 float32 float64"
backend = Backend("gpu", cupy.ndarray, dtypes=DTYPES, layout="{x}.strides", suited=suited, wait=wait)
kernel_of = backend.kernel_of


def as_rows(x):
    """A contiguous (..., D) as (all the rest, D)."""
    return x.reshape(-1, x.shape[-1])
