"""The rooms have the same doors: same names, same parameters, same numbers, whatever the layout of the arrays.

An operation is tested by being in ``operations.valid_calls``; how far a kernel may be off stands in ``BOUNDS``.
"""

import inspect
import os
import subprocess
import sys

import numpy as np
import pytest
from on_gpu import MISSING, NO_GPU, ON_GPU, smaller
from operations import NOT_IN_THE_TABLE, arrays_of, valid_calls

from npformer import cpu, reference

WITH_GPU = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))
BACKENDS = [pytest.param(cpu, id="cpu"), pytest.param(ON_GPU, id="gpu", marks=WITH_GPU)]

# Largest difference over the largest entry of the result, in units of the dtype's rounding error (float32: 1.2e-7,
# float64: 2.2e-16). 0: the same bits. Sums of n terms in another order differ by about √n such units.
BOUNDS = {
    **dict.fromkeys(["split_heads", "merge_heads", "embedding", "dropout", "dropout_backward"], 0),
    **dict.fromkeys(["relu", "relu_backward", "tanh", "tanh_backward", "sigmoid", "sigmoid_backward"], 0),
    **dict.fromkeys(["gelu", "gelu_backward", "silu", "silu_backward"], 4),
    **dict.fromkeys(["softmax", "softmax_backward", "log_softmax", "log_softmax_backward"], 4),
    **dict.fromkeys(["layer_norm", "layer_norm_backward", "linear", "linear_backward", "product"], 8),
    **dict.fromkeys(["linear_activation_dropout", "linear_dropout_residual", "linear_dropout_residual_backward"], 8),
    **dict.fromkeys(["conv1d", "conv1d_backward"], 16),
    "linear_activation_dropout_backward": 32,  # dh is rounded before two products
    **dict.fromkeys(["attention", "flash_attention", "self_attention", "cross_attention", "cached_attention"], 16),
    "log_softmax_top_k": 4,
    **dict.fromkeys(["dot_score", "scaled_dot_score", "cosine_score", "bilinear_score", "is_same"], 8),
    **dict.fromkeys(["dot_score_backward", "scaled_dot_score_backward", "cosine_score_backward"], 8),
    **dict.fromkeys(["bilinear_score_backward", "additive_score", "exp_cosine", "exp_cosine_backward"], 8),
    **dict.fromkeys(["additive_score_backward", "score_attention", "score_attention_backward"], 32),
    **dict.fromkeys(["soft_lookup", "soft_lookup_backward"], 16),
    "decoder_layer_step": 32,
    **dict.fromkeys(["gru", "gru_backward", "lstm", "lstm_backward"], 16),
    **dict.fromkeys(["attention_backward", "flash_attention_backward"], 32),
    **dict.fromkeys(["self_attention_backward", "cross_attention_backward"], 32),
    **dict.fromkeys(["embedding_backward", "embed_tokens", "embed_tokens_backward"], 4),
    **dict.fromkeys(["cross_entropy", "linear_cross_entropy"], 8),
    **dict.fromkeys(["paired_cross_entropy", "linear_paired_cross_entropy"], 16),
    **dict.fromkeys(["sgd_update", "adam_update", "global_norm"], 4),
}

