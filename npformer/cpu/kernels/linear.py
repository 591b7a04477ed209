"""The linear map: ``reference.linear`` and its backward pass, and the parts of a product for other
kernels.

The products are those of two-dimensional matrices, which BLAS computes fastest, written to memory
that was used before. They are divided among threads by rows; a few rows are for ``cpu/few_rows``.
"""

import numpy as np

from npformer import reference
from npformer.arrays import as_rows
from npformer.cpu.backend import kernel_of, ops, suited
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.few_rows import JIT, WORTH_IT, multiply_few_rows, panels_of, team_for
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.linear_maps import NOTHING, linear_map_of
from npformer.cpu.rows import add_row
from npformer.cpu.sums import add_rows
from npformer.quantized import Quantized
from npformer.runtime.memory import empty
from npformer.runtime.threads import FEW_ROWS, even_slices, in_parts, n_kernel_threads

ROWS_OF_A_PART = 256  # of a product, at least: BLAS copies the other matrix for each part


@kernel_of(reference.linear, as_it_lies="weight")
def linear(x, weight, bias):
    y = empty((*x.shape[:-1], weight.shape[1]), x.dtype)
    map_rows(as_rows(x), weight, NOTHING[x.dtype] if bias is None else bias, as_rows(y))
    return y


@kernel_of(reference.linear_backward, as_it_lies="weight")
def linear_backward(dy, x, weight, bias):
    dx = empty(x.shape, x.dtype)
    dy = as_rows(dy)
    by_rows(_gradient_of_input, (dy, as_rows(dx)), weight)
    dweight, dbias = gradients_of_parameters(as_rows(x), dy, weight)
    return dx, dweight, None if bias is None else dbias


def few_rows_linear(weight, bias, max_rows, n_steps):
    """A linear map for the rows of some steps of decoding, as a function, if its weight is
    ``Quantized`` or copied.

    None if it is neither, or of a dtype without a kernel. The function returns ``NotImplemented``
    for x of another one.
    """
    dtype = weight.dtype
    width = weight.shape[1]
    if dtype not in BLAS or (bias is not None and bias.dtype != dtype):
        return None
    bias = NOTHING[dtype] if bias is None else _suited(bias)
    if isinstance(weight, Quantized):
        integers = np.ascontiguousarray(weight.values.T)
        scale = np.ascontiguousarray(weight.scale.ravel())
        arrays = linear_map_of(dtype, integers, bias, scale=scale)
    else:
        matrix = _as_matrix(_suited(weight))
        [panels] = panels_of([matrix], max_rows, n_steps)
        if not len(panels):
            return None
        arrays = linear_map_of(dtype, matrix, bias, panels=panels)

    def apply(x):
        if x.dtype != dtype:
            return NotImplemented
        y = empty((len(x), width), dtype)
        for part in even_slices(len(x), -(-len(x) // FEW_ROWS)):
            map_few_rows(team_for(dtype, arrays.weight.dtype), x[part], tuple(arrays), y[part])
        return y

    return apply


if JIT:
    ops.hooks["few_rows_linear"] = few_rows_linear


def map_rows(x, weight, bias, y):
    """y = x W + b of rows, or x W if the bias is empty."""
    if n_kernel_threads() and weight.size >= WORTH_IT:
        arrays = linear_map_of(x.dtype, _as_matrix(weight), bias)
        map_few_rows(team_for(x.dtype), x, tuple(arrays), y)
    else:
        by_rows(_map, (x, y), weight, bias)


def by_rows(kernel, matrices, weight, *rest):
    """Call a kernel for all rows of these matrices in parts, each multiplied by the weight.

    It gets some rows of each matrix, the number of the first, the weight for BLAS, and the rest.
    """
    weight_for_blas = _weight_for_blas(weight)

    def work(part):
        kernel(*[matrix[part] for matrix in matrices], part.start, weight_for_blas, *rest)

    in_parts(work, len(matrices[0]), ROWS_OF_A_PART, weight.size)


def gradients_of_parameters(x, dy, weight):
    """(dweight, dbias) of x W + b, given matrices x and dy. A part is some rows of dweight (columns
    if it is wide).
    """
    dweight = empty(weight.shape, x.dtype)
    dbias = np.empty(weight.shape[1], x.dtype)
    blas = BLAS[x.dtype]
    n_rows, n_columns = weight.shape

    def compute_rows(part):
        of_bias = dbias if part.start == 0 else dbias[:0]
        multiply_and_sum(blas, x[:, part], dy, dweight[part], of_bias)

    def compute_columns(part):
        multiply_and_sum(blas, x, dy[:, part], dweight[:, part], dbias[part])

    if n_columns > 2 * n_rows:
        in_parts(compute_columns, n_columns, ROWS_OF_A_PART, x.size)
    else:
        in_parts(compute_rows, n_rows, ROWS_OF_A_PART, dy.size)
    return dweight, dbias


def _suited(x):
    """An array that no kernel was asked for yet, as ``kernel_of`` would pass it."""
    convert = suited(x, as_it_lies=x.ndim > 1)
    return convert(x) if convert else x


def _as_matrix(x):
    """The matrix if BLAS can read it, C-contiguous or Fortran-contiguous, else a copy."""
    return x if x.flags.c_contiguous or x.flags.f_contiguous else np.ascontiguousarray(x)


def _weight_for_blas(weight):
    """A weight as ``multiply_by`` takes it: (``BLAS[dtype]``; the matrix or its transpose,
    C-contiguous; whether it is the transpose).

    So a kernel is not compiled again for the other layout. It is a plain tuple for the reason that
    ``LinearMap`` gives.
    """
    is_transposed = weight.flags.f_contiguous and not weight.flags.c_contiguous
    matrix = weight.T if is_transposed else np.ascontiguousarray(weight)
    return BLAS[weight.dtype], matrix, is_transposed


@kernel
def _map(x, y, first, weight_for_blas, bias):
    multiply_by(x, weight_for_blas, y)
    for i in range(len(y)):
        add_row(bias, y[i])


@kernel
def _gradient_of_input(dy, dx, first, weight_for_blas):
    multiply_by_transposed(dy, weight_for_blas, dx)


@kernel
def multiply_and_sum(blas, x, dy, dweight, dbias):
    """dweight = xᵀ dy, dbias = Σ dy over the rows."""
    multiply(blas, x.T, dy, dweight, False)
    add_rows(dy, dbias)


@inlined
def multiply_by(x, weight_for_blas, y):
    """y = x W."""
    blas, matrix, is_transposed = weight_for_blas
    if is_transposed:
        multiply(blas, x, matrix.T, y, False)
    else:
        multiply(blas, x, matrix, y, False)


@inlined
def multiply_by_transposed(dy, weight_for_blas, dx):
    """dx = dy Wᵀ."""
    blas, matrix, is_transposed = weight_for_blas
    multiply_by(dy, (blas, matrix, not is_transposed), dx)


@inlined
def map_few_rows(team, x, arrays, y):
    """``_map``, shared between the threads of a team, with the arrays of a ``LinearMap``."""
    weight, panels, scale, bias = arrays
    multiply_few_rows(team, x, weight, panels, y)
    for i in range(len(y)):
        for j in range(len(scale)):
            y[i, j] *= scale[j]
        add_row(bias, y[i])
