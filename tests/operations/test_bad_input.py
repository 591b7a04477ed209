"""Bad input has a defined result, or an error that says what was expected.

The error names the argument, and what was given.

What every operation turns away follows from its contract, and is tested for all arrays of all
operations; of options see ``test_bad_options.py``. ``docs/guides/bad-input.md`` is the list of what
is held here.
"""

import re
from collections import Counter
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_all_close
from refusals import refuses
from results import (
    FIRST,
    OPERATIONS,
    arguments_of,
    named_results,
    normal,
    run,
)
from tested import npf

from npformer import reference
from npformer.gradients.cases import CASES
from npformer.gradients.drawing import SIZES
from npformer.operations.contract import letters_of, may_be_none
from npformer.operations.shapes import match, shape_of

pytestmark = pytest.mark.usefixtures("every_backend")

B, H, T, S, K, KV, D, V = 2, 3, 5, 7, 11, 13, 17, 23


X = normal(B, T, D)
IDS = np.array([[3, 1, 4, 1, 5], [2, 6, 5, 0, 0]])
TABLE = normal(V, D)
LOGITS = normal(B, T, V)
QKV = {"q": normal(B, H, T, K), "k": normal(B, H, S, K), "v": normal(B, H, S, KV)}


def arrays_of_contract(name):
    return OPERATIONS[name].record.contract.arrays.values()


ARRAYS = [(name, argument) for name in FIRST for argument in arrays_of_contract(name)]
IDS_OF_ALL = [(name, argument) for name, argument in ARRAYS if argument.below]
each_of = partial(
    pytest.mark.parametrize, ("name", "argument"), ids=lambda x: getattr(x, "name", x)
)


def arguments_with(name, argument):
    """Valid arguments, among which this one is not None."""
    every = (case.arguments_of(name) for case in CASES if name in case.names)
    return next(arguments for arguments in every if arguments.get(argument) is not None)


def assert_raises(error, name, arguments, *texts):
    """The call raises this error, and its text contains one of these texts."""
    pattern = "|".join(map(re.escape, texts))
    refuses(error, pattern, getattr(npf, name), **arguments)


# The same mistakes in every array of every operation.


DTYPES = {  # by the kind of an argument: what is expected, and some dtypes that are wrong
    "mask": ("bool with True = may attend", "int64 uint8 float32 object"),
    "ids": ("integers", "float64 bool object"),
    "float": ("a float dtype", "int64 bool object"),
}


@each_of(ARRAYS)
def test_what_is_no_such_array(name, argument):
    """Something else, an array of another dtype, and one of another shape."""
    arguments = arguments_with(name, argument.name)
    x = arguments[argument.name]

    def refused(error, value, *texts):
        assert_raises(error, name, arguments | {argument.name: value}, *texts)

    def is_no_array(value, text):
        refused(TypeError, value, f"{argument.name} is {text}")

    is_no_array(tuple(x), "a tuple")
    is_no_array(x.tolist(), "a list, expected an array")
    is_no_array("0.1", "a str, expected an array")
    is_no_array(1.5, "a float, expected an array")
    if not may_be_none(OPERATIONS[name].record.parameters[argument.name]):
        is_no_array(None, "None")

    expected, wrong = DTYPES.get(argument.kind, DTYPES["float"])
    for dtype in wrong.split():
        text = f"{argument.name} has dtype {dtype}, expected {expected}"
        refused(TypeError, np.ones(x.shape, dtype), text)

    for shape in wrong_shapes(OPERATIONS[name].record.contract, argument, arguments):
        texts = f"{argument.name} has shape {shape}, expected ", f"from {argument.name} {shape}"
        refused(ValueError, np.zeros(shape, x.dtype), *texts)


def wrong_shapes(contract, argument, arguments):
    """Too many or too few axes, and each axis too long whose size is told by something else."""
    shape = arguments[argument.name].shape
    letters = Counter(letter for size in contract.sizes.values() for letter in size.letters)
    for x in contract.arrays.values():
        if arguments.get(x.name) is not None and not x.broadcasts:
            letters.update(letter for axis in x.axes for letter in {*letters_of(axis), axis})
    axes = [axis for axis in argument.axes if axis != "..."]
    leading = ["..."] * (len(shape) - len(axes))
    place = argument.axes.index("...") if "..." in argument.axes else 0
    for i, axis in enumerate(axes[:place] + leading + axes[place:]):
        if argument.broadcasts or axis.isdecimal() or "*" in axis or letters[axis] > 1:
            yield (*shape[:i], shape[i] + 1, *shape[i + 1 :])
    if argument.broadcasts or not leading or letters["..."] > 1:
        yield (1, *shape)
    if axes and not argument.broadcasts:
        yield ()