NO_DROPOUT, NO_KEEP_MASK = {"dropout_rate": 0.0, "key": None}, {"keep_mask": None}
ATTENTION = [{}, NO_DROPOUT, NO_KEEP_MASK, {"causal": False}, {**NO_DROPOUT, **NO_KEEP_MASK, "causal": False}]
RECURRENT = [{}, {"keep_mask": None}, {"reverse": False}]
ROWS = [{}, {"rate": 0.0, "key": None}]
ACTIVATIONS = [{}, *({"activation": name, "rate": 0.0} for name in ("relu", "gelu", "silu"))]
CONVOLUTIONS = [{}, {"bias": None}, {"causal": True}, {"dilation": 1}, {"dilation": 9, "causal": True}]
LOSS = [{}, {"ignore_id": None}, {"label_smoothing": 0.0}, {"n_tokens": 100}]
VARIANTS = {  # changes to the valid call
    "softmax": [{}, {"axis": 0}, {"axis": 2}],
    "layer_norm": [{}, {"eps": 0.1}],
    "linear": [{}, {"bias": None}],
    "linear_backward": [{}, {"bias": None}],
    "conv1d": CONVOLUTIONS,
    "conv1d_backward": CONVOLUTIONS,
    "linear_activation_dropout": ACTIVATIONS,
    "linear_activation_dropout_backward": ACTIVATIONS,
    "linear_dropout_residual": [*ROWS, {"residual": None}],
    "linear_dropout_residual_backward": ROWS,
    "cached_attention": [{}, NO_KEEP_MASK],
    "decoder_layer_step": [
        {},
        {"norm": "post", "activation": "gelu"},
        {"memory_mask": np.arange(14).reshape(2, 7) % 3 > 0},
    ],
    "log_softmax_top_k": [{}, {"k": 1}, {"k": 100}],
    **dict.fromkeys(["gru", "gru_backward", "lstm"], RECURRENT),
    "lstm_backward": [*RECURRENT, {"dcells": None}],
    "embed_tokens": ROWS,
    "embed_tokens_backward": ROWS,
    "cross_entropy": LOSS,
    "linear_cross_entropy": LOSS,
    "paired_cross_entropy": [*LOSS, {"consistency": 0}],
    "linear_paired_cross_entropy": [*LOSS, {"consistency": 0}],
    **dict.fromkeys(["attention", "flash_attention", "self_attention", "cross_attention"], ATTENTION),
    "attention_backward": [{}, NO_DROPOUT, {"scale": None}],
    **dict.fromkeys(["flash_attention_backward", "self_attention_backward", "cross_attention_backward"], ATTENTION),
}


def contiguous(x):
    return x


def every_second(x):
    """The same numbers in an array twice as wide, with NaN (or an id nobody has) in between."""
    wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), _filler(x), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def rows_apart(x):
    """The same numbers with a gap of NaN after each row and around the whole."""
    wide = np.full((*(n + 2 for n in x.shape[:-1]), x.shape[-1] + 3), _filler(x), x.dtype)
    inside = (*(slice(1, -1) for _ in x.shape[:-1]), slice(1, -2))
    wide[inside] = x
    return wide[inside]


def fortran(x):
    return np.asfortranarray(x)


def backwards(x):
    """The same numbers with all strides negative."""
    return np.flip(np.flip(x).copy())


def _filler(x):
    return {"f": np.nan, "b": True, "i": 10**6}[x.dtype.kind]


LAYOUTS = [contiguous, every_second, rows_apart, fortran, backwards]


def changed(name, dtype, variant, layout):
    arguments = {**valid_calls(dtype)[name], **variant}
    if "logsumexp" in arguments:  # what is saved has to fit the options
        forward = OPERATION[name.removesuffix("_backward")]
        of_forward = {key: x for key, x in arguments.items() if key in inspect.signature(forward).parameters}
        arguments["out"], arguments["logsumexp"] = forward(**of_forward)
    arguments = {key: value for key, value in arguments.items() if key in inspect.signature(OPERATION[name]).parameters}
    return {key: layout(x) if isinstance(x, np.ndarray) and x.ndim else x for key, x in arguments.items()}


OPERATION = {name: getattr(reference, name) for name in reference.__all__}
CALLS = [(name, i) for name in valid_calls() for i in range(len(VARIANTS.get(name, [{}])))]


ON_REAL_GPU = 0 if NO_GPU else 8  # units that CuPy's own functions and products are off, where there is no kernel


