"""A linear map, and several linear maps of the same input."""

from collections.abc import Sequence

import numpy as np

from npformer.arrays import Array
from npformer.errors import UserError
from npformer.layers.types import Backward, Params
from npformer.reference import Ops


def linear(ops: Ops, params: Params, x: Array) -> tuple[Array, Backward]:
    """The linear map x W + b.

    Parameters
    ----------
    ops : Ops
    params : {"weight": (D_in, D_out), "bias": (D_out,)}
        "bias" may be missing; then no bias is added.
    x : (..., D_in)

    Returns
    -------
    y : (..., D_out)
    backward : dy -> (dx, grads)

    Examples
    --------
    >>> from npformer import layers, reference
    >>> params = {"weight": np.array([[1.0], [2.0]]), "bias": np.array([0.5])}
    >>> y, backward = layers.linear(reference.ops, params, np.array([[3.0, 4.0]]))
    >>> dx, grads = backward(np.array([[1.0]]))
    >>> y, dx, grads["weight"].ravel()
    (array([[11.5]]), array([[1., 2.]]), array([3., 4.]))
    """
    weight = params["weight"]
    bias = params.get("bias")
    y = ops.linear(x, weight, bias)

    def backward(dy):
        dx, dweight, dbias = ops.linear_backward(dy, x, weight, bias)
        return dx, linear_grads(dweight, dbias)

    return y, backward


def project(
    ops: Ops, params: Params, x: Array, names: Sequence[str], parts: Sequence[int] | None = None
) -> tuple[Array, Backward]:
    """Several linear maps of the same input, with their results side by side.

    One product with all the matrices side by side is faster than one product per matrix.

    Parameters
    ----------
    ops : Ops
    params : {"qkv": …} or {"q": …, "k": …, "v": …}
        The parameters of ``linear`` for each name; or, if the matrices are stored side by side,
        those of all maps under the joined names.
    x : (..., D_in)
    names : sequence of str
        The names of the maps, for example ("q", "k", "v").
    parts : sequence of int, optional
        The proportion of their widths, as ``AttentionSettings.parts``, the numbers of heads; equal
        if not given.

    Returns
    -------
    y : (..., D_out), the sum of the widths
    backward : dy -> (dx, grads)
        ``grads`` has the same keys as ``params``, limited to these maps.

    Examples
    --------
    >>> from npformer import layers, reference
    >>> params = {
    ...     "k": {"weight": np.full((1, 2), 1.0), "bias": np.zeros(2)},
    ...     "v": {"weight": np.full((1, 2), 2.0), "bias": np.zeros(2)},
    ... }
    >>> layers.project(reference.ops, params, np.array([[3.0]]), ("k", "v"))[0]
    array([[3., 3., 6., 6.]])
    """
    packed = "".join(names)
    is_packed = packed in params
    maps = params[packed] if is_packed else _side_by_side(params, names, parts)
    y, linear_backward = linear(ops, maps, x)

    def backward(dy):
        dx, grads = linear_backward(dy)
        if is_packed:
            return dx, {packed: grads}
        return dx, _divided(grads, params, names)

    return y, backward


def linear_grads(dweight, dbias):
    """The gradients of a linear map by the names of its parameters."""
    if dbias is None:
        return {"weight": dweight}
    return {"weight": dweight, "bias": dbias}


def _side_by_side(params, names, parts):
    """The matrices and biases of several maps, concatenated."""
    if any(name not in params for name in names):
        expected = f"{''.join(names)!r}, or each of {list(names)}"
        raise UserError(f"params has {list(params)}, expected {expected}")
    shapes_of_first = _shapes(params[names[0]])
    *inputs, width = shapes_of_first["weight"]
    parts = parts or [1] * len(names)
    for name, n in zip(names, parts, strict=True):
        axes = (*inputs, width * n // parts[0])
        shapes = _shapes(params[name])
        fitting = {key: axes if key == "weight" else axes[-1:] for key in shapes_of_first}
        if shapes != fitting:
            of_map = f"params of {name!r} have the shapes {shapes}"
            raise UserError(f"{of_map}, expected {fitting}, as of {names[0]!r}")
    return {
        key: np.concatenate([params[name][key] for name in names], axis=-1)
        for key in shapes_of_first
    }


def _shapes(params):
    """The shapes of the parameters of a linear map by their names."""
    shapes = {"weight": params["weight"].shape}
    if "bias" in params:
        shapes["bias"] = params["bias"].shape
    return shapes


def _divided(grads, params, names):
    """The gradients of maps side by side as those of each map."""
    widths = [params[name]["weight"].shape[1] for name in names]
    edges = np.cumsum(widths)[:-1]
    of_maps = {name: {} for name in names}
    for key, grad in grads.items():
        parts = np.split(grad, edges, axis=-1)
        for name, part_of_grad in zip(names, parts, strict=True):
            of_maps[name][key] = part_of_grad
    return of_maps
