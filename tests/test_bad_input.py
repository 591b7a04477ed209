"""Bad input has a defined result, or an error that names the argument, what was given and what was expected.

``docs/bad-input.md`` is the list of what is held here.
"""

import numpy as np
import pytest
from operations import arrays_of, valid_calls

import npformer as npf
from npformer import reference

pytestmark = pytest.mark.usefixtures("every_backend")

B, H, T, S, K, KV, D, V = 2, 3, 5, 7, 11, 13, 17, 23


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


Q, KEYS, VALUES, DOUT = normal(B, H, T, K), normal(B, H, S, K), normal(B, H, S, KV), normal(B, H, T, KV)
X, IDS, TABLE, LOGITS = normal(B, T, D), np.array([[3, 1, 4, 1, 5], [2, 6, 5, 0, 0]]), normal(V, D), normal(B, T, V)


# The same three mistakes in every argument of every operation.

FLOAT_ARGUMENTS = [
    (name, argument)
    for name, arguments in valid_calls().items()
    for argument, value in arguments.items()
    if isinstance(value, np.ndarray) and value.dtype == "float64"
]
INTEGER_ARGUMENTS = [(name, "ids") for name in valid_calls() if name.startswith("embed")] + [
    (name, "targets") for name in valid_calls() if name.endswith("cross_entropy")
]


def call_with(name, argument, change):
    arguments = valid_calls()[name]
    arguments[argument] = change(arguments[argument])
    return getattr(npf, name)(**arguments)


@pytest.mark.parametrize(("name", "argument"), FLOAT_ARGUMENTS)
def test_integers_where_floats_are_expected(name, argument):
    with pytest.raises(TypeError, match=rf"{argument} has dtype int64, expected a float dtype"):
        call_with(name, argument, lambda array: np.ones(array.shape, "int64"))


@pytest.mark.parametrize(("name", "argument"), [*FLOAT_ARGUMENTS, *INTEGER_ARGUMENTS])
def test_lists_where_arrays_are_expected(name, argument):
    with pytest.raises(TypeError, match=rf"{argument} is a list, expected an array"):
        call_with(name, argument, lambda array: array.tolist())


FIT_ANY_SHAPE = {"relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "log_softmax", "dropout", "dropout_backward"}
FIT_ANY_SHAPE |= {"log_softmax_top_k"}
NAMED_BY_ANOTHER = {("layer_norm", "x")}  # the error shows gain


@pytest.mark.parametrize(
    ("name", "argument"),
    [pair for pair in FLOAT_ARGUMENTS if pair[0] not in FIT_ANY_SHAPE | {"merge_heads", "split_heads"}],
)
@pytest.mark.parametrize("shape", [(29,), (29, 31), (29, 1, 31, 1, 1)])
def test_shapes_that_do_not_fit(name, argument, shape):
    if argument == "table":
        shape = (*shape, 1, 1)  # two axes of any size would do
    if (name, argument) == ("linear", "x"):
        argument = "weight"  # any shape of x fits some weight
    with pytest.raises(
        ValueError, match=r"expected|not divisible|do not split|must be equal|must have the same"
    ) as error:
        call_with(name, argument, lambda array: np.ones(shape))
    if (name, argument) not in NAMED_BY_ANOTHER:
        assert str(shape) in str(error.value)


@pytest.mark.parametrize(("name", "argument"), [pair for pair in INTEGER_ARGUMENTS if pair[0] != "embedding"])
def test_ids_of_another_shape(name, argument):
    with pytest.raises(ValueError, match=r"has shape .*, expected|targets \((2, 4|4,)\), logits .*: expected"):
        call_with(name, argument, lambda ids: ids[..., :-1])


@pytest.mark.parametrize("x", [np.float64(1.0), np.array(1.0)])
def test_scalars_where_rows_are_expected(x):
    with pytest.raises(ValueError, match=r"x has shape \(\), expected a last axis"):
        npf.layer_norm(x, np.ones(1), np.ones(1))
    with pytest.raises(ValueError, match=r"x has shape \(\), expected \(..., T, D\)"):
        npf.split_heads(x, 1)
    with pytest.raises(ValueError, match=r"x has shape \(\), expected \(..., H, T, K\)"):
        npf.merge_heads(x)
    with pytest.raises(ValueError, match=r"x \(\), weight \(1, 1\): expected x \(..., D_in\)"):
        npf.linear(x, np.ones((1, 1)))
    with pytest.raises(ValueError, match=r"logits have shape \(\), expected \(..., V\)"):
        npf.cross_entropy(x, np.array(0))
    assert npf.softmax(x) == 1


# Token ids.


@pytest.mark.parametrize(("name", "argument"), INTEGER_ARGUMENTS)
@pytest.mark.parametrize("dtype", ["float64", "bool"])
def test_ids_that_are_not_integers(name, argument, dtype):
    with pytest.raises(TypeError, match=f"{argument} has dtype {dtype}, expected integers"):
        call_with(name, argument, lambda ids: ids.astype(dtype))


@pytest.mark.parametrize(("name", "argument"), INTEGER_ARGUMENTS)
@pytest.mark.parametrize("wrong", [-1, 23, 2**40])
def test_ids_out_of_range(name, argument, wrong):
    def change(ids):
        ids = ids.copy()
        ids[(1, 2)[-ids.ndim :]] = wrong
        return ids

    place, call = "2" if "paired" in name else "1, 2", valid_calls()[name]
    size = 23 if name.startswith("embed") else call.get("logits", call.get("bias")).shape[-1]
    with pytest.raises(ValueError, match=rf"{argument}\[{place}\] is {wrong}, expected 0 <= id < {size}"):
        call_with(name, argument, change)


def test_one_id_out_of_range():
    with pytest.raises(ValueError, match=r"ids\[\] is 23, expected 0 <= id < 23"):
        npf.embedding(np.array(23), TABLE)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "uint64"])
