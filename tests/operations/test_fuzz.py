"""Kernels and reference agree on whatever the contracts allow, and on what they do not allow.

Cases of the table are drawn with other sizes, 0 and 1 among them, each array in a layout of its
own, masks that broadcast, large and tiny numbers, and NaN or infinity somewhere.
"""

import itertools
import os
import warnings
from functools import partial
from inspect import isfunction
from typing import NamedTuple

import layouts
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from numpy.testing import assert_array_equal
from results import FIRST, run, with_half_precision, written_by

from npformer import cpu, reference
from npformer.gradients.case import Case
from npformer.gradients.cases import CASES
from npformer.gradients.drawing import SIZES, Drawn
from npformer.operations.contract import letters_of

LAYOUTS = [x for name, x in vars(layouts).items() if isfunction(x) and not name.startswith("_")]
WRITEABLE = {*LAYOUTS} - {layouts.read_only, layouts.byte_swapped}
SCALES, POISONS = [1, 1, 1e-30, 1e4, 1e30], [None, None, np.nan, np.inf, -np.inf]
# if set, by tests/tools/fuzz_operations.py, other calls are drawn
IN_SHORT = "NPFORMER_FUZZ" not in os.environ
N_CALLS = int(os.environ.get("NPFORMER_FUZZ", 12))  # of each operation
# how much larger than in the table a difference may be: of few numbers, that may nearly cancel
MARGIN = 8


class Call(NamedTuple):
    """What is drawn."""

    case: Case
    name: str
    dtype: str
    sizes: dict
    scale: float
    poison: float | None
    seed: int
    layouts: list

    def __repr__(self):
        drawn = self._replace(case=str(self.case), layouts=[x.__name__ for x in self.layouts])
        return str(tuple(drawn))


@st.composite
def calls(draw, name):
    case = draw(st.sampled_from([case for case in CASES if name in case.names]))
    dtype = draw(st.sampled_from(with_half_precision(case)))
    sizes = draw(sizes_for(case))
    poison = draw(st.sampled_from(POISONS))
    # 0 times infinity is NaN
    scale = 1 if poison in (np.inf, -np.inf) else draw(st.sampled_from(SCALES))
    seed = draw(st.integers(0, 999))
    some_layouts = draw(st.lists(st.sampled_from(LAYOUTS), min_size=9, max_size=9))
    return Call(case, name, dtype, sizes, scale, poison, seed, some_layouts)


@st.composite
def sizes_for(draw, case):
    """Of all letters but those that ids are below, or that a name tells.

    Letters of equal size stay equal.
    """
    contract = case.forward.record.contract
    before = {**SIZES, **case.sizes}
    letters = {letter for x in contract.arrays.values() for letter in letters_of(*x.axes)}
    letters |= {letter for x in contract.sizes.values() for letter in x.letters}
    letters -= {x.below for x in contract.arrays.values()}
    size_of = {letter: before[letter] for letter in letters & before.keys()}
    new = {n: draw(st.sampled_from([0, 1, 2, 3, 5, 9])) for n in sorted({*size_of.values()})}
    leading = draw(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=3))
    return {"...": tuple(leading)} | {letter: new[n] for letter, n in size_of.items()}


def arguments_of(call):
    """The arguments as contiguous arrays.

    What a backward pass is given was saved by the forward pass.
    """
    rng = np.random.default_rng(call.seed)
    contract = call.case.forward.record.contract
    options = dict(call.case.options)
    for name, x in call.case.options.items():
        if is_drawn_mask(x, contract.arrays.get(name)):
            del options[name]
    case = call.case._replace(options=options, sizes={**call.case.sizes, **call.sizes})
    forward = case.arguments(seed=call.seed)
    for name, x in contract.arrays.items():
        if x.broadcasts and forward[name] is not None:
            forward[name] = smaller_mask(forward[name], rng)
    scale = np.clip(call.scale, 1e-4, 1e4) if call.dtype == "float16" else call.scale
    forward = each_array(lambda x: np.asarray(x * scale) if x.dtype.kind == "f" else x, forward)
    spoils_gradient = call.name != case.operation and rng.random() < 0.5
    if not spoils_gradient:
        spoil(forward, call.poison, rng)
    case = case._replace(options={**options, **forward})
    arguments = case.arguments_of(call.name, call.dtype, call.seed)
    if spoils_gradient:
        gradients = [f"d{x.name}" for x in contract.results]
        spoil({name: x for name, x in arguments.items() if name in gradients}, call.poison, rng)
    return arguments


