"""Bad input has a defined result, or an error that says what was expected.

The error names the argument, and what was given.

What every operation turns away follows from its contract, and is tested for all arrays of all
operations; of options see ``test_bad_options.py``. ``docs/guides/bad-input.md`` is the list of what
is held here.
"""

import re
from collections import Counter
from itertools import product

import numpy as np
import pytest
from results import FIRST, OPERATIONS, arguments_of, run
from tested import npf

from npformer import reference
from npformer.gradients.cases import CASES
from npformer.operations.contract import letters_of, may_be_none
from npformer.operations.settings import AttentionSettings
from npformer.operations.shapes import match

pytestmark = pytest.mark.usefixtures("every_backend")

B, H, T, S, K, KV, D, V = 2, 3, 5, 7, 11, 13, 17, 23


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


X = normal(B, T, D)
IDS = np.array([[3, 1, 4, 1, 5], [2, 6, 5, 0, 0]])
TABLE = normal(V, D)
LOGITS = normal(B, T, V)


def arrays_of_contract(name):
    return OPERATIONS[name].record.contract.arrays.values()


ARRAYS = [(name, argument) for name in FIRST for argument in arrays_of_contract(name)]
IDS_BELOW = [(name, argument) for name, argument in ARRAYS if argument.below]
EVERY_ARRAY = pytest.mark.parametrize(
    ("name", "argument"), ARRAYS, ids=lambda x: getattr(x, "name", x)
)
ALL_IDS = pytest.mark.parametrize(
    ("name", "argument"), IDS_BELOW, ids=lambda x: getattr(x, "name", x)
)


def arguments_with(name, argument):
    """Valid arguments, among which this one is not None."""
    every = (case.arguments_of(name) for case in CASES if name in case.names)
    return next(arguments for arguments in every if arguments.get(argument) is not None)


def assert_raises(error, name, arguments, *texts):
    """The call raises this error, and its text contains one of these texts."""
    with pytest.raises(error) as caught:
        getattr(npf, name)(**arguments)
    assert any(text in str(caught.value) for text in texts), str(caught.value)


# The same mistakes in every array of every operation.


@EVERY_ARRAY
def test_no_array(name, argument):
    arguments = arguments_with(name, argument.name)
    wrong = [arguments[argument.name].tolist(), tuple(arguments[argument.name]), "0.1", 1.5]
    wrong += [] if may_be_none(OPERATIONS[name].record.parameters[argument.name]) else [None]
    for x in wrong:
        given = {type(None): "None", tuple: "a tuple"}.get(
            type(x), f"a {type(x).__name__}, expected an array"
        )
        expected = f"{argument.name} is {given}"
        assert_raises(TypeError, name, {**arguments, argument.name: x}, expected)


@EVERY_ARRAY
def test_dtypes_of_another_kind(name, argument):
    arguments = arguments_with(name, argument.name)
    expected = {"mask": "bool with True = may attend", "ids": "integers"}.get(
        argument.kind, "a float dtype"
    )
    wrong = {"mask": ["int64", "uint8", "float32", "object"], "ids": ["float64", "bool", "object"]}
    for dtype in wrong.get(argument.kind, ["int64", "bool", "object"]):
        x = np.ones(arguments[argument.name].shape, dtype)
        text = f"{argument.name} has dtype {dtype}, expected {expected}"
        assert_raises(TypeError, name, {**arguments, argument.name: x}, text)


@EVERY_ARRAY
def test_shapes_that_do_not_fit(name, argument):
    arguments = arguments_with(name, argument.name)
    x = arguments[argument.name]
    for shape in wrong_shapes(OPERATIONS[name].record.contract, argument, arguments):
        texts = f"{argument.name} has shape {shape}, expected ", f"from {argument.name} {shape}"
        assert_raises(
            ValueError, name, {**arguments, argument.name: np.zeros(shape, x.dtype)}, *texts
        )


def wrong_shapes(contract, argument, arguments):
    """Too many or too few axes, and each axis too long whose size is told by something else."""
    shape = arguments[argument.name].shape
    others = [
        x
        for x in contract.arrays.values()
        if arguments.get(x.name) is not None and not x.broadcasts
    ]
    letters = Counter(
        letter for x in others for axis in x.axes for letter in {*letters_of(axis), axis}
    )
    letters.update(letter for size in contract.sizes.values() for letter in size.letters)
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


