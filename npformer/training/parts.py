"""The parts of the flat parameters that differ in whether they are frozen and whether they decay."""

from collections.abc import Iterable
from typing import NamedTuple

from npformer import tree


class Part(NamedTuple):
    """Neighbouring parameters with the same settings."""

    place: slice  # in the flat arrays
    frozen: bool
    decay: bool


class Piece(NamedTuple):
    """Neighbouring parameters that this process updates, with the same settings."""

    place: slice  # in the flat arrays
    state: slice  # in the arrays of the optimizer's state
    frozen: bool
    decay: bool


def parts_of(params, frozen, decays) -> list[Part]:
    """Divide the flat parameters into as few parts as possible.

    ``frozen`` are paths of arrays or of dicts of arrays that are never updated; ``decays(array)`` says whether the
    weight decay applies to it. A path that matches no parameter, or frozen=all parameters, is a ``ValueError``.

    Examples
    --------
    >>> import numpy as np
    >>> params = {"table": np.zeros((2, 3)), "layer": {"weight": np.zeros((3, 3)), "bias": np.zeros(3)}}
    >>> for part in parts_of(params, frozen=["table"], decays=lambda x: x.ndim > 1):
    ...     print(part)
    Part(place=slice(0, 6, None), frozen=True, decay=True)
    Part(place=slice(6, 15, None), frozen=False, decay=True)
    Part(place=slice(15, 18, None), frozen=False, decay=False)
    """
    paths = [path for path, _ in tree.leaves(params)]
    for name in frozen:
        if not any(is_in(path, name) for path in paths):
            raise ValueError(
                f"frozen has {name!r}, expected paths of parameters such as {paths[0]!r} or {list(params)}"
            )
    parts: list[Part] = []
    start = 0
    for path, x in tree.leaves(params):
        kind = any(is_in(path, name) for name in frozen), decays(x)
        if parts and parts[-1][1:] == kind:
            start_of_part = parts.pop().place.start
        else:
            start_of_part = start
        start += x.size
        parts.append(Part(slice(start_of_part, start), *kind))
    if all(part.frozen for part in parts):
        raise ValueError(f"frozen={list(frozen)} includes all parameters, expected some that are trained")
    return parts


def listed(frozen):
    """The paths of frozen parameters as a list, in one order: a set has another one in each process."""
    if isinstance(frozen, str) or not isinstance(frozen, Iterable):
        advice = f": try [{frozen!r}]" if isinstance(frozen, str) else " such as ['encoder']"
        raise TypeError(f"frozen={frozen!r} is a {type(frozen).__name__}, expected a sequence of paths{advice}")
    return sorted(frozen, key=str)


def is_in(path, name):
    """Whether a path is ``name`` or begins with it.

    Examples
    --------
    >>> is_in("encoder.0.attention", "encoder.0"), is_in("encoder.01.attention", "encoder.0")
    (True, False)
    """
    return f"{path}.".startswith(f"{name}.")
