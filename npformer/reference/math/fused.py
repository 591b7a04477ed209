"""Operations that a kernel can compute in one pass over memory, composed of smaller ones.

As in ``linear``, all axes of x but the last are rows. The activation takes I numbers of the linear
map for each of F results: I is 2 for "swiglu", and 1 for the others.
"""

from npformer.arrays import Array
from npformer.operations.formula import backward_of, operation
from npformer.operations.settings import Activation
from npformer.reference.math.activations import ACTIVATIONS, INPUTS
from npformer.reference.math.dropout import dropout, dropout_backward
from npformer.reference.math.linear import linear, linear_backward


@operation(
    "x: ... D, weight: D I*F, bias: I*F, INPUTS[activation] = I -> y: ... F, h: ... I*F",
    flops="2*N*D*I*F",
    tables={"INPUTS": INPUTS},
)
def linear_activation_dropout(
    x: Array,
    weight: Array,
    bias: Array | None,
    activation: Activation,
    dropout_rate: float = 0.0,
    dropout_key: int | None = None,
) -> tuple[Array, Array]:
    """dropout(activation(h)), and h = x W + b: the first half of the feed-forward layer; for
    "swiglu", I = 2, else 1.

    >>> linear_activation_dropout(np.array([1.0]), np.array([[3.0, -3.0]]), np.zeros(2), "relu")[0]
    array([3., 0.])
    """
    activate, _ = ACTIVATIONS[activation]
    h = linear(x, weight, bias)
    y = dropout(activate(h), dropout_rate, dropout_key)
    return y, h


@backward_of(linear_activation_dropout, flops="4*N*D*I*F")
def linear_activation_dropout_backward(
    dy: Array,
    x: Array,
    weight: Array,
    bias: Array | None,
    h: Array,
    activation: Activation,
    dropout_rate: float = 0.0,
    dropout_key: int | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients (dx, dweight, dbias): dh = dropout(dy) activation'(h), then ``linear_backward``
    of dh.

    >>> x, weight, bias = np.array([[2.0]]), np.array([[3.0, -3.0]]), np.zeros(2)
    >>> y, h = linear_activation_dropout(x, weight, bias, "relu")  # h = (6, -6): dh = (dy, 0)
    >>> linear_activation_dropout_backward(np.ones((1, 2)), x, weight, bias, h, "relu")
    (array([[3.]]), array([[2., 0.]]), array([1., 0.]))
    """
    _, activate_backward = ACTIVATIONS[activation]
    dactivated = dropout_backward(dy, dropout_rate, dropout_key)
    dh = activate_backward(dactivated, h)
    return linear_backward(dh, x, weight, bias)


@operation("x: ... D, weight: D F, bias: F, residual: ... F -> y: ... F", flops="2*N*D*F")
def linear_dropout_residual(
    x: Array,
    weight: Array,
    bias: Array | None,
    residual: Array,
    dropout_rate: float = 0.0,
    dropout_key: int | None = None,
) -> Array:
    """residual + dropout(x W + b): the last operation of every sublayer.

    >>> x, weight, bias = np.array([1.0]), np.array([[2.0]]), np.array([0.5])
    >>> linear_dropout_residual(x, weight, bias, residual=np.array([10.0]))
    array([12.5])
    """
    h = linear(x, weight, bias)
    return residual + dropout(h, dropout_rate, dropout_key)


@backward_of(linear_dropout_residual, flops="4*N*D*F")
def linear_dropout_residual_backward(
    dy: Array,
    x: Array,
    weight: Array,
    bias: Array | None,
    dropout_rate: float = 0.0,
    dropout_key: int | None = None,
) -> tuple[Array, Array, Array, Array]:
    """The gradients (dx, dweight, dbias, dresidual); dresidual is dy itself.

    >>> x, weight, bias = np.array([[4.0]]), np.array([[2.0, 3.0]]), np.zeros(2)
    >>> options = {"dropout_rate": 0.5, "dropout_key": 1}  # drops entry 0, doubles entry 1
    >>> linear_dropout_residual_backward(np.ones((1, 2)), x, weight, bias, **options)
    (array([[6.]]), array([[0., 8.]]), array([0., 2.]), array([[1., 1.]]))
    """
    dh = dropout_backward(dy, dropout_rate, dropout_key)
    dx, dweight, dbias = linear_backward(dh, x, weight, bias)
    dresidual = dy
    return dx, dweight, dbias, dresidual