@ALL_IDS
def test_ids_out_of_range(name, argument):
    arguments = arguments_of(name)
    size = match(OPERATIONS[name].record.contract, arguments)[argument.below]
    last = tuple(n - 1 for n in arguments[argument.name].shape)
    for wrong in (-1, size, 2**40):
        ids = arguments[argument.name].copy()
        ids[last] = wrong
        text = f"{argument.name}{list(last)} is {wrong}, expected 0 <= id < {size}"
        assert_raises(ValueError, name, {**arguments, argument.name: ids}, text)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "uint64"])
@ALL_IDS
def test_integers_of_any_width_are_ids(name, argument, dtype):
    arguments = arguments_of(name)
    expected = run(npf, name, arguments_of(name))
    arguments[argument.name] = arguments[argument.name].astype(dtype)
    for x, wanted in zip(run(npf, name, arguments), expected, strict=True):
        np.testing.assert_array_equal(x, wanted)


def test_one_id_out_of_range():
    with pytest.raises(ValueError, match=r"ids\[\] is 23, expected 0 <= id < 23"):
        npf.embedding(np.array(23), TABLE)


@pytest.mark.parametrize("ignore_id", [-100, -1, 23, 10**6])
def test_ignore_id_may_be_no_word(ignore_id):
    targets = IDS.copy()
    targets[1, 3:] = ignore_id
    loss, _ = npf.cross_entropy(LOGITS, targets, ignore_id=ignore_id)
    assert loss == npf.cross_entropy(LOGITS, IDS, ignore_id=0)[0]
    with pytest.raises(ValueError, match=rf"targets\[1, 3\] is {ignore_id}, expected 0 <= id < 23"):
        npf.cross_entropy(LOGITS, targets)


def test_padding_mask_wants_a_batch_of_sentences():
    with pytest.raises(ValueError, match=r"ids has shape \(5,\), expected \(B, S\)"):
        npf.padding_mask(IDS[0])
    with pytest.raises(TypeError, match="ids has dtype float64, expected integers"):
        npf.padding_mask(IDS.astype(float))
    with pytest.raises(TypeError, match="ids is a list, expected an array"):
        npf.padding_mask(IDS.tolist())


# Widths and shapes.


@pytest.mark.parametrize(
    "name", [name for name in FIRST if all(x.axes == ("...",) for x in arrays_of_contract(name))]
)
def test_a_scalar_of_numpy_is_an_array_without_axes(name):
    if "axis" in OPERATIONS[name].record.parameters:
        return  # which has none to sum over
    arguments = arguments_of(name)
    scalars = {
        x.name: np.True_ if x.kind == "mask" else np.float64(0.5) for x in arrays_of_contract(name)
    }
    arrays = {argument: np.array(x) for argument, x in scalars.items()}
    results = (run(npf, name, {**arguments, **given}) for given in (scalars, arrays))
    np.testing.assert_allclose(*results, rtol=1e-15)


@pytest.mark.parametrize("n_heads", [8, 4])
def test_width_not_divisible_by_heads(n_heads):
    with pytest.raises(
        ValueError, match=rf"x has shape \(1, 2, 510\), expected .* with H = {n_heads} from n_heads"
    ):
        npf.split_heads(np.zeros((1, 2, 510)), n_heads)
    with pytest.raises(
        ValueError,
        match=rf"qkv has shape \(1, 2, 1530\), expected .* with H = {n_heads} from settings",
    ):
        npf.self_attention(np.zeros((1, 2, 3 * 510)), AttentionSettings(n_heads))


