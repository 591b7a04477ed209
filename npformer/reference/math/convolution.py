"""Convolution along a sequence: one linear map for each tap, the same at every position.

x has B sequences of T vectors of width D, and the result vectors of width E at the same T
positions. The weight is W matrices (D, E), one for each tap.
"""

import numpy as np

from npformer.arrays import Array
from npformer.errors import UserError
from npformer.operations.formula import backward_of, operation
from npformer.reference.math.linear import rows, sum_over_rows


def _check(*, weight, causal, **_):
    if not causal and weight.ndim == 3 and len(weight) % 2 == 0:
        expected = "an odd number, so that one is in the middle, or causal=True"
        raise UserError(f"weight has W={len(weight)} taps, expected {expected}")


@operation("x: B T D, weight: W>0 D E, bias: E -> y: B T E", check=_check, flops="2*B*T*W*D*E")
def conv1d(
    x: Array, weight: Array, bias: Array | None = None, *, dilation: int = 1, causal: bool = False
) -> Array:
    """y[t] = Σ_w x[t + dilation · (w - c)] weight[w] + bias, where c is the tap that reads position
    t itself.

    c is the middle tap, c = (W - 1)/2, or, if ``causal``, the last tap, c = W - 1: then y[t] does
    not depend on inputs after t (Kalchbrenner et al. 2016, ByteNet; van den Oord et al. 2016,
    WaveNet). x is 0 outside the sequence. A dilation above 1 leaves gaps between the taps: the
    receptive field of a stack with dilations 1, 2, 4, … grows exponentially with its depth. (As
    elsewhere in deep learning, this is a cross-correlation: a convolution would reverse the order
    of the taps.)

    Parameters
    ----------
    weight
        One matrix for each of the W taps; W must be odd, unless ``causal``.
    dilation
        Distance in positions from one tap to the next.

    >>> x = np.array([[[1.0], [2.0], [3.0], [4.0]]])
    >>> weight = np.array([[[1.0]], [[10.0]], [[100.0]]])
    >>> conv1d(x, weight)[0, :, 0]
    array([210., 321., 432.,  43.])
    >>> conv1d(x, weight, causal=True)[0, :, 0]
    array([100., 210., 321., 432.])
    >>> conv1d(x, weight, dilation=2, causal=True)[0, :, 0]
    array([100., 200., 310., 420.])
    """
    B, T, _ = x.shape
    W, _, E = weight.shape
    y = np.zeros_like(x, shape=(B, T, E), dtype=np.result_type(x, weight))
    for w, outputs, inputs in taps(T, W, dilation, causal):
        y[:, outputs] += x[:, inputs] @ weight[w]
    if bias is not None:
        y = y + bias
    return y


@backward_of(conv1d, check=_check, flops="4*B*T*W*D*E")
def conv1d_backward(
    dy: Array,
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    dilation: int = 1,
    causal: bool = False,
) -> tuple:
    """The gradients (dx, dweight, dbias): for each tap, those of a linear map; dbias is None
    without a bias.

    Where tap w of output t read x[s]: dx[s] += dy[t] weight[w]ᵀ and dweight[w] += x[s]ᵀ dy[t].

    >>> x = np.array([[[1.0], [2.0], [3.0], [4.0]]])
    >>> weight = np.array([[[1.0]], [[10.0]], [[100.0]]])
    >>> dy = np.array([[[0.0], [1.0], [0.0], [0.0]]])  # only y[1], which read x[0], x[1] and x[2]
    >>> dx, dweight, dbias = conv1d_backward(dy, x, weight, np.zeros(1))
    >>> dx[0, :, 0], dweight[:, 0, 0], dbias
    (array([  1.,  10., 100.,   0.]), array([1., 2., 3.]), array([1.]))
    """
    dtype = np.result_type(dy, x, weight)
    dx = np.zeros_like(x, dtype=dtype)
    dweight = np.zeros_like(weight, dtype=dtype)
    _, T, _ = x.shape
    W = len(weight)
    for w, outputs, inputs in taps(T, W, dilation, causal):
        dx[:, inputs] += dy[:, outputs] @ weight[w].T
        dweight[w] = rows(x[:, inputs]).T @ rows(dy[:, outputs])
    dbias = None if bias is None else sum_over_rows(dy)
    return dx, dweight, dbias


def taps(T, W, dilation, causal):
    """(w, outputs, inputs) for each tap w: the positions of the outputs that read inputs, and of
    these inputs; the other outputs read zeros.
    """
    centre = W - 1 if causal else W // 2
    for w in range(W):
        shift = dilation * (w - centre)  # output t reads input t + shift
        first = max(0, -shift)
        stop = min(T, T - shift)
        if first < stop:
            outputs = slice(first, stop)
            inputs = slice(first + shift, stop + shift)
            yield w, outputs, inputs
