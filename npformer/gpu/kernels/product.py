"""Matrix products in which an exact 0 annihilates NaN and inf."""

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.launch import for_each_element


@kernel_of(reference.product, as_it_lies="a b")
def product(a, b):
    out = mended_product(*(x.reshape(-1, *x.shape[-2:]) for x in (a, b)))
    return out.reshape(*a.shape[:-1], b.shape[-1])


def mended_product(a, b):
    """(N, n, m) @ (N, m, p) for matrices in any layout, in which an exact 0 annihilates NaN and
    inf.
    """
    out, places = multiply(a, b), (*_with_steps(a), *_with_steps(b))
    for_each_element(
        "product", "mend", out.dtype, out.size, out, *places, out.size, *a.shape[1:], b.shape[2]
    )
    return out


def _with_steps(x):
    """An array and its steps, in elements, from one matrix, row and column to the next."""
    return x, *(step // x.itemsize for step in x.strides)