@pytest.mark.parametrize("shape", [(5,), (7, 5), (4, 1, 1, 7), (1, 2, 3, 5, 7)])
def test_masks_and_biases_that_do_not_broadcast(shape):
    q, k, v = normal(B, H, T, K), normal(B, H, S, K), normal(B, H, S, KV)
    masks = {"keep_mask": np.ones(shape, bool), "bias": np.ones(shape)}
    for name, array in product(("attention", "flash_attention"), masks):
        with pytest.raises(ValueError) as error:
            getattr(npf, name)(q, k, v, **{array: masks[array]})
        assert f"{array} has shape {shape}, expected one that broadcasts to (..., T, S)" in str(
            error.value
        )
        assert "... = (2, 3) from q (2, 3, 5, 11), T = 5 from q (2, 3, 5, 11), S = 7 from k" in str(
            error.value
        )


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((B, S), ":, None, None"),
        ((B, T, S), ":, None"),
        ((B, H, S), ":, :, None"),
        ((B, 1, 1, 1, S), ":, 0"),
    ],
)
def test_masks_that_lack_an_axis_or_have_one_too_many(shape, index):
    q, k, v = normal(B, H, T, K), normal(B, H, S, K), normal(B, H, S, KV)
    mask = np.ones(shape, bool)
    with pytest.raises(ValueError, match=re.escape(f"keep_mask has shape {shape}, ")) as error:
        npf.attention(q, k, v, mask)
    assert str(error.value).endswith(f": try keep_mask[{index}]")
    npf.attention(q, k, v, eval(f"mask[{index}]", {"mask": mask}))


def test_a_padding_mask_of_as_many_rows_as_heads_is_one_of_rows():
    q, k, v = normal(H, H, T, K), normal(H, H, S, K), normal(H, H, S, KV)
    with pytest.raises(ValueError, match=re.escape("try keep_mask[:, None, None]")):
        npf.attention(q, k, v, np.ones((H, S), bool))


def test_masks_that_are_not_boolean():
    for dtype in ("int64", "float32", "uint8"):
        with pytest.raises(TypeError, match=f"keep_mask has dtype {dtype}, expected bool"):
            npf.to_additive(np.ones((T, S), dtype))


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_additive_masks_that_are_not_floats(dtype):
    with pytest.raises(TypeError, match=f"mask has dtype {dtype}, expected a float dtype"):
        npf.from_additive(np.zeros(3, dtype))


@pytest.mark.parametrize("n_taps", [2, 4])
def test_convolutions_without_a_tap_in_the_middle(n_taps):
    weight = np.ones((n_taps, D, 3))
    for f in (npf.conv1d, lambda *args: npf.conv1d_backward(np.ones((B, T, 3)), *args)):
        with pytest.raises(ValueError, match=f"weight has W={n_taps} taps, expected an odd number"):
            f(X, weight)
    assert npf.conv1d(X, weight, causal=True).shape == (B, T, 3)


def test_lengths_below_zero():
    for f, name in (
        (lambda n: npf.causal_mask(n), "T"),
        (lambda n: npf.causal_mask(3, n), "S"),
        (lambda n: npf.sinusoidal_encoding(n, 4), "length"),
        (lambda n: npf.split_key(1, n), "n"),
    ):
        with pytest.raises(ValueError, match=f"^{name}=-1, expected at least 0"):
            f(-1)
        for wrong in ("a", 2.5):
            with pytest.raises(
                TypeError, match=f"^{name}={wrong!r} is a {type(wrong).__name__}, expected an int"
            ):
                f(wrong)
    with pytest.raises(ValueError, match="d_model=0, expected at least 1"):
        npf.sinusoidal_encoding(4, 0)


def test_keys_and_paths_are_integers():
    with pytest.raises(TypeError, match="path=.* is a float, expected an int"):
        npf.derive_key(1, 2.7)
    with pytest.raises(TypeError, match="key=.* is a float, expected an int"):
        npf.random_bits(np.arange(3), 2.7)
    with pytest.raises(TypeError, match="index is a int, expected an array"):
        npf.random_bits(-1, 3)


def test_an_index_of_random_bits_is_an_integer():
    with pytest.raises(TypeError, match="index has dtype float64, expected integers"):
        npf.random_bits(np.ones(3), 1)


def test_an_additive_mask_holds_infinities():
    with pytest.raises(ValueError, match="dtype='int32', expected a float dtype"):
        npf.to_additive(np.ones(3, bool), "int32")


@pytest.mark.parametrize("d_model", [1, 3, 5, 511])
def test_odd_widths_lose_the_last_cosine(d_model):
    even = npf.sinusoidal_encoding(7, d_model)
    assert even.shape == (7, d_model)
    np.testing.assert_array_equal(
        even[:, -1], np.sin(np.arange(7) / 10000 ** ((d_model - 1) / d_model))
    )


# Nothing at all: empty batches and sequences of length 0.


