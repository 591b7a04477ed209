"""The GPU backend: which arrays its kernels take, and how other arrays are converted for them."""

import cupy

from npformer.gpu.device import Gpu
from npformer.reference import Ops


def suited(x, as_it_lies):
    """The function that converts an array to a layout the kernels take, or None if it has one."""
    if as_it_lies:
        suits = all(step % x.itemsize == 0 for step in x.strides)
    else:
        suits = x.flags.c_contiguous
    return None if suits else cupy.ascontiguousarray


DTYPES = "float16 bfloat16 float32 float64"
ops = Ops("gpu", cupy.ndarray, device=Gpu(), dtypes=DTYPES, layout="{x}.strides", suited=suited)
kernel_of = ops.kernel_of