@pytest.mark.parametrize("name", FIRST)
def test_axes_of_no_entries(name):
    for letter in OPERATIONS[name].record.contract.not_empty:
        arguments = arguments_of(name)
        cut = [x for x in arrays_of_contract(name) if letter in letters_of(*x.axes)]
        arguments |= {x.name: without(letter, x.axes, arguments[x.name]) for x in cut}
        if cut:  # of a backward pass it may be none
            assert_raises(ValueError, name, arguments, f"{letter} at least 1", f"{letter}=0")


def without(letter, axes, x):
    """An array with no entries along the axes that have this letter."""
    for i, axis in enumerate(reversed(axes), start=1):
        if letter in letters_of(axis):
            x = np.take(x, [], axis=-i)
    return x


@each_of(IDS_OF_ALL)
def test_ids_of_any_width_that_are_out_of_range_or_not(name, argument):
    arguments = arguments_of(name)
    size = match(OPERATIONS[name].record.contract, arguments)[argument.below]
    ids = arguments[argument.name]
    last = tuple(n - 1 for n in ids.shape)
    for wrong in (-1, size, 2**40):
        changed = ids.copy()
        changed[last] = wrong
        text = f"{argument.name}{list(last)} is {wrong}, expected 0 <= id < {size}"
        assert_raises(ValueError, name, arguments | {argument.name: changed}, text)
    expected = run(npf, name, arguments_of(name))
    for dtype in ("int8", "uint8", "int16", "uint32", "uint64"):
        changed = arguments_of(name) | {argument.name: ids.astype(dtype)}
        assert_all_close(run(npf, name, changed), expected, 0)


def test_one_id_out_of_range():
    refuses(ValueError, r"ids\[\] is 23, expected 0 <= id < 23", npf.embedding, np.array(23), TABLE)


@pytest.mark.parametrize("ignore_id", [-100, -1, 23, 10**6])
def test_ignore_id_may_be_no_word(ignore_id):
    targets = IDS.copy()
    targets[1, 3:] = ignore_id
    loss, _ = npf.cross_entropy(LOGITS, targets, ignore_id=ignore_id)
    assert loss == npf.cross_entropy(LOGITS, IDS, ignore_id=0)[0]
    message = rf"targets\[1, 3\] is {ignore_id}, expected 0 <= id < 23"
    refuses(ValueError, message, npf.cross_entropy, LOGITS, targets)


def test_functions_that_are_no_operations_check_their_arguments():
    mask = npf.padding_mask
    refuses(ValueError, r"ids has shape \(5,\), expected \(B, S\)", mask, IDS[0])
    refuses(TypeError, "ids has dtype float64, expected integers", mask, IDS.astype(float))
    refuses(TypeError, "ids is a list, expected an array", mask, IDS.tolist())
    for dtype in ("int64", "float32", "uint8"):
        message = f"keep_mask has dtype {dtype}, expected bool"
        refuses(TypeError, message, npf.to_additive, np.ones((T, S), dtype))
    for dtype in ("int64", "bool"):
        message = f"mask has dtype {dtype}, expected a float dtype"
        refuses(TypeError, message, npf.from_additive, np.zeros(3, dtype))
    message = "dtype='int32', expected a float dtype"
    refuses(ValueError, message, npf.to_additive, np.ones(3, bool), "int32")
    refuses(TypeError, "path=.* is a float, expected an int", npf.derive_key, 1, 2.7)
    refuses(TypeError, "key=.* is a float, expected an int", npf.random_bits, np.arange(3), 2.7)
    refuses(TypeError, "index is a int, expected an array", npf.random_bits, -1, 3)
    message = "index has dtype float64, expected integers"
    refuses(TypeError, message, npf.random_bits, np.ones(3), 1)
    refuses(ValueError, "d_model=0, expected at least 1", npf.sinusoidal_encoding, 4, 0)
    for name, call in {
        "T": npf.causal_mask,
        "S": partial(npf.causal_mask, 3),
        "length": partial(npf.sinusoidal_encoding, d_model=4),
        "n": partial(npf.split_key, 1),
    }.items():
        refuses(ValueError, f"^{name}=-1, expected at least 0", call, -1)
        refuses(TypeError, f"^{name}='a' is a str, expected an int", call, "a")
        refuses(TypeError, f"^{name}=2.5 is a float, expected an int", call, 2.5)


