"""An option of another type or out of range has a defined result, or an error that names it:
in all operations.
"""

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refuses
from results import FIRST, OPERATIONS, arguments_of, run
from tested import npf

from npformer import cpu, reference
from npformer.operations.settings import AttentionSettings

PARAMETERS = {name: OPERATIONS[name].record.parameters for name in FIRST}
OPTIONS = []
for name in FIRST:
    arrays = OPERATIONS[name].record.contract.arrays
    OPTIONS += [(name, option) for option in PARAMETERS[name] if option not in arrays]
FLAGS = [(name, option) for name, option in OPTIONS if PARAMETERS[name][option].annotation is bool]


def those_called(*names):
    """A test runs for each operation that has an option of one of these names."""
    cases = [(name, option) for name, option in OPTIONS if option in names]
    return pytest.mark.parametrize(("name", "option"), cases)


def outcome_of(ops, name, option, value, dtype="float32"):
    """The results, or a clean error."""
    try:
        # a backward pass whose scale is not that of the forward pass
        with np.errstate(over="ignore"):
            return run(ops, name, {**arguments_of(name, dtype), option: value})
    except (TypeError, ValueError) as error:
        assert option in str(error)
        return f"{type(error).__name__}: {error}"


def assert_same(outcome, expected):
    if isinstance(outcome, list) and isinstance(expected, list):
        outcome = [np.asarray(x) for x in outcome]
        expected = [np.asarray(x) for x in expected]
    np.testing.assert_equal(outcome, expected)


VALUES = [None, True, 0, 1, 3, -1, 10**30, -(10**30), 10**400, 0.1]
VALUES += [1.5, math.nan, math.inf, 1j, "0.1", "relu", b"relu"]
VALUES += [[3], (3,), (23.0, 17), (-1, 17), [23, 17], np.array(3)]
VALUES += [np.array([0.1, 0.2]), Fraction(1, 3), Decimal("0.1")]
SCALARS = [np.True_, np.int8(3), np.uint8(2), np.uint64(2**63)]
SCALARS += [np.float16(0.5), np.float32(0.5), np.str_("relu")]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_any_value_gives_a_result_or_an_error_that_names_the_option(name, option):
    """Both backends raise the same error, and accept NumPy scalars like Python numbers."""
    for value in VALUES + SCALARS:
        outcome = outcome_of(cpu, name, option, value)
        expected = outcome_of(reference, name, option, value)
        if isinstance(outcome, str) or isinstance(expected, str):
            assert outcome == expected
        elif isinstance(value, np.generic):
            assert_same(outcome, outcome_of(cpu, name, option, value.item()))


@pytest.mark.parametrize(("name", "option"), FLAGS)
def test_flags_are_flags(name, option):
    for value in (True, False):
        outcome = outcome_of(npf, name, option, np.bool_(value))
        assert_same(outcome, outcome_of(npf, name, option, value))
    for value in (np.float16(1), 1.0, 2, -1, "True", None):
        text = f"{option}={value!r} is a {type(value).__name__}, expected True or False"
        assert outcome_of(npf, name, option, value) == f"TypeError: {text}"


FINITE_ABOVE_0 = [0.0, -1e-5, math.nan, math.inf], "a finite number above 0"
OUT_OF_RANGE: dict[str, tuple[list, str]] = {
    "label_smoothing": ([-0.1, 1.1, math.nan], "0 <= label_smoothing <= 1"),
    "activation": (["swish"], "'relu', 'gelu', 'gelu_erf', 'silu' or 'swiglu'"),
    "score": (["general"], "'dot', 'scaled_dot', 'cosine', 'bilinear' or 'additive'"),
    "table_shape": ([(-1, 17), (23,)], "2 sizes of 0 or more"),
}
for name in ("n_heads", "k", "step", "n_tokens", "dilation"):
    OUT_OF_RANGE[name] = [0, -1], "at least 1"
for name in ("dropout_rate", "beta1", "beta2", "momentum"):
    OUT_OF_RANGE[name] = [-0.1, 1.0, 30.0, math.nan], f"0 <= {name} < 1"
for name in ("eps", "scale", "delta"):
    OUT_OF_RANGE[name] = FINITE_ABOVE_0
