"""The residual connection around a sublayer, with its normalisation and dropout."""

from collections.abc import Callable

from npformer.arrays import Array
from npformer.layers.normalisation import normalise
from npformer.layers.projection import linear_grads
from npformer.layers.types import Backward, Params, part, weight_and_bias
from npformer.operations.options import check_instance
from npformer.reference import Ops
from npformer.reference.math.random import split_key
from npformer.reference.settings import LayerSettings


def residual(
    ops: Ops,
    params: Params,
    norm_params: Params,
    x: Array,
    inner: Callable,
    settings: LayerSettings,
    *,
    dropout_key: int | None = None,
) -> tuple[Array, Backward]:
    """x + dropout(inner(x) W + b), with a normalisation before the sublayer or after the sum.

    Pre-norm: x + dropout(inner(LN(x)) W + b). The sum itself is not normalised, so gradients pass through it unchanged,
    and training needs little warm-up (Xiong et al. 2020). Post-norm: LN(x + dropout(inner(x) W + b)), as in Vaswani et
    al. 2017.

    Parameters
    ----------
    ops : Ops
    params : {"out": {"weight": (E, D), "bias": (D,)}, …}
        The parameters of the sublayer: "out" is its output projection W, b; all others are those of ``inner``.
    norm_params : {"gain": (D,), "bias": (D,)} or, with "rms_norm", {"gain": (D,)}
    x : (..., D)
    inner : callable
        ``inner(h, dropout_key)`` -> (z (..., E), backward), where backward(dz) -> (dh, …, grads).
    settings : LayerSettings
        Of these, the place and type of the normalisation, and the rate of the dropout on the output.
    dropout_key : int, optional
        The keys of this dropout and of ``inner`` are derived from it.

    Returns
    -------
    y : (..., D)
    backward : dy -> (dx, …, grads, norm_grads)
        The values between dh and grads that the backward of ``inner`` returns are passed on after dx.
    """
    check_instance("settings", settings, LayerSettings)
    inner_key, out_key = split_key(dropout_key, 2)
    weight, bias = weight_and_bias(part(params, "out"))

    h, norm_backward = normalise(ops, norm_params, x, settings) if settings.norm == "pre" else (x, None)
    z, inner_backward = inner(h, inner_key)
    y = ops.linear_dropout_residual(z, weight, bias, x, settings.dropout_rate, out_key)
    if settings.norm == "post":
        y, norm_backward = normalise(ops, norm_params, y, settings)

    def backward(dy):
        if settings.norm == "post":
            dy, norm_grads = norm_backward(dy)
        saved = z, weight, bias, settings.dropout_rate, out_key
        dz, dweight, dbias, dx = ops.linear_dropout_residual_backward(dy, *saved)
        dh, *others, grads = inner_backward(dz)
        if settings.norm == "pre":
            dh, norm_grads = norm_backward(dh)
        return dx + dh, *others, {**grads, "out": linear_grads(dweight, dbias)}, norm_grads

    return y, backward