@pytest.mark.parametrize("name", ["attention", "flash_attention"])
@pytest.mark.parametrize(("B", "T", "S"), [(0, 5, 7), (2, 0, 7), (2, 5, 0), (2, 0, 0)])
@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"dropout_rate": 0.3, "dropout_key": 7}], ids=str
)
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_nothing(name, B, T, S, options, masked):
    q = np.ones((B, H, T, K))
    k = np.ones((B, H, S, K))
    v = np.ones((B, H, S, KV))
    dout = np.ones((B, H, T, KV))
    keep_mask = np.ones((B, 1, T, S), bool) if masked else None
    out, saved = getattr(npf, name)(q, k, v, keep_mask, **options)
    assert out.shape == (B, H, T, KV)
    assert not out.any()
    if name == "attention":
        assert saved.shape == (B, H, T, S)
        options = {option: value for option, value in options.items() if option != "causal"}
        gradients = npf.attention_backward(dout, q, k, v, saved, **options)
    else:
        assert saved.shape == (B, H, T)
        assert np.isneginf(saved).all()
        gradients = npf.flash_attention_backward(dout, q, k, v, out, saved, keep_mask, **options)
    for gradient, array in zip(gradients, (q, k, v), strict=True):
        assert gradient.shape == array.shape
        assert not gradient.any()


@pytest.mark.parametrize(("B", "T"), [(0, 5), (2, 0), (0, 0)])
def test_layers_of_nothing(B, T):
    x, ids = np.ones((B, T, 6)), np.zeros((B, T), int)
    activations = [npf.relu, npf.gelu, npf.gelu_erf, npf.silu, npf.tanh, npf.sigmoid]
    for f in [*activations, npf.softmax, npf.log_softmax]:
        assert f(x).shape == x.shape
    assert npf.dropout(x, 0.3, 1).shape == x.shape
    assert npf.split_heads(x, 3).shape == (B, 3, T, 2)
    assert npf.merge_heads(npf.split_heads(x, 3)).shape == x.shape
    assert npf.self_attention(x, AttentionSettings(2))[0].shape == (B, T, 2)
    assert npf.padding_mask(ids).shape == (B, 1, 1, T)
    assert npf.causal_mask(T).shape == (T, T)
    assert npf.sinusoidal_encoding(T, 6).shape == (T, 6)

    assert npf.embed_tokens(ids, np.ones((5, 6)), np.ones((T, 6)), 0).shape == x.shape
    assert npf.embedding_backward(x, ids, (5, 6)).tolist() == np.zeros((5, 6)).tolist()

    y, mean, rstd = npf.layer_norm(x, np.ones(6), np.ones(6))
    dx, dgain, dbias = npf.layer_norm_backward(y, x, np.ones(6), mean, rstd)
    assert dx.shape == x.shape
    assert dgain.tolist() == dbias.tolist() == [0] * 6

    assert npf.conv1d(x, np.ones((3, 6, 4)), np.ones(4)).shape == (B, T, 4)
    dx, dweight, dbias = npf.conv1d_backward(np.ones((B, T, 4)), x, np.ones((3, 6, 4)), np.ones(4))
    assert dx.shape == x.shape
    assert not dweight.any()
    assert not dbias.any()

    assert npf.linear(x, np.ones((6, 4)), np.ones(4)).shape == (B, T, 4)
    dx, dweight, dbias = npf.linear_backward(np.ones((B, T, 4)), x, np.ones((6, 4)), np.ones(4))
    assert dx.shape == x.shape
    assert not dweight.any()
    assert not dbias.any()


def test_rows_of_no_entries():
    assert npf.softmax(np.ones((3, 0))).shape == (3, 0)
    with pytest.raises(
        ValueError, match=r"x has shape \(3, 0\), expected \(..., D\) with D at least 1"
    ):
        npf.layer_norm(np.ones((3, 0)), np.ones(0), np.ones(0))
    with pytest.raises(
        ValueError, match=r"logits has shape \(3, 0\), expected \(..., V\) with V at least 1"
    ):
        npf.cross_entropy(np.ones((3, 0)), np.zeros(3, int))


def test_all_targets_ignored(every_backend):
    with pytest.warns(UserWarning, match="no target is counted, the loss is 0") as caught:
        loss, dlogits = npf.cross_entropy(
            LOGITS, np.zeros((B, T), int), ignore_id=0, label_smoothing=0.1
        )
    assert caught[0].filename == __file__ or every_backend is not reference.ops
    assert loss == 0
    assert dlogits.shape == LOGITS.shape
    assert not dlogits.any()


