"""Bad input is turned away at the door, with the argument, what was given and what was expected."""

import math

import numpy as np

from npformer.reference.arrays import array_library, namespace_of_ids


def check_ids(ids, size, name, ignore_id=None):
    """Token ids are integers with 0 <= id < ``size``; entries equal to ``ignore_id`` may be anything."""
    xp = namespace_of_ids(ids, name)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {ids.dtype}, expected integers")
    wrong = (ids < 0) | (ids >= size)
    if ignore_id is not None:
        wrong &= ids != ignore_id
    if wrong.any():
        where = tuple(int(axis[0]) for axis in xp.nonzero(wrong))
        raise ValueError(f"{name}{list(where)} is {int(ids[where])}, expected 0 <= id < {size}")


def check_rate(rate, key, name="rate"):
    """A dropout rate is in [0, 1), and dropping anything takes a key."""
    if not 0 <= rate < 1:
        raise ValueError(f"{name}={rate}, expected 0 <= {name} < 1")
    if rate > 0 and key is None:
        raise ValueError(f"{name}={rate} needs a key (an integer) to draw from, got key=None")
    if key is not None and (isinstance(key, bool) or not isinstance(key, (int, np.integer))):
        raise TypeError(f"key is a {type(key).__name__}, expected an integer")


def check_keep_mask(keep_mask, name="keep_mask"):
    """Masks are boolean, True = may attend: 0/1 integers and 0/-inf floats read either way, so they are refused."""
    array_library(keep_mask, name)
    if keep_mask.dtype.kind != "b":
        raise TypeError(
            f"{name} has dtype {keep_mask.dtype}, expected bool with True = may attend: "
            "an additive mask (0 / -inf) becomes one with npformer.from_additive(mask)"
        )


def check_attention(q, k, v, keep_mask):
    """q (..., T, K), k (..., S, K), v (..., S, Kv); keep_mask broadcasts to (..., T, S)."""
    shapes = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise ValueError(f"{shapes}: expected q (..., T, K), k (..., S, K), v (..., S, Kv)")
    if q.shape[-1] != k.shape[-1] or q.shape[-1] == 0:
        raise ValueError(f"{shapes}: q and k must have the same last axis, the head width K >= 1")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"{shapes}: k and v must have the same axis -2 (the key length S)")
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(f"{shapes}: the axes before the last two must be equal")
    if keep_mask is not None:
        check_keep_mask(keep_mask)
        scores_shape = (*q.shape[:-1], k.shape[-2])
        if not broadcasts_to(keep_mask.shape, scores_shape):
            raise ValueError(
                f"keep_mask {keep_mask.shape} does not broadcast to {scores_shape}, the scores (..., T, S)"
            )


def broadcasts_to(shape, target):
    """Whether an array of ``shape`` broadcasts to exactly ``target``."""
    try:
        return np.broadcast_shapes(shape, target) == tuple(target)
    except ValueError:
        return False


def check_same_shape(**shapes):
    """Named shapes that have to be equal, e.g. ``check_same_shape(dy=dy.shape, y=y.shape)``."""
    if len(set(map(tuple, shapes.values()))) > 1:
        given = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ValueError(f"{given}: expected equal shapes")


def check_last_axis(**sizes):
    """A last axis against the width it has to have: ``check_last_axis(gain=(gain, 512))``."""
    for name, (array, width) in sizes.items():
        if array.shape != (width,):
            raise ValueError(f"{name} has shape {array.shape}, expected ({width},)")


def check_positive(**values):
    """Sizes and rates that must be finite and above zero."""
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name}={value}, expected a number above 0")
