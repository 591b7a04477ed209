"""The linear map: ``reference.linear`` and its backward pass, by the products of cuBLAS."""

from npformer import reference
from npformer.arrays import as_rows
from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.columns import sum_columns
from npformer.gpu.kernels.dropout import add_bias_drop_residual


@kernel_of(reference.linear, as_it_lies="weight")
def linear(x, weight, bias):
    y = multiply(as_rows(x), weight)
    if bias is not None:
        add_bias(y, bias)
    return y.reshape(*x.shape[:-1], y.shape[1])


def add_bias(y, bias):
    """y += bias, in place."""
    add_bias_drop_residual(y, bias, None, y, 0.0, None)


@kernel_of(reference.linear_backward, as_it_lies="weight")
def linear_backward(dy, x, weight, bias):
    return backward_of_rows(as_rows(dy), x, weight, bias)


def backward_of_rows(dy, x, weight, bias):
    """(dx, dweight, dbias) for dy as rows (n, D_out)."""
    dx = multiply(dy, weight.T).reshape(x.shape)
    dweight = multiply(as_rows(x).T, dy)
    dbias = None if bias is None else sum_columns(dy)
    return dx, dweight, dbias
