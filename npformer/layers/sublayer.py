"""The sublayers of the Transformer: a box of figure 1 with its "Add & Norm", and dropout.

Whatever drops numbers has a key of its own, derived from that of the layer: it decides which are
dropped, in the forward pass and again in the backward pass. Without dropout all keys are None.
"""

from npformer.arrays import Array
from npformer.layers.multi_head import cross_attention_heads, self_attention_heads
from npformer.layers.normalisation import normalise
from npformer.layers.position_wise import hidden_layer
from npformer.layers.projection import linear_grads
from npformer.layers.types import Backward, Params
from npformer.operations.settings import LayerSettings
from npformer.reference import Ops
from npformer.reference.math.random import keys_from


def self_attention_sublayer(ops, params, x, settings, keep_mask=None, dropout_key=None):
    """x + dropout(MultiHead(LN(x))), or with norm="post" LN(x + dropout(MultiHead(x))).

    Parameters
    ----------
    ops : Ops
    params : {"attention", "attention_norm", …}
        The parameters of the layer.
    x : (B, T, D)
    settings : LayerSettings
    keep_mask : bool, broadcasts to (B, H, T, T), optional
    dropout_key : int, optional

    Returns
    -------
    y : (B, T, D)
    backward : dy -> (dx, the gradients by the names of the layer's parameters)
    """
    own, norm = params["attention"], params["attention_norm"]
    weights_key, out_key = keys_from(dropout_key, 2)

    h, norm_backward = norm_before(ops, norm, x, settings)
    heads, heads_backward = self_attention_heads(
        ops, own, h, settings.attention, keep_mask, dropout_key=weights_key
    )
    y, add_backward = add_and_norm(ops, own, norm, heads, x, settings, dropout_key=out_key)

    def backward(dy):
        dheads, dx_residual, out_grads, norm_after_grads = add_backward(dy)
        dh, grads = heads_backward(dheads)
        dx, norm_grads = norm_backward(dh)
        return dx_residual + dx, {
            "attention": grads | out_grads,
            # A normalisation stands before the sublayer or after it: the other dict is empty.
            "attention_norm": norm_grads | norm_after_grads,
        }

    return y, backward


def memory_sublayer(ops, params, x, memory, settings, keep_mask=None, dropout_key=None):
    """``self_attention_sublayer`` with cross-attention in place: from x to a memory (B, S, D).

    The backward pass is dy -> (dx, dmemory, gradients).
    """
    own, norm = params["memory_attention"], params["memory_attention_norm"]
    weights_key, out_key = keys_from(dropout_key, 2)

    h, norm_backward = norm_before(ops, norm, x, settings)
    heads, heads_backward = cross_attention_heads(
        ops, own, h, memory, settings.memory_attention, keep_mask, dropout_key=weights_key
    )
    y, add_backward = add_and_norm(ops, own, norm, heads, x, settings, dropout_key=out_key)

    def backward(dy):
        dheads, dx_residual, out_grads, norm_after_grads = add_backward(dy)
        dh, dmemory, grads = heads_backward(dheads)
        dx, norm_grads = norm_backward(dh)
        all_grads = {
            "memory_attention": grads | out_grads,
            "memory_attention_norm": norm_grads | norm_after_grads,
        }
        return dx_residual + dx, dmemory, all_grads

    return y, backward


def feed_forward_sublayer(ops, params, x, settings, dropout_key=None):
    """x + dropout(FFN(LN(x))), or with norm="post" LN(x + dropout(FFN(x))), of x (..., D).

    The backward pass is dy -> (dx, gradients).
    """
    own, norm = params["feed_forward"], params["feed_forward_norm"]
    hidden_key, out_key = keys_from(dropout_key, 2)
    rate = settings.hidden_dropout_rate

    h, norm_backward = norm_before(ops, norm, x, settings)
    hidden, hidden_backward = hidden_layer(ops, own, h, settings.activation, rate, hidden_key)
    y, add_backward = add_and_norm(ops, own, norm, hidden, x, settings, dropout_key=out_key)

    def backward(dy):
        dhidden, dx_residual, out_grads, norm_after_grads = add_backward(dy)
        dh, grads = hidden_backward(dhidden)
        dx, norm_grads = norm_backward(dh)
        return dx_residual + dx, {
            "feed_forward": grads | out_grads,
            "feed_forward_norm": norm_grads | norm_after_grads,
        }

    return y, backward