def assert_equal_within(name, dtype, actual, expected):
    for i, (x, wanted) in enumerate(zip(arrays_of(actual), arrays_of(expected), strict=True)):
        if wanted is None:
            assert x is None
            continue
        x, wanted = np.asarray(x), np.asarray(wanted)
        assert (x.shape, x.dtype) == (wanted.shape, wanted.dtype), f"result {i}"
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(x[~finite], wanted[~finite], err_msg=f"result {i}")
        bound = max(BOUNDS[name], ON_REAL_GPU) * np.finfo(dtype).eps * max(np.abs(wanted[finite]).max(initial=0), 1e-30)
        np.testing.assert_allclose(x[finite], wanted[finite], rtol=0, atol=bound, err_msg=f"result {i}")


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "variant"), CALLS)
@pytest.mark.parametrize("ops", BACKENDS)
def test_same_numbers(ops, name, variant, dtype, layout):
    change = VARIANTS.get(name, [{}])[variant]
    expected = OPERATION[name](**changed(name, dtype, change, contiguous))
    actual = getattr(ops, name)(**changed(name, dtype, change, layout))
    assert_equal_within(name, dtype, actual, expected)


@pytest.mark.parametrize("ops", BACKENDS)
def test_same_names_and_parameters(ops):
    assert ops.__all__ == reference.__all__
    for name, operation in OPERATION.items():
        parameters = inspect.signature(operation).parameters.values()
        others = inspect.signature(getattr(ops, name)).parameters.values()
        assert [(p.name, p.kind, p.default) for p in others] == [(p.name, p.kind, p.default) for p in parameters], name


def test_every_operation_has_a_bound():
    assert set(BOUNDS) == set(valid_calls()) | {"sgd_update", "adam_update", "global_norm"}
    assert set(reference.__all__) == set(valid_calls()) | NOT_IN_THE_TABLE


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("ops", BACKENDS)
def test_updates(ops, dtype):
    rng = np.random.default_rng(0)
    start = {name: rng.standard_normal(1009).astype(dtype) for name in ("param", "grad", "m")}
    start["v"] = np.abs(start["m"]) + 0.1
    adam = {"lr": 0.1, "step": 3, "weight_decay": 0.01, "grad_scale": 0.7}
    sgd = {"lr": 0.1, "grad_scale": 0.7}
    calls = [
        ("adam_update", ("param", "grad", "m", "v"), adam),
        ("sgd_update", ("param", "grad", "m"), {**sgd, "momentum": 0.9}),
        ("sgd_update", ("param", "grad", "m"), {**sgd, "momentum": 0.9, "nesterov": True}),
        ("sgd_update", ("param", "grad", None), sgd),
    ]
    for name, arrays, options in calls:
        for layout in (contiguous, every_second):
            results = []
            for module in (ops, reference):
                mine = {key: layout(x.copy()) for key, x in start.items()}
                getattr(module, name)(*(key and mine[key] for key in arrays), **options)
                results.append(tuple(mine.values()))
            assert_equal_within(name, dtype, *results)
    for layout in LAYOUTS:
        norm = np.dtype(dtype).type(ops.global_norm(layout(start["grad"])))
        assert_equal_within("global_norm", dtype, norm, np.dtype(dtype).type(reference.global_norm(start["grad"])))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("T", "S"), [(300, 1100), (520, 270), (1, 600), (257, 3)])
@pytest.mark.parametrize("ops", BACKENDS)
def test_attention_over_several_tiles(ops, T, S, causal, dtype):
    rng = np.random.default_rng(0)
    T, S = (smaller(n) if ops is ON_GPU else n for n in (T, S))
    q, k, v, dout = (rng.standard_normal((2, 3, n, 5)).astype(dtype) for n in (T, S, S, T))
    options = {"causal": causal, "dropout_rate": 0.1, "key": 5}
    for mask_shape in ((2, 1, 1, S), (T, S), (3, T, 1)):
        keep_mask = rng.random(mask_shape) < 0.8
        expected = reference.flash_attention(q, k, v, keep_mask, **options)
        assert_equal_within("flash_attention", dtype, ops.flash_attention(q, k, v, keep_mask, **options), expected)
        gradients = ops.flash_attention_backward(dout, q, k, v, *expected, keep_mask, **options)
        wanted = reference.flash_attention_backward(dout, q, k, v, *expected, keep_mask, **options)
        assert_equal_within("flash_attention_backward", dtype, gradients, wanted)