def test_all_targets_of_pairs_ignored(every_backend):
    pairs = np.stack([LOGITS, LOGITS + 1])
    with pytest.warns(UserWarning, match="no target is counted, the loss is 0"):
        loss, dlogits = npf.paired_cross_entropy(pairs, np.zeros((B, T), int), 0.5, ignore_id=0)
    assert loss == 0
    assert dlogits.shape == pairs.shape
    assert not dlogits.any()


@pytest.mark.parametrize("name", ["mse_loss", "huber_loss"])
@pytest.mark.parametrize(("shape", "masked"), [((B, T), True), ((0, T), False), ((B, 0), True)])
def test_no_numbers_that_count(name, shape, masked, every_backend):
    given = (
        np.full(shape, np.nan),
        np.ones(shape),
        np.zeros((*shape[:-1], 1), bool) if masked else None,
    )
    with pytest.warns(UserWarning, match=f"{name}: no entry is counted, the loss is 0") as caught:
        warned = getattr(npf, name)(*given)
    assert caught[0].filename == __file__
    for loss, dx in (warned, getattr(npf, name)(*given, n_tokens=3)):
        assert loss == 0
        assert dx.shape == shape
        assert not dx.any()


@pytest.mark.parametrize("name", ["mse_loss", "huber_loss"])
def test_numbers_are_not_broadcast_to_their_targets(name):
    column, row = np.zeros((T, 1)), np.zeros(T)
    with pytest.raises(
        ValueError, match=r"targets has shape \(5,\), expected \(...,\) with ... = \(5, 1\) from x"
    ):
        getattr(npf, name)(column, row)
    with pytest.raises(
        ValueError, match=r"keep_mask has shape \(2, 5\), .* try keep_mask\[:, :, None\]$"
    ):
        getattr(npf, name)(X, X, np.ones((B, T), bool))


@pytest.mark.parametrize(("B", "T"), [(0, 5), (2, 0)])
def test_no_targets(B, T):
    with pytest.warns(UserWarning, match="no target is counted"):
        loss, dlogits = npf.cross_entropy(np.ones((B, T, V)), np.zeros((B, T), int))
    assert loss == 0
    assert dlogits.shape == (B, T, V)


# NaN and inf in the input.

HOLD_BACK_NAN = {("is_same", "q"), ("is_same", "k")}  # it is the same as nothing
# only the sign matters
HOLD_BACK_NAN |= {("relu_backward", "x"), ("linear_activation_dropout_backward", "h")}
FLOATS = {(name, x.name) for name, x in ARRAYS if x.kind not in ("mask", "ids")}


@pytest.mark.parametrize(("name", "argument"), sorted(FLOATS - HOLD_BACK_NAN))
def test_nan_comes_out_again(name, argument):
    """Of every argument on which a result depends."""

    def results(change):
        arguments = arguments_of(name)
        if argument not in arguments:  # what a forward pass returns on request
            arguments = arguments_with(name, argument)
        if arguments[argument] is not None:
            arguments[argument] = change(arguments[argument])
        return run(npf, name, arguments)

    same = results(lambda x: x)
    other = results(lambda x: x + 0.5)
    nan = results(lambda x: x * np.nan)
    depends = not all(map(np.array_equal, same, other))
    assert depends == any(np.isnan(x).any() for x in nan)


@pytest.mark.parametrize(
    ("name", "at_minus_infinity", "at_infinity"),
    [
        *[("relu", 0, np.inf), ("tanh", -1, 1), ("sigmoid", 0, 1)],
        *[(name, np.nan, np.inf) for name in ("gelu", "gelu_erf", "silu")],
    ],
)
def test_activations_at_infinity(name, at_minus_infinity, at_infinity):
    with np.errstate(invalid="ignore"):  # -inf * 0
        y = getattr(npf, name)(np.array([-np.inf, np.inf]))
    np.testing.assert_array_equal(y, [at_minus_infinity, at_infinity])


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("float32", 2e13),
        ("float32", 1e19),
        ("float32", 1e20),
        ("float64", 1e103),
        ("float64", 1e155),
        ("float64", np.inf),
    ],
)
@pytest.mark.parametrize("name", ["gelu", "gelu_erf"])
def test_the_slope_of_gelu_far_from_0_is_0_or_1(name, dtype, size):
    """The derivative of its inner function may overflow there,
    where 0 times infinity would be NaN.
    """
    x = np.array([-size, -50, 50, size], dtype)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            getattr(npf, f"{name}_backward")(np.ones_like(x), x), [0, 0, 1, 1]
        )