# Widths and shapes.


def takes_scalars(name):
    """Whether all arrays may have any shape, and no axis is summed over."""
    has_an_axis = "axis" in OPERATIONS[name].record.parameters
    return not has_an_axis and all(x.axes == ("...",) for x in arrays_of_contract(name))


@pytest.mark.parametrize("name", [*filter(takes_scalars, FIRST)])
def test_a_scalar_of_numpy_is_an_array_without_axes(name):
    arrays = arrays_of_contract(name)
    scalars = arguments_of(name)
    for x in arrays:
        scalars[x.name] = np.True_ if x.kind == "mask" else np.float64(0.5)
    as_arrays = scalars | {x.name: np.array(scalars[x.name]) for x in arrays}
    expected = run(npf, name, as_arrays)
    np.testing.assert_allclose(run(npf, name, scalars), expected, rtol=1e-15)


@pytest.mark.parametrize("array", ["keep_mask", "bias"])
def test_masks_and_biases_that_do_not_broadcast(array):
    broadcast = "has shape (7, 5), expected one that broadcasts to (..., T, S)"
    sizes = "... = (2, 3) from q (2, 3, 5, 11), T = 5 from q (2, 3, 5, 11), S = 7 from k"
    pattern = f"{array} {re.escape(broadcast)}.*{re.escape(sizes)}"
    wrong = {array: np.ones((S, T), bool if array == "keep_mask" else float)}
    refuses(ValueError, pattern, npf.attention, **QKV, **wrong)
    refuses(ValueError, pattern, npf.flash_attention, **QKV, **wrong)


INDICES = {
    (B, S): ":, None, None",
    (B, T, S): ":, None",
    (B, H, S): ":, :, None",
    (B, 1, 1, 1, S): ":, 0",
}


@pytest.mark.parametrize("shape", INDICES, ids=str)
def test_masks_that_lack_an_axis_or_have_one_too_many(shape):
    mask = np.ones(shape, bool)
    index = INDICES[shape]
    pattern = rf"{re.escape(f'keep_mask has shape {shape}, ')}.*: try keep_mask\[{index}\]$"
    refuses(ValueError, pattern, npf.attention, **QKV, keep_mask=mask)
    npf.attention(**QKV, keep_mask=eval(f"mask[{index}]", {"mask": mask}))


def test_a_padding_mask_of_as_many_rows_as_heads_is_one_of_rows():
    x = normal(H, H, T, K)
    message = r"try keep_mask\[:, None, None\]"
    refuses(ValueError, message, npf.attention, x, x, x, np.ones((H, T), bool))


@pytest.mark.parametrize("n_taps", [2, 4])
def test_convolutions_without_a_tap_in_the_middle(n_taps):
    weight = np.ones((n_taps, D, 3))
    message = f"weight has W={n_taps} taps, expected an odd number"
    refuses(ValueError, message, npf.conv1d, X, weight)
    refuses(ValueError, message, npf.conv1d_backward, np.ones((B, T, 3)), X, weight)
    assert npf.conv1d(X, weight, causal=True).shape == (B, T, 3)


# Nothing at all: empty batches and sequences of length 0.


NO_ENTRIES = {"...", "B", "T", "S", "n"}  # letters that may be 0


def letters_that_may_be_0(name):
    return sorted(NO_ENTRIES & {axis for x in arrays_of_contract(name) for axis in x.axes})


@pytest.mark.filterwarnings("ignore:.* is counted, the loss is 0")
@pytest.mark.parametrize(
    ("name", "letter"), [(name, x) for name in FIRST for x in letters_that_may_be_0(name)]
)
def test_results_of_nothing_are_zeros_of_the_right_shape(name, letter):
    """A query that sees no key gets 0, and what many rows share has the gradient 0 of no rows;
    the logarithm of no sum is -inf.
    """
    contract = OPERATIONS[name].record.contract
    case = FIRST[name]
    sizes = {**SIZES, **case.sizes}
    sizes[letter] = (0, *sizes["..."][1:]) if letter == "..." else 0
    options = {x: value for x, value in case.options.items() if x not in ("ids", "targets")}
    arguments = case._replace(options=options, sizes=sizes).arguments_of(name)
    results = named_results(npf, name, arguments)
    sizes |= match(contract, dict.fromkeys(contract.arrays) | arguments)
    for result in contract.results:
        if result.name in results:
            shape = shape_of(result.axes, sizes)
            assert shape in (None, np.shape(results[result.name]))
    for x in results.values():
        assert np.all((x == 0) | np.isneginf(x))


