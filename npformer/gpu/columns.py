"""Sums over the rows of a matrix, in two steps, so that the whole GPU is used."""

import cupy

from npformer.gpu.launch import cuda_kernel, element_kernel, real

PARTS = 64  # the most partial sums per column, which the second step adds


def sum_columns(dy):
    """Σ dy over the rows of a contiguous (n, D), in the dtype of ``dy``."""
    # sum_columns(dy, sums, n_rows, n_columns)
    [total] = _sum("sum_columns", dy, (dy,), 1)
    return total


def sum_gain_and_bias(dy, x, mean, rstd):
    """Σ dy x̂ and Σ dy over contiguous rows; ``mean`` is None if x̂ is x times rstd."""
    # sum_gain_and_bias(dy, x, mean, rstd, gains, biases, n_rows, n_columns)
    return _sum("sum_gain_and_bias", dy, (dy, x, mean, rstd), 2)


def _sum(name, dy, arrays, n_sums):
    """The sums that a kernel computes of these arrays, in parts, which are added."""
    n_rows, n_columns = dy.shape
    n_parts = min(PARTS, -(-n_rows // 32))
    partial_sums = [cupy.empty((n_parts, n_columns), real(dy.dtype)) for _ in range(n_sums)]
    grid = (-(-n_columns // 32), n_parts)
    kernel = cuda_kernel("columns", name, dy.dtype, grid, (32, 8))
    kernel(*arrays, *partial_sums, n_rows, n_columns)
    totals = [cupy.empty(n_columns, dy.dtype) for _ in range(n_sums)]
    for sums, total in zip(partial_sums, totals, strict=True):
        kernel = element_kernel("columns", "add_parts", dy.dtype, n_columns)
        # add_parts(sums, total, n_parts, n_columns)
        kernel(sums, total, n_parts, n_columns)
    return totals
