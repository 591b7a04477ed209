"""The linear map."""

from npformer import reference
from npformer.gpu.arrays import as_rows, contiguous, size_of, suit
from npformer.gpu.blas import multiply
from npformer.gpu.columns import sum_columns
from npformer.gpu.launch import for_each_element
from npformer.gpu.product import mended_product


def linear(x, weight, bias=None):
    """As ``reference.linear``."""
    if not fits(x, weight, bias):
        return reference.linear(x, weight, bias)
    y = multiply(as_rows(x), weight)
    if bias is not None:
        for_each_element("fused", "add_bias", y.dtype, y.size, y, contiguous(bias), *size_of(y.size, y.shape[1]))
    return y.reshape(*x.shape[:-1], weight.shape[1])


def linear_backward(dy, x, weight, bias=None):
    """As ``reference.linear_backward``."""
    if not fits(x, weight, bias) or not fits_result(dy, x, weight):
        return reference.linear_backward(dy, x, weight, bias)
    dx, dweight, dbias = backward_of_rows(as_rows(dy), x, weight)
    return dx, dweight, None if bias is None else dbias


def backward_of_rows(dy, x, weight):
    """(dx, dweight, dbias) of C-contiguous rows dy (n, D_out)."""
    dx = multiply(dy, weight.T).reshape(x.shape)
    return dx, mended_product(as_rows(x).T, dy), sum_columns(dy)


def fits(x, weight, bias):
    """Whether these are arrays for the kernels, with shapes that go together."""
    arrays = (x, weight) if bias is None else (x, weight, bias)
    if not suit(*arrays) or weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[0]:
        return False
    return bias is None or bias.shape == weight.shape[1:]


def fits_result(y, x, weight):
    """The same for an array shaped like the result."""
    return suit(y, x) and y.shape == (*x.shape[:-1], weight.shape[1])
