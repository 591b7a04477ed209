"""Matrix products in which an exact 0 annihilates NaN and inf: ``reference.product``.

cuBLAS computes them, and a kernel computes the entries anew that are NaN or inf.
"""

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.launch import element_kernel, with_steps


@kernel_of(reference.product, as_it_lies="a b")
def product(a, b):
    out = mended_product(matrices_of(a), matrices_of(b))
    return out.reshape(*a.shape[:-1], b.shape[-1])


def matrices_of(x):
    """(..., n, m) as (N, n, m)."""
    return x.reshape(-1, *x.shape[-2:])


def mended_product(a, b):
    """(N, n, m) @ (N, m, p) for matrices in any layout, in which an exact 0 annihilates NaN and
    inf.
    """
    _, n, m = a.shape
    p = b.shape[2]
    out = multiply(a, b)
    kernel = element_kernel("product", "mend", out.dtype, out.size)
    # mend(out, a, a_matrix, a_row, a_column, b, b_matrix, b_row, b_column, size, n, m, p)
    kernel(out, *with_steps(a), *with_steps(b), out.size, n, m, p)
    return out