for name in ("consistency", "lr", "weight_decay"):
    OUT_OF_RANGE[name] = [-0.1, math.nan, math.inf], "a finite number of 0 or more"
for name in ("pad_id", "ignore_id", "axis"):
    OUT_OF_RANGE[name] = [10**30, -(2**64)], "an int of 64 bits"


@those_called(*OUT_OF_RANGE)
def test_values_out_of_range(name, option):
    values, expected = OUT_OF_RANGE[option]
    for value in values:
        text = f"UserError: {option}={value!r}, expected {expected}"
        assert outcome_of(npf, name, option, value) == text


@those_called("dropout_key")
def test_dropout_without_a_key(name, option):
    arguments = arguments_of(name)
    if "settings" in arguments:
        arguments["settings"] = replace(arguments["settings"], dropout_rate=0.3)
    else:
        arguments["dropout_rate"] = 0.3
    operation = partial(getattr(npf, name), **arguments)
    needed = r"dropout_rate=0.3 needs a dropout_key \(an integer\) .*, got dropout_key=None"
    refuses(ValueError, needed, operation, dropout_key=None)
    for key in (1.5, "7", True):
        message = f"dropout_key=.* is a {type(key).__name__}, expected an int"
        refuses(TypeError, message, operation, dropout_key=key)
    for key in (-1, 2**64 - 1, 10**30, np.int8(3), np.uint64(2**63)):
        operation(dropout_key=key)


def test_sizes_and_flags_of_any_width():
    """Options that were once multiplied as 8-bit integers, or took another path."""
    x = np.ones((2, 300, 5))
    weight = np.ones((3, 5, 7))
    qkv = np.random.default_rng(0).standard_normal((2, 5, 3 * 129))
    for ops in (reference, cpu):
        expected = ops.conv1d(x, weight, dilation=100)
        expected_heads, *_ = ops.self_attention(qkv, AttentionSettings(3))
        for width in (np.int8, np.uint8, np.int64):
            assert_array_equal(ops.conv1d(x, weight, dilation=width(100)), expected)
            heads, *_ = ops.self_attention(qkv, AttentionSettings(width(3)))
            assert_array_equal(heads, expected_heads)


def test_momentum_without_a_velocity():
    message = "momentum=0.9, nesterov=False need a velocity array, got velocity=None"
    x = np.ones(3)
    refuses(ValueError, message, npf.sgd_update, x, x, None, lr=0.1, momentum=0.9)


def test_options_that_do_not_exist():
    message = r"linear\(\) got an unexpected keyword argument 'biass'"
    refuses(TypeError, message, npf.linear, np.ones((1, 1)), np.ones((1, 1)), biass=None)
    message = r"linear\(\) missing 1 required positional argument: 'weight'"
    refuses(TypeError, message, npf.linear, np.ones((1, 1)))
    message = "layout='sines first', expected 'interleaved' or 'concatenated'"
    refuses(ValueError, message, npf.sinusoidal_encoding, 4, 4, "sines first")
    for dtype in ("float31", "int64", bool, None, np.void(1)):
        message = "dtype=.*, expected a dtype of floats, such as 'float32'"
        refuses(TypeError, message, npf.sinusoidal_encoding, 4, 4, dtype=dtype)


def test_a_table_larger_than_any_array():
    message = r"table_shape=\(4611686018427387904, 2\), expected fewer entries"
    arrays = np.ones((1, 2)), np.array([0])
    refuses(ValueError, message, npf.embedding_backward, *arrays, (2**62, 2))


@those_called("eps", "delta")
def test_an_option_that_is_0_in_the_dtype_of_the_arrays(every_backend, name, option):
    message = f"{option}=1e-46 is 0.0 in float32, expected a number that float32 can hold"
    assert isinstance(outcome_of(npf, name, option, 1e-46, "float64"), list)
    for dtype in ("float32", "float16"):  # which is computed in float32
        arguments = arguments_of(name, dtype)
        refuses(ValueError, message, run, npf, name, arguments | {option: 1e-46})
    run(npf, name, arguments_of(name, "float32") | {option: 1e-40})