def test_masks_and_positions_of_no_words():
    assert npf.padding_mask(np.zeros((B, 0), int)).shape == (B, 1, 1, 0)
    assert npf.causal_mask(0).shape == (0, 0)
    assert npf.sinusoidal_encoding(0, 6).shape == (0, 6)


def assert_zero(result, shape):
    loss, gradient = result
    assert loss == 0
    assert gradient.shape == shape
    assert not gradient.any()


@pytest.mark.parametrize("name", ["cross_entropy", "paired_cross_entropy"])
def test_all_targets_ignored(name, every_backend):
    logits = LOGITS
    options = {"ignore_id": 0, "label_smoothing": 0.1}
    if name == "paired_cross_entropy":
        logits = np.stack([LOGITS, LOGITS + 1])
        options["consistency"] = 0.5
    with pytest.warns(UserWarning, match="no target is counted, the loss is 0") as caught:
        result = getattr(npf, name)(logits, np.zeros((B, T), int), **options)
    assert caught[0].filename == __file__ or every_backend is not reference.ops
    assert_zero(result, logits.shape)


@pytest.mark.parametrize("name", ["mse_loss", "huber_loss"])
@pytest.mark.parametrize(("shape", "masked"), [((B, T), True), ((0, T), False), ((B, 0), True)])
def test_no_numbers_that_count(name, shape, masked):
    loss = getattr(npf, name)
    keep_mask = np.zeros((*shape[:-1], 1), bool) if masked else None
    arrays = np.full(shape, np.nan), np.ones(shape), keep_mask
    message = f"{name}: no entry is counted, the loss is 0"
    with pytest.warns(UserWarning, match=message) as caught:
        assert_zero(loss(*arrays), shape)
    assert caught[0].filename == __file__
    assert_zero(loss(*arrays, n_tokens=3), shape)


@pytest.mark.parametrize("name", ["mse_loss", "huber_loss"])
def test_numbers_are_not_broadcast_to_their_targets(name):
    loss = getattr(npf, name)
    message = r"targets has shape \(5,\), expected \(...,\) with ... = \(5, 1\) from x"
    refuses(ValueError, message, loss, np.zeros((T, 1)), np.zeros(T))
    message = r"keep_mask has shape \(2, 5\), .* try keep_mask\[:, :, None\]$"
    refuses(ValueError, message, loss, X, X, np.ones((B, T), bool))


# NaN and inf in the input.

# It is the same as nothing; or only the sign matters.
HOLD_BACK_NAN = {("is_same", "q"), ("is_same", "k")}
HOLD_BACK_NAN |= {("relu_backward", "x"), ("linear_activation_dropout_backward", "h")}
FLOATS = {(name, x.name) for name, x in ARRAYS if x.kind not in ("mask", "ids")}


@pytest.mark.parametrize(("name", "argument"), sorted(FLOATS - HOLD_BACK_NAN))
def test_nan_comes_out_again(name, argument):
    """Of every argument on which a result depends."""

    def results(change):
        arguments = arguments_of(name)
        if arguments[argument] is not None:
            arguments[argument] = change(arguments[argument])
        return run(npf, name, arguments)

    same = results(lambda x: x)
    other = results(lambda x: x + 0.5)
    nan = results(lambda x: x * np.nan)
    depends = not all(map(np.array_equal, same, other))
    assert depends == any(np.isnan(x).any() for x in nan)


# At -inf and at inf.
AT_INFINITY = {
    "relu": [0, np.inf],
    "tanh": [-1, 1],
    "sigmoid": [0, 1],
    "gelu": [np.nan, np.inf],
    "gelu_erf": [np.nan, np.inf],
    "silu": [np.nan, np.inf],
}


@pytest.mark.parametrize("name", AT_INFINITY)
def test_activations_at_infinity(name):
    with np.errstate(invalid="ignore"):  # -inf * 0
        y = getattr(npf, name)(np.array([-np.inf, np.inf]))
    assert_array_equal(y, AT_INFINITY[name])