NOT_A_NUMBER = [np.nan, np.inf, -np.inf, -np.nan]


@pytest.mark.parametrize("value", NOT_A_NUMBER)
@pytest.mark.parametrize("name", ["attention", "flash_attention", "cross_attention"])
@pytest.mark.parametrize("ops", BACKENDS)
def test_what_is_masked_never_matters(ops, name, value):
    arguments = valid_calls("float32")[name]
    keep_mask = np.ones((2, 1, 1, 7), bool)
    keep_mask[..., 5:] = False
    arguments["keep_mask"] = keep_mask
    saved = getattr(reference, name)(**arguments)
    backward = {"dout": saved[0] + 1, **arguments}
    backward |= {"weights": saved[1]} if name == "attention" else {"out": saved[0], "logsumexp": saved[1]}
    if name == "attention":
        backward.pop("keep_mask"), backward.pop("causal")
    expected = arrays_of(getattr(reference, f"{name}_backward")(**backward))
    for key in {"k", "v", "kv"} & arguments.keys():
        arguments[key][..., 5:, :] = value
    backward |= {key: arguments[key] for key in {"k", "v", "kv"} & arguments.keys()}
    assert_equal_within(name, "float32", getattr(ops, name)(**arguments), saved)
    assert_equal_within(f"{name}_backward", "float32", getattr(ops, f"{name}_backward")(**backward), tuple(expected))


@pytest.mark.parametrize("value", NOT_A_NUMBER)
@pytest.mark.parametrize("ops", BACKENDS)
def test_rows_without_a_gradient_pass_none_even_if_they_hold_nan(ops, value):
    calls = valid_calls("float32")
    for name, spoiled in (
        ("layer_norm_backward", ("x", "mean", "rstd")),
        ("linear_backward", ("x",)),
        ("linear_activation_dropout_backward", ("x", "h")),
        ("linear_dropout_residual_backward", ("x",)),
        ("gelu_backward", ("x",)),
        ("silu_backward", ("x",)),
        ("relu_backward", ("x",)),
    ):
        arguments = calls[name]
        arguments["dy"][1, 3] = 0
        expected = getattr(reference, name)(**arguments)
        for key in spoiled:
            arguments[key][1, 3] = value
        actual = getattr(ops, name)(**arguments)
        assert_equal_within(name, "float32", actual, expected)


@pytest.mark.parametrize("value", NOT_A_NUMBER)
@pytest.mark.parametrize("ops", BACKENDS)
def test_a_convolution_spoils_only_the_outputs_that_see_it_and_no_gradient_without_a_cotangent(ops, value):
    arguments = valid_calls("float32")["conv1d"]
    dy = valid_calls("float32")["conv1d_backward"]["dy"]
    clean = ops.conv1d(**arguments)
    dy[1, [1, 3]] = 0  # what sees position 1 of the second sequence, with a dilation of 2
    expected = reference.conv1d_backward(dy, **arguments)
    arguments["x"][1, 1] = value
    y = ops.conv1d(**arguments)
    sees = np.zeros((2, 5), bool)
    sees[1, [1, 3]] = True
    assert not np.isfinite(y[sees]).any()
    assert_equal_within("conv1d", "float32", y[~sees], clean[~sees])
    assert_equal_within("conv1d_backward", "float32", ops.conv1d_backward(dy, **arguments), expected)


