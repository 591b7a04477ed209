"""Bad input is turned away at the door, with the argument, what was given and what was expected."""

import math
import numbers

import numpy as np

from npformer.reference.arrays import is_recording, library_of


def check_ids(ids, size, name, ignore_id=None):
    """Token ids are integers with 0 <= id < ``size``; entries equal to ``ignore_id`` may be anything."""
    xp = library_of(ids, name)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {ids.dtype}, expected integers: try {name}.astype('int64')")
    if is_recording(xp):
        return
    wrong = (ids < 0) | (ids >= size)
    if ignore_id is not None:
        wrong &= ids != ignore_id
    if wrong.any():
        where = tuple(int(i) for i in xp.argwhere(wrong)[0])
        raise ValueError(f"{name}{list(where)} is {int(ids[where])}, expected 0 <= id < {size}")


def check_rate(rate, key, name="rate"):
    """A dropout rate is in [0, 1), and dropping anything takes a key."""
    check_fraction(**{name: rate})
    if rate > 0 and key is None:
        raise ValueError(f"{name}={rate} needs a key (an integer) to draw from, got key=None")
    if key is not None:
        check_key(key)


def check_key(key):
    """Keys are integers, or know themselves what is derived from them, as those of a step that is recorded."""
    if hasattr(key, "derive"):
        return
    if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
        raise TypeError(f"key is a {type(key).__name__}, expected an integer")


def check_keep_mask(keep_mask, name="keep_mask"):
    """Masks are boolean, True = may attend: 0/1 integers and 0/-inf floats read either way, so they are refused."""
    library_of(keep_mask, name)
    if keep_mask.dtype.kind != "b":
        raise TypeError(
            f"{name} has dtype {keep_mask.dtype}, expected bool with True = may attend: a 1/0 mask becomes one with "
            "mask.astype(bool), an additive mask (0 / -inf) with npformer.from_additive(mask)"
        )


def check_attention(q, k, v, keep_mask, dropout_rate, key):
    """q (..., T, K), k (..., S, K), v (..., S, Kv); keep_mask broadcasts to (..., T, S)."""
    check_rate(dropout_rate, key, "dropout_rate")
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
        check_mask_of_scores(keep_mask, (*q.shape[:-1], k.shape[-2]))


def check_mask_of_scores(keep_mask, scores_shape):
    """A mask that broadcasts to the scores (..., T, S)."""
    check_keep_mask(keep_mask)
    if not broadcasts_to(keep_mask.shape, scores_shape):
        raise ValueError(f"keep_mask {keep_mask.shape} does not broadcast to {scores_shape}, the scores (..., T, S)")


def broadcasts_to(shape, target):
    """Whether an array of ``shape`` broadcasts to exactly ``target``."""
    try:
        return np.broadcast_shapes(shape, target) == tuple(target)
    except ValueError:
        return False


def check_shape(**arrays):
    """Arrays against the shapes they have to have, e.g. ``check_shape(dy=(dy, x.shape), bias=(bias, (512,)))``."""
    for name, (array, shape) in arrays.items():
        if array.shape != tuple(shape):
            raise ValueError(f"{name} has shape {array.shape}, expected {tuple(shape)}")


def check_positive(**values):
    """Finite numbers above zero."""
    for name, value in values.items():
        check_number(name, value)
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name}={value}, expected a finite number above 0")


def check_not_negative(**values):
    """Finite numbers of zero or more."""
    for name, value in values.items():
        check_number(name, value)
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name}={value}, expected a finite number of 0 or more")


def check_fraction(**values):
    """Numbers in [0, 1)."""
    for name, value in values.items():
        check_number(name, value)
        if not 0 <= value < 1:
            raise ValueError(f"{name}={value}, expected 0 <= {name} < 1")


def check_number(name, value):
    """A real number, not its text."""
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}, expected a number")


def check_int(name, value, at_least=-math.inf):
    """An integer, not below a bound."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}, expected an int")
    if value < at_least:
        raise ValueError(f"{name}={value}, expected at least {at_least}")
