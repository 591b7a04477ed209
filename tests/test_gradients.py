"""Every backward pass is the derivative of its forward pass."""

import numpy as np
import pytest
from oracles import assert_close

from npformer import reference
from npformer.gradcheck import gradcheck
from npformer.gradcheck.cases import all_cases

CASES = [pytest.param(case, id=f"{case.operation} {case.option}".strip()) for case in all_cases()]


@pytest.mark.parametrize("case", CASES)
def test_gradient(case):
    gradcheck(
        case.f,
        case.f_backward,
        case.args.values(),
        names=case.args,
        complex_tolerance=1e-13,
        central_tolerance=1e-8,
    )


def test_every_backward_has_a_case():
    backwards = {name.removesuffix("_backward") for name in reference.__all__ if name.endswith("_backward")}
    checked = {case.operation for case in all_cases()}
    losses = {"cross_entropy", "linear_cross_entropy", "paired_cross_entropy", "linear_paired_cross_entropy"}
    assert backwards | losses | {"split_heads", "merge_heads"} == checked


def every_second(x):
    """The same numbers as a view of an array twice as wide, with NaN in between."""
    wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan)
    wide[..., ::2] = x
    return wide[..., ::2]


def backwards_in_memory(x):
    """The same numbers as a view with all strides negative."""
    return np.flip(np.flip(x).copy())


LAYOUTS = {"every second": every_second, "Fortran": np.asfortranarray, "backwards": backwards_in_memory}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_memory_layout_changes_nothing(case, layout):
    args = list(case.args.values())
    y = np.asarray(case.f(*args))
    dy = np.random.default_rng(1).standard_normal(y.shape)
    strided_args = [LAYOUTS[layout](x) for x in args]
    strided_dy = LAYOUTS[layout](dy) if y.ndim else dy

    assert_close(case.f(*strided_args), y, 1e-14)
    expected, actual = case.f_backward(dy, *args), case.f_backward(strided_dy, *strided_args)
    for gradient, wanted in zip(as_tuple(actual), as_tuple(expected), strict=True):
        assert_close(gradient, wanted, 1e-14)


def as_tuple(gradients):
    return gradients if isinstance(gradients, tuple) else (gradients,)


@pytest.mark.parametrize("case", [param for param in CASES if len(param.values[0].args) > 1])
def test_one_complex_argument_among_real_ones(case):
    """As when only one argument is differentiated: nothing may be cast back to real on the way."""
    args = list(case.args.values())
    for i, x in enumerate(args):
        direction = np.random.default_rng(i).standard_normal(x.shape)
        alone = [a + 1e-30j * direction if j == i else a for j, a in enumerate(args)]
        together = [a + 1e-30j * direction if j == i else a + 0j for j, a in enumerate(args)]
        slope, expected = np.imag(case.f(*alone)) / 1e-30, np.imag(case.f(*together)) / 1e-30
        assert np.abs(expected).max() > 0
        assert_close(slope, expected, 1e-14)
