"""Matrix products in which an exact 0 annihilates NaN and inf."""

from npformer import reference
from npformer.gpu.arrays import size_of, suit
from npformer.gpu.blas import multiply, multiply_each
from npformer.gpu.launch import for_each_element


def product(a, b):
    """As ``reference.product``."""
    if not suit(a, b) or min(a.ndim, b.ndim) < 2 or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return reference.product(a, b)
    out = mended_product(*(x.reshape(-1, *x.shape[-2:]) for x in (a, b)))
    return out.reshape(*a.shape[:-1], b.shape[-1])


def mended_product(a, b, out=None):
    """(n, m) @ (m, p), or (N, n, m) @ (N, m, p), as ``multiply`` and ``multiply_each``."""
    out = multiply(a, b, out) if a.ndim == 2 else multiply_each(a, b, out)
    sizes = size_of(out.size, *a.shape[-2:], b.shape[-1])
    for_each_element("product", "mend", out.dtype, out.size, out, *_with_all_steps(a), *_with_all_steps(b), *sizes)
    return out


def _with_all_steps(x):
    """An array and its steps from one matrix, row and column to the next."""
    steps = (0,) * (3 - x.ndim) + x.strides
    return x, *size_of(*(step // x.itemsize for step in steps))