@pytest.mark.parametrize(
    "name", ["relu", "gelu", "gelu_erf", "silu", "tanh", "sigmoid", "softmax", "log_softmax"]
)
def test_nan_stays_in_its_row(name):
    x = normal(T, D)
    clean = getattr(npf, name)(x)
    x[2, 3] = np.nan
    y = getattr(npf, name)(x)
    assert np.isnan(y[2, 3])
    np.testing.assert_array_equal(np.delete(y, 2, axis=0), np.delete(clean, 2, axis=0))


# What people write who are used to other libraries, and the one thing to try.

ONE_HOT = np.eye(V, dtype="float32")[IDS]
Q, OTHER = normal(B, T, H, K), normal(B, S, H, K)
UNIQUE = ": try classes, targets = numpy.unique(targets, return_inverse=True)"
ADVICE = [
    ("cross_entropy", (LOGITS, ONE_HOT), "its rows are one-hot, try targets.argmax(axis=-1)"),
    (
        "cross_entropy",
        (LOGITS, ONE_HOT.astype(bool)),
        "its rows are one-hot, try targets.argmax(axis=-1)",
    ),
    (
        "cross_entropy",
        (LOGITS, ONE_HOT.astype(int)),
        ": try targets.argmax(axis=-1) if its rows are one-hot",
    ),
    ("cross_entropy", (LOGITS, IDS[..., None]), ": try targets[..., 0]"),
    ("cross_entropy", (LOGITS, IDS.T), ": try targets.T"),
    ("cross_entropy", (LOGITS, IDS.astype(float)), ": try targets.astype('int64')"),
    ("cross_entropy", (LOGITS, IDS + 0.5), "targets has dtype float64, expected integers"),
    ("cross_entropy", (LOGITS, IDS.astype(str)), UNIQUE),
    ("cross_entropy", (LOGITS, IDS.astype(str).astype(object)), UNIQUE),
    ("cross_entropy", (LOGITS[0, 0], ["cat"]), UNIQUE),
    ("cross_entropy", (LOGITS.swapaxes(1, 2), IDS), ": try logits.swapaxes(1, 2)"),
    ("cross_entropy", (IDS, LOGITS), "are they in the wrong order?"),
    ("cross_entropy", (LOGITS, np.where(IDS == 0, -100, IDS)), "or ignore_id=-100 to leave it out"),
    ("embedding", (TABLE, IDS), "are they in the wrong order?"),
    ("embedding", (np.array(["a", "b"]), TABLE), ": encode the texts first"),
    ("linear", (X, normal(H, D)), ": try weight.T"),
    ("linear", (X, normal(D, H), normal(1, H)), ": try bias[0]"),
    ("linear", (X, normal(T, H)), "expected (D, F) with D = 17 from x (2, 5, 17)"),
    (
        "attention",
        (Q, OTHER, OTHER),
        "k.swapaxes(1, 2), v.swapaxes(1, 2), as heads come before positions",
    ),
    ("attention", (X, X.swapaxes(1, 2), X), ": try k.swapaxes(1, 2)"),
    ("softmax", (X,), "expected x, axis", {"dim": -1}),
    ("attention", (X, X, X), "expected q, k, v, keep_mask, bias, causal,", {"is_causal": True}),
    ("layer_norm", (X,), "'gain' and 'bias', expected x, gain, bias, eps"),
]


@pytest.mark.parametrize(
    ("name", "arguments", "advice", "options"), [(*each, {})[:4] for each in ADVICE]
)
def test_an_error_says_what_to_try(name, arguments, advice, options):
    with pytest.raises((TypeError, ValueError)) as caught:
        getattr(npf, name)(*arguments, **options)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("name", "arguments"), [("cross_entropy", (LOGITS, IDS + 0.5)), ("linear", (X, normal(T, H)))]
)
def test_an_error_says_nothing_to_try_where_nothing_would_help(name, arguments):
    with pytest.raises((TypeError, ValueError), match="expected") as caught:
        getattr(npf, name)(*arguments)
    assert "try" not in str(caught.value)
