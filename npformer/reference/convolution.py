"""Convolution along a sequence: one linear map for each neighbour, the same at every position."""

from npformer.reference.arrays import Array, namespace, narrow, quiet, transpose, widen
from npformer.reference.checks import check_int, check_shape
from npformer.reference.linear import rows
from npformer.reference.product import product


@quiet
def conv1d(x: Array, weight: Array, bias: Array | None = None, *, dilation: int = 1, causal: bool = False) -> Array:
    """y[t] = Σ_w x[t + dilation · (w - c)] weight[w] + bias, with c the tap that sees position t itself.

    c is the middle tap, c = (W - 1)/2, or with ``causal`` the last one, c = W - 1: then nothing after t is seen
    (Kalchbrenner et al. 2016, ByteNet; van den Oord et al. 2016, WaveNet). Beyond both ends x is 0. A dilation
    leaves gaps between the taps: a stack with dilations 1, 2, 4, … sees exponentially far. (As in all of deep
    learning this is a correlation: a convolution would count w the other way round.)

    Parameters
    ----------
    x : (B, T, D_in)
    weight : (W, D_in, D_out)
        A matrix for each of W taps; W is odd, unless ``causal``.
    bias : (D_out,), optional
    dilation : int
        Positions from one tap to the next.
    causal : bool
        Output t sees the inputs t, t - dilation, t - 2 dilation, … only.

    Returns
    -------
    (B, T, D_out)

    Examples
    --------
    >>> import numpy as np
    >>> x, weight = np.array([[[1.0], [2.0], [3.0], [4.0]]]), np.array([[[1.0]], [[10.0]], [[100.0]]])
    >>> conv1d(x, weight)[0, :, 0]
    array([210., 321., 432.,  43.])
    >>> conv1d(x, weight, causal=True)[0, :, 0]
    array([100., 210., 321., 432.])
    >>> conv1d(x, weight, dilation=2, causal=True)[0, :, 0]
    array([100., 200., 310., 420.])
    """
    xp = namespace(x=x, weight=weight, bias=bias)
    check_conv1d(x, weight, bias, dilation, causal)
    wide = widen(x)
    y = xp.zeros((*x.shape[:-1], weight.shape[2]), xp.result_type(wide, weight))
    for w, at, seen in taps(x.shape[1], len(weight), dilation, causal):
        y[:, at] += wide[:, seen] @ weight[w]
    return narrow(y if bias is None else y + bias, x)


@quiet
def conv1d_backward(
    dy: Array, x: Array, weight: Array, bias: Array | None = None, *, dilation: int = 1, causal: bool = False
) -> tuple:
    """The gradients (dx, dweight, dbias), tap by tap those of a linear map; dbias is None without a bias.

    Where tap w of output t saw x[s]: dx[s] += dy[t] weight[w]ᵀ and dweight[w] += x[s]ᵀ dy[t].
    """
    xp = namespace(dy=dy, x=x, weight=weight, bias=bias)
    check_conv1d(x, weight, bias, dilation, causal)
    check_shape(dy=(dy, (*x.shape[:-1], weight.shape[2])))
    wide_dy = widen(dy)
    dx = xp.zeros(x.shape, xp.result_type(wide_dy, weight))
    dweight = xp.zeros(weight.shape, xp.result_type(wide_dy, x))
    for w, at, seen in taps(x.shape[1], len(weight), dilation, causal):
        dx[:, seen] += wide_dy[:, at] @ transpose(weight[w])
        dweight[w] = product(transpose(rows(x[:, seen])), rows(wide_dy[:, at]))
    dbias = None if bias is None else narrow(rows(wide_dy).sum(axis=0), dy)
    return narrow(dx, x), narrow(dweight, weight), dbias


def taps(T, W, dilation, causal):
    """(w, at, seen) for each tap: the outputs ``at`` see the inputs ``seen`` through it, and the others a 0."""
    centre = W - 1 if causal else (W - 1) // 2
    for w in range(W):
        shift = dilation * (w - centre)  # output t sees input t + shift
        first, stop = max(0, -shift), min(T, T - shift)
        if first < stop:
            yield w, slice(first, stop), slice(first + shift, stop + shift)


def check_conv1d(x, weight, bias, dilation, causal):
    """x (B, T, D_in), weight (W, D_in, D_out), bias (D_out,), and a tap in the middle if there has to be one."""
    if x.ndim != 3 or weight.ndim != 3 or x.shape[2] != weight.shape[1]:
        raise ValueError(f"x {x.shape}, weight {weight.shape}: expected x (B, T, D_in), weight (W, D_in, D_out)")
    W = len(weight)
    if W == 0 or not (causal or W % 2):
        raise ValueError(f"weight has W={W} taps, expected an odd number, so that one is in the middle, or causal=True")
    if bias is not None:
        check_shape(bias=(bias, weight.shape[2:]))
    check_int("dilation", dilation, at_least=1)
