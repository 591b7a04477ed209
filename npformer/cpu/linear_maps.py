"""The arrays of linear maps, in the form that the kernels for a few rows take."""

from typing import NamedTuple

import numpy as np

from npformer.cpu.blas import BLAS

# In place of a bias, of scales, or of panels.
NOTHING = {dtype: np.empty(0, dtype) for dtype in BLAS}


class LinearMap(NamedTuple):
    """The arrays of a linear map of a few rows. What there is not is empty.

    Python passes them as a plain tuple: numba takes microseconds to look at the type of a named
    one.
    """

    weight: np.ndarray  # transposed, if it has integers
    panels: np.ndarray  # copies of its columns
    scale: np.ndarray  # of the columns of integers
    bias: np.ndarray


def linear_map_of(dtype, weight, bias, panels=None, scale=None):
    """A ``LinearMap`` of rows of this dtype."""
    nothing = NOTHING[dtype]
    panels = nothing if panels is None else panels
    scale = nothing if scale is None else scale
    return LinearMap(weight, panels, scale, bias)
