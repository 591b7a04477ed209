"""Sums over the rows of a matrix, in two steps, so that the whole GPU is used."""

import cupy

from npformer.gpu.launch import for_each_element, launch, real

PARTS = 64  # the most partial sums per column, which the second step adds


def sum_columns(dy):
    """Σ dy over the rows of a contiguous (n, D), in the dtype of ``dy``."""
    [total] = _sum("sum_columns", dy, (dy,), 1)
    return total


def sum_gain_and_bias(dy, x, mean, rstd):
    """Σ dy x̂ and Σ dy over contiguous rows; ``mean`` is None if x̂ is x times rstd."""
    return _sum("sum_gain_and_bias", dy, (dy, x, mean, rstd), 2)


def _sum(name, dy, arrays, n_sums):
    n_rows, n_columns = dy.shape
    parts = min(PARTS, -(-n_rows // 32))
    sums = [cupy.empty((parts, n_columns), real(dy.dtype)) for _ in range(n_sums)]
    grid = -(-n_columns // 32), parts
    launch("columns", name, dy.dtype, grid, (32, 8), *arrays, *sums, n_rows, n_columns)
    totals = [cupy.empty(n_columns, dy.dtype) for _ in range(n_sums)]
    for of_parts, total in zip(sums, totals, strict=True):
        for_each_element(
            "columns", "add_parts", dy.dtype, n_columns, of_parts, total, parts, n_columns
        )
    return totals
