"""Positional encoding (Vaswani et al. 2017, section 3.5)."""

import numpy as np
from numpy.typing import DTypeLike

from npformer.arrays import Array
from npformer.checks import check_choice, check_float_dtype, check_int


def sinusoidal_encoding(
    length: int, d_model: int, layout: str = "interleaved", dtype: DTypeLike = "float64"
) -> Array:
    """Sines and cosines of wavelengths from 2π to 10000 · 2π.

    PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)). With an odd D
    the last cosine is left out.

    Parameters
    ----------
    length : int
        Number of positions, starting at 0.
    d_model : int
        The width D.
    layout : "interleaved" or "concatenated"
        Alternate sines and cosines, as in the paper, or all sines first, as in Marian and
        tensor2tensor.
    dtype : dtype of floats
        Of the result, which is computed in float64. Give that of the embeddings if you add it to
        them: their sum with float64 is float64, which the kernels do not take beside float32
        parameters.

    Returns
    -------
    (length, D)

    Examples
    --------
    >>> sinusoidal_encoding(2, 4).round(4)
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 1.    ]])
    >>> sinusoidal_encoding(2, 4, dtype="float32").dtype
    dtype('float32')
    """
    length = check_int("length", length, at_least=0)
    d_model = check_int("d_model", d_model, at_least=1)
    check_choice("layout", layout, ("interleaved", "concatenated"))
    dtype = check_float_dtype("dtype", dtype)
    n_sines = (d_model + 1) // 2
    n_cosines = d_model // 2
    positions = np.arange(length)[:, None]
    angles = positions / 10000.0 ** (2 * np.arange(n_sines) / d_model)
    sines = np.sin(angles)
    cosines = np.cos(angles[:, :n_cosines])
    if layout == "concatenated":
        return np.concatenate([sines, cosines], axis=1).astype(dtype, copy=False)
    encoding = np.empty((length, d_model), dtype)
    encoding[:, 0::2] = sines
    encoding[:, 1::2] = cosines
    return encoding