def test_integers_of_any_width_are_ids(dtype):
    ids = IDS.astype(dtype)
    np.testing.assert_array_equal(npf.embedding(ids, TABLE), npf.embedding(IDS, TABLE))
    assert npf.cross_entropy(LOGITS, ids, ignore_id=-100)[0] == npf.cross_entropy(LOGITS, IDS)[0]


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


@pytest.mark.parametrize("n_heads", [8, 0, -1])
def test_width_not_divisible_by_heads(n_heads):
    with pytest.raises(ValueError, match=f"d_model=510 is not divisible by n_heads={n_heads}"):
        npf.split_heads(np.zeros((1, 2, 510)), n_heads)
    with pytest.raises(ValueError, match=rf"n_heads={n_heads}"):
        npf.self_attention(np.zeros((1, 2, 3 * 510)), n_heads)


ATTENTION_SHAPES = {
    "K": ((5, 11), (7, 12), (7, 13), "q and k must have the same last axis"),
    "S": ((5, 11), (7, 11), (8, 13), "k and v must have the same axis -2"),
    "batch": ((2, 5, 11), (3, 7, 11), (3, 7, 13), "axes before the last two must be equal"),
    "heads missing": ((2, 5, 11), (7, 11), (7, 13), "axes before the last two must be equal"),
    "one axis": ((11,), (7, 11), (7, 13), r"expected q \(..., T, K\)"),
    "no width": ((5, 0), (7, 0), (7, 13), "the head width K >= 1"),
}


@pytest.mark.parametrize("name", ["attention", "flash_attention"])
@pytest.mark.parametrize("case", ATTENTION_SHAPES)
def test_attention_shapes_that_do_not_fit(name, case):
    q, k, v, message = ATTENTION_SHAPES[case]
    with pytest.raises(ValueError, match=message) as error:
        getattr(npf, name)(np.zeros(q), np.zeros(k), np.zeros(v))
    assert f"q {q}, k {k}, v {v}" in str(error.value)


@pytest.mark.parametrize("name", ["attention", "flash_attention", "flash_attention_backward"])
@pytest.mark.parametrize("shape", [(5,), (7, 5), (4, 1, 1, 7), (1, 2, 3, 5, 7)])
def test_masks_that_do_not_broadcast(name, shape):
    with pytest.raises(ValueError) as error:
        call_with(name, "keep_mask", lambda mask: np.ones(shape, bool))
    assert f"keep_mask {shape} does not broadcast to (2, 3, 5, 7), the scores (..., T, S)" in str(error.value)


@pytest.mark.parametrize("name", ["attention", "flash_attention", "flash_attention_backward"])
@pytest.mark.parametrize("dtype", ["int64", "float32", "uint8"])
def test_masks_that_are_not_boolean(name, dtype):
    with pytest.raises(TypeError, match=f"keep_mask has dtype {dtype}, expected bool with True = may attend"):
        call_with(name, "keep_mask", lambda mask: mask.astype(dtype))
    with pytest.raises(TypeError, match="keep_mask is a list, expected an array"):
        call_with(name, "keep_mask", lambda mask: mask.tolist())
    with pytest.raises(TypeError, match="expected bool"):
        npf.to_additive(np.ones((T, S), dtype))


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_additive_masks_that_are_not_floats(dtype):
    with pytest.raises(TypeError, match=f"mask has dtype {dtype}, expected floats that are 0 or -inf"):
        npf.from_additive(np.zeros(3, dtype))