@pytest.mark.parametrize("size", [300, 6e4, 2e13, 1e19, 1e20, 1e103, 1e155, np.inf])
@pytest.mark.parametrize("name", ["gelu", "gelu_erf"])
def test_gelu_far_from_0_is_0_or_its_input_and_its_slope_0_or_1(name, size):
    """The derivative of its inner function may overflow there,
    where 0 times infinity would be NaN.
    """
    for dtype in ("float16", "float32", "float64"):
        with np.errstate(over="ignore"):
            x = np.array([-size, -50, 50, size], dtype)
            slope = getattr(npf, f"{name}_backward")(np.ones_like(x), x)
            finite = x[np.isfinite(x)]
            y = getattr(npf, name)(finite)
        assert_array_equal(slope, [0, 0, 1, 1])
        assert_array_equal(y, np.maximum(finite, 0))


@pytest.mark.parametrize("name", [*AT_INFINITY, "softmax", "log_softmax"])
def test_nan_stays_in_its_row(name):
    x = normal(T, D)
    expected = getattr(npf, name)(x)
    x[2, 3] = np.nan
    y = getattr(npf, name)(x)
    assert np.isnan(y[2, 3])
    expected[2] = y[2]
    assert_array_equal(y, expected)


# What people write who are used to other libraries, and the one thing to try.

ONE_HOT = np.eye(V, dtype="float32")[IDS]
Q = normal(B, T, H, K)
OTHER = normal(B, S, H, K)
UNIQUE = ": try classes, targets = numpy.unique(targets, return_inverse=True)"


def advises(advice, name, *arguments, **options):
    refuses((TypeError, ValueError), re.escape(advice), getattr(npf, name), *arguments, **options)


def test_an_error_about_targets_says_what_to_try():
    one_hot = "its rows are one-hot, try targets.argmax(axis=-1)"
    advises(one_hot, "cross_entropy", LOGITS, ONE_HOT)
    advises(one_hot, "cross_entropy", LOGITS, ONE_HOT.astype(bool))
    perhaps = ": try targets.argmax(axis=-1) if its rows are one-hot"
    advises(perhaps, "cross_entropy", LOGITS, ONE_HOT.astype(int))
    advises(": try targets[..., 0]", "cross_entropy", LOGITS, IDS[..., None])
    advises(": try targets.T", "cross_entropy", LOGITS, IDS.T)
    advises(": try targets.astype('int64')", "cross_entropy", LOGITS, IDS.astype(float))
    advises(UNIQUE, "cross_entropy", LOGITS, IDS.astype(str))
    advises(UNIQUE, "cross_entropy", LOGITS, IDS.astype(str).astype(object))
    advises(UNIQUE, "cross_entropy", LOGITS[0, 0], ["cat"])
    advises(": try logits.swapaxes(1, 2)", "cross_entropy", LOGITS.swapaxes(1, 2), IDS)
    advises("are they in the wrong order?", "cross_entropy", IDS, LOGITS)
    other_id = np.where(IDS == 0, -100, IDS)
    advises("or ignore_id=-100 to leave it out", "cross_entropy", LOGITS, other_id)


def test_an_error_says_what_to_try():
    advises("are they in the wrong order?", "embedding", TABLE, IDS)
    advises(": encode the texts first", "embedding", np.array(["a", "b"]), TABLE)
    advises(": try weight.T", "linear", X, normal(H, D))
    advises(": try bias[0]", "linear", X, normal(D, H), normal(1, H))
    heads = "k.swapaxes(1, 2), v.swapaxes(1, 2), as heads come before positions"
    advises(heads, "attention", Q, OTHER, OTHER)
    advises(": try k.swapaxes(1, 2)", "attention", X, X.swapaxes(1, 2), X)
    advises("expected x, axis: try axis", "softmax", X, dim=-1)
    advises("expected q, k, v, keep_mask, bias, causal,", "attention", X, X, X, is_causal=True)
    advises("'gain' and 'bias', expected x, gain, bias, eps", "layer_norm", X)


def test_an_error_says_nothing_to_try_where_nothing_would_help():
    nothing = r"^(?!.*\btry\b).*"
    message = f"{nothing}targets has dtype float64, expected integers"
    refuses(TypeError, message, npf.cross_entropy, LOGITS, IDS + 0.5)
    message = rf"{nothing}expected \(D, F\) with D = 17 from x \(2, 5, 17\)"
    refuses(ValueError, message, npf.linear, X, normal(T, H))
