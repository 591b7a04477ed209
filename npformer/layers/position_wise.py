"""The feed-forward layer (Vaswani et al. 2017, section 3.3)."""

from npformer.arrays import Array
from npformer.layers.projection import linear, linear_grads
from npformer.layers.types import Backward, Params
from npformer.operations.settings import Activation
from npformer.reference import Ops


def feed_forward(
    ops: Ops,
    params: Params,
    x: Array,
    *,
    activation: Activation = "relu",
    dropout_rate: float = 0.0,
    dropout_key: int | None = None,
) -> tuple[Array, Backward]:
    """dropout(activation(x W_1 + b_1)) W_2 + b_2, applied to each position separately.

    Parameters
    ----------
    ops : Ops
    params : {"hidden", "out"}
        Each {"weight", "bias"}, with weights (D, F) and (F, D).
    x : (..., D)
    activation : "relu", "gelu", "gelu_erf", "silu" or "swiglu"
        With "swiglu" the hidden weight is (D, 2F), and its bias (2F,).
    dropout_rate, dropout_key
        Dropout on the hidden layer.

    Returns
    -------
    y : (..., D)
    backward : dy -> (dx, grads)

    Examples
    --------
    Learn y = -x by gradient descent:

    >>> from npformer import layers, reference, tree
    >>> rng = np.random.default_rng(0)
    >>> params = {
    ...     "hidden": {"weight": rng.normal(size=(1, 8)), "bias": np.zeros(8)},
    ...     "out": {"weight": rng.normal(size=(8, 1)), "bias": np.zeros(1)},
    ... }
    >>> x = np.linspace(-1, 1, 9)[:, None]
    >>> losses = []
    >>> for _ in range(200):
    ...     y, backward = layers.feed_forward(reference.ops, params, x, activation="gelu")
    ...     losses.append(float(((y + x) ** 2).mean()))
    ...     dx, grads = backward(2 * (y + x) / y.size)
    ...     params = tree.map_leaves(lambda p, g: p - 0.1 * g, params, grads)
    >>> losses[-1] < 0.05 * losses[0]
    True
    """
    hidden, hidden_backward = hidden_layer(ops, params, x, activation, dropout_rate, dropout_key)
    y, out_backward = linear(ops, params["out"], hidden)

    def backward(dy):
        dhidden, out_grads = out_backward(dy)
        dx, hidden_grads = hidden_backward(dhidden)
        return dx, hidden_grads | {"out": out_grads}

    return y, backward


def hidden_layer(ops, params, x, activation, dropout_rate=0.0, dropout_key=None):
    """dropout(activation(x W_1 + b_1)): ``feed_forward`` without its second linear map."""
    weight = params["hidden"]["weight"]
    bias = params["hidden"].get("bias")
    # One operation, so that a kernel passes over the hidden layer, the largest array, only once.
    hidden, before = ops.linear_activation_dropout(
        x, weight, bias, activation, dropout_rate, dropout_key
    )

    def backward(dhidden):
        dx, dweight, dbias = ops.linear_activation_dropout_backward(
            dhidden, x, weight, bias, before, activation, dropout_rate, dropout_key
        )
        return dx, {"hidden": linear_grads(dweight, dbias)}

    return hidden, backward