@pytest.mark.parametrize("n_taps", [0, 2, 4])
def test_convolutions_without_a_tap_in_the_middle(n_taps):
    weight = np.ones((n_taps, D, 3))
    for f in (npf.conv1d, lambda *args: npf.conv1d_backward(np.ones((B, T, 3)), *args)):
        with pytest.raises(ValueError, match=f"weight has W={n_taps} taps, expected an odd number"):
            f(X, weight)
    if n_taps:
        assert npf.conv1d(X, weight, causal=True).shape == (B, T, 3)
    else:
        with pytest.raises(ValueError, match="weight has W=0 taps"):
            npf.conv1d(X, weight, causal=True)


@pytest.mark.parametrize("dilation", [0, -1])
def test_dilations_below_one(dilation):
    with pytest.raises(ValueError, match=f"dilation={dilation}, expected at least 1"):
        npf.conv1d(X, np.ones((3, D, 3)), dilation=dilation)
    for wrong in (2.0, True, "2"):
        with pytest.raises(TypeError, match=f"dilation={wrong!r} is a {type(wrong).__name__}, expected an int"):
            npf.conv1d(X, np.ones((3, D, 3)), dilation=wrong)


def test_lengths_below_zero():
    with pytest.raises(ValueError, match="T=-1, S=-1: expected lengths of 0 or more"):
        npf.causal_mask(-1)
    with pytest.raises(ValueError, match="length=-1, d_model=4: expected length >= 0 and d_model >= 1"):
        npf.sinusoidal_encoding(-1, 4)
    with pytest.raises(ValueError, match="length=4, d_model=0"):
        npf.sinusoidal_encoding(4, 0)


@pytest.mark.parametrize("d_model", [1, 3, 5, 511])
def test_odd_widths_lose_the_last_cosine(d_model):
    even = npf.sinusoidal_encoding(7, d_model)
    assert even.shape == (7, d_model)
    np.testing.assert_array_equal(even[:, -1], np.sin(np.arange(7) / 10000 ** ((d_model - 1) / d_model)))


def test_unknown_names():
    with pytest.raises(ValueError, match="layout='sines first', expected 'interleaved' or 'concatenated'"):
        npf.sinusoidal_encoding(4, 4, "sines first")
    with pytest.raises(ValueError, match=r"activation='swish', expected one of \['gelu', 'relu', 'silu'\]"):
        call_with("linear_activation_dropout", "activation", lambda _: "swish")
    with pytest.raises(ValueError, match="activation='swish', expected one of"):
        call_with("linear_activation_dropout_backward", "activation", lambda _: "swish")


# Rates and constants.

WITH_DROPOUT = [
    (name, argument)
    for name, arguments in valid_calls().items()
    for argument in arguments
    if argument in ("rate", "dropout_rate")
]


@pytest.mark.parametrize(("name", "argument"), WITH_DROPOUT)
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1, 30, np.nan])
def test_dropout_rates_outside_zero_to_one(name, argument, rate):
    with pytest.raises(ValueError, match=f"rate={rate}, expected 0 <= "):
        call_with(name, argument, lambda _: rate)


@pytest.mark.parametrize("name", [name for name, _ in WITH_DROPOUT])
def test_dropout_without_a_key(name):
    with pytest.raises(ValueError, match=r"rate=0.3 needs a key \(an integer\) to draw from, got key=None"):
        call_with(name, "key", lambda _: None)
    for key in (1.5, "7", True):
        with pytest.raises(TypeError, match=f"key is a {type(key).__name__}, expected an integer"):
            call_with(name, "key", lambda _, key=key: key)


@pytest.mark.parametrize("eps", [0.0, -1e-5, np.nan, np.inf])
def test_eps_of_layer_norm(eps):
    with pytest.raises(ValueError, match=f"eps={eps}, expected a finite number above 0"):
        npf.layer_norm(X, np.ones(D), np.ones(D), eps)


@pytest.mark.parametrize("label_smoothing", [-0.1, 1.1, np.nan])
def test_label_smoothing_outside_zero_to_one(label_smoothing):
    with pytest.raises(ValueError, match=f"label_smoothing={label_smoothing}, expected 0 <= label_smoothing <= 1"):
        npf.cross_entropy(LOGITS, IDS, label_smoothing=label_smoothing)


def test_momentum_without_a_velocity():
    with pytest.raises(ValueError, match="momentum=0.9, nesterov=False need a velocity array, got velocity=None"):
        npf.sgd_update(np.ones(3), np.ones(3), None, lr=0.1, momentum=0.9)


