"""Every backward pass is the derivative of its forward pass."""

import sys
from functools import wraps

import numpy as np
import pytest
from oracles import assert_close

from npformer import reference
from npformer.gradients import CENTRAL_STEP, GradientError, cotangent, gradcheck
from npformer.gradients.case import INVERSE
from npformer.gradients.cases import CASES
from npformer.gradients.drawing import SIZES

DIFFERENTIABLE = [case for case in CASES if case.is_differentiable]
SMALLER = {11: 4, 13: 6, 17: 8, 19: 9, 23: 10, 67: 5, 71: 7}  # each number costs a forward pass
TILE = 4  # in proportion


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=str)
def test_gradient(case, monkeypatch):
    """At every entry by the complex step; by central differences along random directions,
    which move all entries.
    """
    sizes = {**SIZES, **case.sizes}
    if sizes["T"] > 64:
        monkeypatch.setattr(sys.modules["npformer.reference.math.flash_attention"], "BLOCK", TILE)
    smaller = {letter: SMALLER.get(size, size) for letter, size in sizes.items()}
    f, f_backward, args = case.derivative(**smaller)
    tolerances = {"complex_tolerance": 1e-13, "central_tolerance": None}
    gradcheck(f, f_backward, args.values(), names=args, **tolerances)
    dy = cotangent(f(*args.values()).shape)
    rng = np.random.default_rng(2)

    def loss_with(moved):
        return np.sum(dy * f(*(args | moved).values()))

    gradients = f_backward(dy, *args.values())
    largest = [np.abs(gradient).max() for gradient in gradients]
    for (name, x), gradient, size in zip(args.items(), gradients, largest, strict=True):
        for direction in rng.standard_normal((1, *x.shape)):
            step = CENTRAL_STEP * direction
            values = [loss_with({name: x + k * step}) for k in (-2, -1, 1, 2)]
            # of fourth order: all entries move at once
            slope = np.dot((1, -8, 8, -1), values) / (12 * CENTRAL_STEP)
            error = abs(slope - np.sum(gradient * direction))
            assert error <= 1e-8 * max(size, 1e-3 * max(largest)), name


def test_a_gradient_too_many_is_an_error(monkeypatch):
    backward = reference.softmax_backward

    @wraps(backward)
    def with_one_more(**arguments):
        return backward(**arguments), np.zeros(3)

    case = next(case for case in CASES if case.operation == "softmax")
    monkeypatch.setattr(reference, "softmax_backward", with_one_more)
    f, f_backward, args = case.derivative()
    with pytest.raises(GradientError, match="returned 2 gradients for 1 arguments"):
        gradcheck(f, f_backward, args.values())


def test_every_backward_has_a_case():
    records = [getattr(reference.ops, name).record for name in reference.Ops.names()]
    backwards = {record.forward.record.name for record in records if record.forward}
    losses = {x.name for x in records if "loss" in [y.name for y in x.contract.results]}
    assert backwards | losses | set(INVERSE) == {case.operation for case in DIFFERENTIABLE}


OF_SEVERAL = [case for case in DIFFERENTIABLE if len(case.derivative()[2]) > 1]


@pytest.mark.parametrize("case", OF_SEVERAL, ids=str)
def test_one_complex_argument_among_real_ones(case):
    """If only one argument is complex, as in the complex step,
    no result may be cast to real numbers.
    """
    f, _, args = case.derivative()

    def slope(arrays):
        return np.imag(f(*arrays.values())) / 1e-30

    for i, (name, x) in enumerate(args.items()):
        moved = {name: x + 1e-30j * np.random.default_rng(i).standard_normal(x.shape)}
        all_complex = {other: y + 0j for other, y in args.items()}
        expected = slope(all_complex | moved)
        assert np.abs(expected).max() > 0
        assert_close(slope(args | moved), expected, 1e-14 * np.abs(expected).max())
