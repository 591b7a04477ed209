"""Split the model width into attention heads, and merge them again (Vaswani et al. 2017).

It is section 3.2.2 of the paper: a width of H·K becomes H heads of width K, which stand before the
T positions, as each head attends on its own.
"""

from npformer.arrays import Array
from npformer.operations.formula import operation


@operation("x: ... T H*K, n_heads = H -> y: ... H T K")
def split_heads(x: Array, n_heads: int) -> Array:
    """Split the width D into H heads of width K = D/H and move the head axis before T: (B, T, D) ->
    (B, H, T, K).

    Head h is ``x[..., h * K : (h + 1) * K]``. ``merge_heads`` is the inverse, and the backward
    pass. A ValueError is raised if D is not divisible by ``n_heads``.

    >>> split_heads(np.zeros((1, 10, 512)), n_heads=8).shape
    (1, 8, 10, 64)
    """
    *batch, T, D = x.shape
    return x.reshape(*batch, T, n_heads, D // n_heads).swapaxes(-2, -3)


@operation("x: ... H T K -> y: ... T H*K")
def merge_heads(x: Array) -> Array:
    """Concatenate the heads: (B, H, T, K) -> (B, T, D). ``split_heads`` is the inverse, and the
    backward pass.

    >>> merge_heads(np.zeros((1, 8, 10, 64))).shape
    (1, 10, 512)
    """
    *batch, H, T, K = x.shape
    return x.swapaxes(-2, -3).reshape(*batch, T, H * K)