def test_updates_of_other_shapes():
    with pytest.raises(ValueError, match=r"grad has shape \(1,\), expected \(3,\)"):
        npf.sgd_update(np.ones(3), np.ones(1), None, lr=0.1)
    with pytest.raises(ValueError, match=r"velocity has shape \(1,\), expected \(3,\)"):
        npf.sgd_update(np.ones(3), np.ones(3), np.ones(1), lr=0.1)
    for wrong in range(3):
        grad, m, v = (np.ones(1) if i == wrong else np.ones(3) for i in range(3))
        with pytest.raises(ValueError, match=rf"{['grad', 'm', 'v'][wrong]} has shape \(1,\), expected \(3,\)"):
            npf.adam_update(np.ones(3), grad, m, v, lr=0.1, step=1)


def test_steps_count_from_one():
    with pytest.raises(ValueError, match="step=0, expected a finite number above 0"):
        npf.adam_update(np.ones(3), np.ones(3), np.ones(3), np.ones(3), lr=0.1, step=0)


# Nothing at all: empty batches and sequences of length 0.


@pytest.mark.parametrize("name", ["attention", "flash_attention"])
@pytest.mark.parametrize(("B", "T", "S"), [(0, 5, 7), (2, 0, 7), (2, 5, 0), (2, 0, 0)])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"dropout_rate": 0.3, "key": 7}], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_nothing(name, B, T, S, options, masked):
    q, k, v, dout = np.ones((B, H, T, K)), np.ones((B, H, S, K)), np.ones((B, H, S, KV)), np.ones((B, H, T, KV))
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
    for f in (npf.relu, npf.gelu, npf.silu, npf.tanh, npf.sigmoid, npf.softmax, npf.log_softmax):
        assert f(x).shape == x.shape
    assert npf.dropout(x, 0.3, 1).shape == x.shape
    assert npf.split_heads(x, 3).shape == (B, 3, T, 2)
    assert npf.merge_heads(npf.split_heads(x, 3)).shape == x.shape
    assert npf.self_attention(x, 2)[0].shape == (B, T, 2)
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
    with pytest.raises(ValueError, match=r"x has shape \(3, 0\), expected a last axis of at least 1"):
        npf.layer_norm(np.ones((3, 0)), np.ones(0), np.ones(0))
    with pytest.raises(ValueError, match=r"logits have shape \(3, 0\), expected \(..., V\) with V >= 1"):
        npf.cross_entropy(np.ones((3, 0)), np.zeros(3, int))


def test_all_targets_ignored(every_backend):
    with pytest.warns(UserWarning, match="no target is counted, the loss is 0") as caught:
        loss, dlogits = npf.cross_entropy(LOGITS, np.zeros((B, T), int), ignore_id=0, label_smoothing=0.1)
    assert caught[0].filename == __file__ or every_backend is not reference
    assert loss == 0
    assert dlogits.shape == LOGITS.shape
    assert not dlogits.any()


@pytest.mark.parametrize(("B", "T"), [(0, 5), (2, 0)])
def test_no_targets(B, T):
    with pytest.warns(UserWarning, match="no target is counted"):
        loss, dlogits = npf.cross_entropy(np.ones((B, T, V)), np.zeros((B, T), int))
    assert loss == 0
    assert dlogits.shape == (B, T, V)


# NaN and inf in the input.

NOT_IN_THE_RESULT = {("is_same", "q"), ("is_same", "k")}  # NaN is the same as nothing
NOT_IN_THE_RESULT |= {("relu_backward", "x")} | {  # which needs the sign of x only, and no gradient depends on a bias
    pair
    for pair in FLOAT_ARGUMENTS
    if pair[0].startswith(("linear", "conv1d")) and pair[0].endswith("_backward")
    if pair[1] == "bias"
}


@pytest.mark.parametrize(("name", "argument"), sorted(set(FLOAT_ARGUMENTS) - NOT_IN_THE_RESULT))
def test_nan_comes_out_again(name, argument):
    def all_nan(array):
        return np.full(array.shape, np.nan)

    results = arrays_of(call_with(name, argument, all_nan))
    assert any(np.isnan(result).any() for result in results if result is not None)


@pytest.mark.parametrize(
    ("name", "at_minus_infinity", "at_infinity"),
    [("relu", 0, np.inf), ("tanh", -1, 1), ("sigmoid", 0, 1), ("gelu", np.nan, np.inf), ("silu", np.nan, np.inf)],
)
def test_activations_at_infinity(name, at_minus_infinity, at_infinity):
    with np.errstate(invalid="ignore"):  # -inf * 0
        y = getattr(npf, name)(np.array([-np.inf, np.inf]))
    np.testing.assert_array_equal(y, [at_minus_infinity, at_infinity])


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "log_softmax"])
def test_nan_stays_in_its_row(name):
    x = normal(T, D)
    clean = getattr(npf, name)(x)
    x[2, 3] = np.nan
    y = getattr(npf, name)(x)
    assert np.isnan(y[2, 3])
    np.testing.assert_array_equal(np.delete(y, 2, axis=0), np.delete(clean, 2, axis=0))