def norm_before(
    ops: Ops, norm_params: Params, x: Array, settings: LayerSettings
) -> tuple[Array, Backward]:
    """LN(x), the input of a sublayer in a pre-norm model; in a post-norm model it is x itself.

    Parameters
    ----------
    ops : Ops
    norm_params : {"gain": (D,), "bias": (D,)} or, with "rms_norm", {"gain": (D,)}
    x : (..., D)
    settings : LayerSettings
        Of these, the place and type of the normalisation.

    Returns
    -------
    h : (..., D)
    backward : dh -> (dx, norm_grads)
        Without gradients of parameters, {}, if nothing is normalised here.

    Examples
    --------
    >>> from npformer import layers, reference
    >>> settings = layers.LayerSettings(layers.AttentionSettings(1), norm="post")
    >>> h, backward = layers.norm_before(reference.ops, {}, np.array([[1.0, 3.0]]), settings)
    >>> h, backward(np.array([[0.5, 0.0]]))
    (array([[1., 3.]]), (array([[0.5, 0. ]]), {}))
    """
    if settings.norm == "pre":
        return normalise(ops, norm_params, x, settings)
    return x, lambda dh: (dh, {})


def add_and_norm(
    ops: Ops,
    params: Params,
    norm_params: Params,
    z: Array,
    x: Array,
    settings: LayerSettings,
    *,
    dropout_key: int | None = None,
) -> tuple[Array, Backward]:
    """x + dropout(z W + b): the last map of a sublayer, and the residual connection around it.

    In a pre-norm model the sum itself is not normalised, so gradients pass through it unchanged,
    and training needs little warm-up (Xiong et al. 2020). In a post-norm model the result is LN(x +
    dropout(z W + b)), as in Vaswani et al. 2017.

    Parameters
    ----------
    ops : Ops
    params : {"out": {"weight": (E, D), "bias": (D,)}, …}
        The parameters of the sublayer, of which "out" is its last map W, b.
    norm_params : as of ``norm_before``
    z : (..., E)
        What the sublayer has computed before its last map, as the heads of attention.
    x : (..., D)
        The input of the sublayer, before any normalisation.
    settings : LayerSettings
        Of these, the place and type of the normalisation, and the rate of the dropout.
    dropout_key : int, optional

    Returns
    -------
    y : (..., D)
    backward : dy -> (dz, dx, grads, norm_grads)
        dx is what passes by the sublayer. ``norm_grads`` is {} in a pre-norm model.

    Examples
    --------
    >>> from npformer import layers, reference
    >>> settings = layers.LayerSettings(layers.AttentionSettings(1))
    >>> params = {"out": {"weight": np.array([[10.0, 20.0]])}}
    >>> z, x = np.array([[1.0]]), np.array([[0.5, 0.5]])
    >>> y, backward = layers.add_and_norm(reference.ops, params, {}, z, x, settings)
    >>> y
    array([[10.5, 20.5]])
    >>> dz, dx, grads, norm_grads = backward(np.array([[1.0, 1.0]]))
    >>> dz, dx
    (array([[30.]]), array([[1., 1.]]))
    """
    weight = params["out"]["weight"]
    bias = params["out"].get("bias")
    # One operation, so that a kernel need not write z W + b before it adds x.
    y = ops.linear_dropout_residual(z, weight, bias, x, settings.dropout_rate, dropout_key)
    if settings.norm == "post":
        y, norm_backward = normalise(ops, norm_params, y, settings)

    def backward(dy):
        norm_grads = {}
        if settings.norm == "post":
            dy, norm_grads = norm_backward(dy)
        dz, dweight, dbias, dx = ops.linear_dropout_residual_backward(
            dy, z, weight, bias, settings.dropout_rate, dropout_key
        )
        return dz, dx, {"out": linear_grads(dweight, dbias)}, norm_grads

    return y, backward
