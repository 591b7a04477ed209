"""Convolutions, and ByteNet's residual block (Kalchbrenner et al. 2016)."""

from collections.abc import Callable

from npformer.arrays import Array, kept
from npformer.checks import check_array, check_shape
from npformer.layers.normalisation import layer_norm
from npformer.layers.projection import linear, linear_grads
from npformer.layers.types import Backward, Params
from npformer.reference import Ops


def residual_conv_block(
    ops: Ops,
    params: Params,
    x: Array,
    convolve: Callable,
    *,
    dropout_rate: float = 0.0,
    dropout_key: int | None = None,
) -> tuple[Array, Backward]:
    """x + dropout(expand(a(convolve(a(reduce(a(x))))))), where a(x) = relu(LN(x)).

    This is figure 3 of the paper, left.
    ``reduce`` and ``expand`` are convolutions with one tap: linear maps from width D to D/2 and
    back, so that the expensive convolution has half the width.

    Parameters
    ----------
    ops : Ops
    params : {"reduce_norm", "reduce", "conv_norm", "conv", "expand_norm", "expand"}
    x : (B, T, D)
    convolve : callable
        ``convolve(h)`` -> (y, backward), with h and y (B, T, D/2), and backward(dy) -> (dh,
        gradients of "conv").
    dropout_rate, dropout_key
        Dropout on the term that is added to x.

    Returns
    -------
    y : (B, T, D)
    backward : dy -> (dx, grads)

    Examples
    --------
    >>> from npformer import layers, reference
    >>> from npformer.models.initialization import Initializer
    >>> params = Initializer(seed=0, dtype="float64").residual_conv_block(d_model=4, n_taps=3)
    >>> params["expand"]["weight"][:] = 0  # then nothing is added to x
    >>> x = np.ones((2, 3, 4))
    >>> def convolve(h):
    ...     options = {"dilation": 1, "causal": True}
    ...     is_word = np.ones((2, 3), bool)
    ...     return layers.masked_conv1d(reference.ops, params["conv"], h, is_word, **options)
    >>> y, backward = layers.residual_conv_block(reference.ops, params, x, convolve)
    >>> dx, grads = backward(np.ones_like(y))
    >>> bool((y == x).all()), bool((dx == 1).all()), grads["conv"]["weight"].shape
    (True, True, (3, 2, 2))
    """
    expand = params["expand"]
    w_out = expand["weight"]
    b_out = expand.get("bias")

    h1, activate1_backward = normalised_relu(ops, params["reduce_norm"], x)
    h2, reduce_backward = linear(ops, params["reduce"], h1)
    h3, activate2_backward = normalised_relu(ops, params["conv_norm"], h2)
    h4, convolve_backward = convolve(h3)
    h5, activate3_backward = normalised_relu(ops, params["expand_norm"], h4)
    y = ops.linear_dropout_residual(h5, w_out, b_out, x, dropout_rate, dropout_key)

    def backward(dy):
        dh5, dw_out, db_out, dresidual = ops.linear_dropout_residual_backward(
            dy, h5, w_out, b_out, dropout_rate, dropout_key
        )
        dh4, expand_norm_grads = activate3_backward(dh5)
        dh3, conv_grads = convolve_backward(dh4)
        dh2, conv_norm_grads = activate2_backward(dh3)
        dh1, reduce_grads = reduce_backward(dh2)
        dx, reduce_norm_grads = activate1_backward(dh1)
        return dresidual + dx, {
            "reduce_norm": reduce_norm_grads,
            "reduce": reduce_grads,
            "conv_norm": conv_norm_grads,
            "conv": conv_grads,
            "expand_norm": expand_norm_grads,
            "expand": linear_grads(dw_out, db_out),
        }

    return y, backward


def normalised_relu(ops, params, x):
    """relu(LN(x)), with the parameters of ``layer_norm``."""
    h, norm_backward = layer_norm(ops, params, x)

    def backward(dy):
        dh = ops.relu_backward(dy, h)
        return norm_backward(dh)

    return ops.relu(h), backward


def masked_conv1d(
    ops: Ops, params: Params, x: Array, keep_mask: Array, *, dilation: int, causal: bool
) -> tuple[Array, Backward]:
    """``conv1d`` of x, where padding is replaced by 0, as outside of the sequence.

    Parameters
    ----------
    ops : Ops
    params : {"weight": (W, D_in, D_out), "bias": (D_out,)}
    x : (B, T, D_in)
    keep_mask : (B, T) bool
        False = padding.
    dilation, causal
        As for ``conv1d``.

    Returns
    -------
    y : (B, T, D_out)
    backward : dy -> (dx, grads)

    Examples
    --------
    Each number becomes the sum of itself and of the two before it; the last one is padding.

    >>> from npformer import layers, reference
    >>> params = {"weight": np.ones((3, 1, 1))}
    >>> x, keep_mask = np.array([[[1.0], [2.0], [9.0]]]), np.array([[True, True, False]])
    >>> options = {"dilation": 1, "causal": True}
    >>> y, backward = layers.masked_conv1d(reference.ops, params, x, keep_mask, **options)
    >>> dx, grads = backward(np.ones_like(y))
    >>> y.ravel(), dx.ravel()
    (array([1., 3., 3.]), array([3., 2., 0.]))
    """
    weight = params["weight"]
    bias = params.get("bias")
    check_array(keep_mask, "keep_mask", "mask")
    check_shape(keep_mask=(keep_mask, x.shape[:2]))
    is_word = keep_mask[..., None]
    zeroed = kept(is_word, x)  # else the words beside padding would depend on what is in it
    y = ops.conv1d(zeroed, weight, bias, dilation=dilation, causal=causal)

    def backward(dy):
        dzeroed, dweight, dbias = ops.conv1d_backward(
            dy, zeroed, weight, bias, dilation=dilation, causal=causal
        )
        dx = kept(is_word, dzeroed)
        return dx, linear_grads(dweight, dbias)

    return y, backward