@pytest.mark.parametrize("value", NOT_A_NUMBER)
@pytest.mark.parametrize("ops", BACKENDS)
def test_what_is_not_masked_does_matter(ops, value):
    """NaN and inf come out where the reference has them, and nothing turns them into a number."""
    for name, arguments in valid_calls("float32").items():
        if name.endswith("backward"):
            continue
        first = next(key for key, x in arguments.items() if isinstance(x, np.ndarray) and x.dtype.kind == "f")
        arguments[first][(0,) * arguments[first].ndim] = value
        with np.errstate(all="ignore"):
            expected = arrays_of(getattr(reference, name)(**arguments))
            actual = arrays_of(getattr(ops, name)(**arguments))
        for x, wanted in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(np.isnan(x), np.isnan(wanted), err_msg=name)


@pytest.mark.parametrize("ops", BACKENDS)
def test_one_nan_in_a_masked_key_of_a_later_tile(ops):
    rng = np.random.default_rng(0)
    q, k, v, dout = (rng.standard_normal((1, 1, 600, 5)).astype("float32") for _ in range(4))
    options = {"keep_mask": np.arange(600) < 400, "causal": True}
    saved = reference.flash_attention(q, k, v, **options)
    expected = reference.flash_attention_backward(dout, q, k, v, *saved, **options)
    k[0, 0, 450, 3] = np.nan
    actual = ops.flash_attention_backward(dout, q, k, v, *saved, **options)
    assert_equal_within("flash_attention_backward", "float32", actual, expected)


@pytest.mark.parametrize("ops", BACKENDS)
def test_unusual_arguments_give_what_the_reference_gives(ops):
    calls = valid_calls("float32")
    for name in ("linear_activation_dropout", "linear_dropout_residual", "linear_cross_entropy"):
        arguments = {**calls[name], "bias": None}
        assert_equal_within(name, "float32", getattr(ops, name)(**arguments), OPERATION[name](**arguments))
    packed = np.zeros((40, 8), [("x", "f4", 8), ("y", "i1", 2)])["x"][..., 0]
    packed[...] = np.random.default_rng(0).standard_normal(packed.shape)
    for q in (packed, np.broadcast_to(packed[:1], packed.shape)):
        assert_equal_within(
            "flash_attention", "float32", ops.flash_attention(q, q, q), reference.flash_attention(q, q, q)
        )
    logits = np.full((2, 5), -np.inf, "float32")
    with np.errstate(all="ignore"):
        actual, expected = (m.cross_entropy(logits, np.array([1, 2]), label_smoothing=0.1) for m in (ops, reference))
    assert_equal_within("cross_entropy", "float32", actual, expected)
    for wrong in ({"step": 0}, {"lr": np.ones(3)}):
        raised = []
        for module in (ops, reference):
            with pytest.raises(Exception) as error, np.errstate(all="ignore"):
                module.adam_update(*np.ones((4, 2), "float32"), **{"lr": 0.1, "step": 1, **wrong})
            raised.append(error.type)
        assert raised[0] is raised[1]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("ops", BACKENDS)
def test_ids_of_any_width_and_never_beyond_the_table(ops, dtype):
    calls = valid_calls("float32")
    for name in ("embedding", "embedding_backward", "embed_tokens", "embed_tokens_backward"):
        arguments = {**calls[name], "ids": calls[name]["ids"].astype(dtype)}
        assert_equal_within(name, "float32", getattr(ops, name)(**arguments), OPERATION[name](**arguments))
        arguments["ids"][1, 2] = 23
        with pytest.raises(ValueError, match=r"ids\[1, 2\] is 23, expected 0 <= id < 23"):
            getattr(ops, name)(**arguments)


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="this is the inner run")
def test_the_kernels_without_jit():
    """As plain Python they have to give the same numbers: what LLVM makes of them is not part of their meaning."""
    ignore = "ignore::RuntimeWarning"  # hashing wraps round, which NumPy reports
    command = [sys.executable, "-m", "pytest", "-q", "-x", __file__, "-W", ignore]
    command += ["-k", "not gpu and (same_numbers or updates or matter or rows_without)"]
    run = subprocess.run(command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:]