def is_drawn_mask(x, argument):
    """Also ids: as the contract says, they can have any size."""
    return (
        isinstance(x, Drawn)
        and argument is not None
        and argument.kind in ("mask", "ids")
        and argument.name != "at"
    )


def smaller_mask(mask, rng):
    """Some axes of size 1, and some of the first axes left out."""
    for axis in np.flatnonzero(rng.random(mask.ndim) < 0.4):
        # there are integers that broadcast, too
        mask = mask.any(axis=axis, keepdims=True).astype(mask.dtype)
    n = rng.integers(mask.ndim + 1)
    if rng.random() < 0.4 and 0 not in mask.shape[:n]:
        mask = mask[(0,) * n]
    return np.asarray(mask)


def each_array(f, value):
    """A value with ``f`` of each array in it."""
    if isinstance(value, dict):
        return {name: each_array(f, x) for name, x in value.items()}
    if isinstance(value, tuple):
        return tuple(each_array(f, x) for x in value)
    return f(value) if isinstance(value, (np.ndarray, np.floating)) else value


def floats_in(value):
    """The arrays of floats in a value."""
    arrays = []
    each_array(arrays.append, value)
    return [x for x in arrays if x.dtype.kind == "f" and x.size]


def spoil(arguments, poison, rng):
    """Write NaN or infinity into one entry of one array."""
    arrays = floats_in(arguments)
    if arrays and poison is not None:
        x = arrays[rng.integers(len(arrays))]
        x[tuple(rng.integers(n) for n in x.shape)] = poison


def in_layouts(arguments, some_layouts, written):
    """Each array in the next of these layouts; but what is written is writeable,
    and its bytes are in order.
    """
    in_turn = itertools.cycle(some_layouts)

    def lay_out(name, x):
        layout = next(in_turn)
        may_change = x.ndim and (name not in written or layout in WRITEABLE)
        return layout(x.copy()) if may_change else x.copy()

    return {name: each_array(partial(lay_out, name), value) for name, value in arguments.items()}


def outcome(ops, name, arguments):
    """The results, or the error; and the warnings.

    What is not to be written stays as it was, bit for bit.
    """
    before = each_array(lambda x: x.tobytes(), arguments)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            results = [np.asarray(x) for x in run(ops, name, arguments)]
        except (TypeError, ValueError) as error:
            results = f"{type(error).__name__}: {error}"
    after = each_array(lambda x: x.tobytes(), arguments)
    assert {x for x in after if after[x] != before[x]} <= {*written_by(name)}
    return results, [str(warning.message) for warning in caught]


def assert_agree(actual, expected, atol):
    if isinstance(actual, str) or isinstance(expected, str):
        assert actual == expected
        return
    for i, (x, wanted) in enumerate(zip(actual, expected, strict=True)):
        assert (x.shape, x.dtype) == (wanted.shape, wanted.dtype), f"result {i}"
        if atol is None:
            continue
        finite = np.isfinite(wanted)
        assert_array_equal(x[~finite], wanted[~finite], err_msg=f"result {i}")
        np.testing.assert_allclose(x[finite], wanted[finite], 0, atol, err_msg=f"result {i}")


@pytest.mark.parametrize("name", FIRST)
@settings(
    max_examples=N_CALLS,
    derandomize=IN_SHORT,
    deadline=None,
    database=None,
    suppress_health_check=[*HealthCheck],
)
@given(st.data())
def test_the_backends_agree(name, data):
    call = data.draw(calls(name))
    # beyond it what overflows overflows, in each backend in its own way
    is_modest = call.scale <= 1
    with np.errstate(all="warn" if is_modest else "ignore", under="ignore"):
        try:
            arguments = arguments_of(call)
        except ValueError:
            assume(False)  # the forward pass refuses to compute what the backward pass takes
        expected, warned = outcome(reference, name, each_array(np.copy, arguments))
        # in some computation
        assert not is_modest or not any("encountered" in message for message in warned)
        atol = tolerance(call, arguments, expected) if is_modest else None
        for ops in (reference, cpu):
            actual, also_warned = outcome(
                ops, name, in_layouts(arguments, call.layouts, written_by(name))
            )
            assert_agree(actual, expected, atol)
            assert also_warned == warned


def tolerance(call, arguments, results):
    """By what results may differ.

    Units of the dtype's rounding error of the largest number there is.
    """
    arrays = floats_in((arguments, tuple(results)))
    largest = max((np.abs(x[np.isfinite(x)]).max(initial=0) for x in arrays), default=0)
    bound = max(call.case.bound, call.case.backward_bound, 1)
    return MARGIN * bound * np.finfo(call.dtype).eps * float(largest)
