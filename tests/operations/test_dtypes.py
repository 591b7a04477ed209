"""Dtype in = dtype out, half precision sums in float32, and nobody writes to an input."""

from contextlib import nullcontext

import numpy as np
import pytest
from layouts import byte_swapped
from numpy.testing import assert_array_equal
from oracles import assert_all_close, assert_close
from refusals import refuses
from results import (
    BOTH_ATTENTIONS,
    FIRST,
    OPERATIONS,
    arguments_of,
    attend,
    normal,
    run,
    written_by,
)
from tested import npf

from npformer import cpu
from npformer.gradients.drawing import cast

pytestmark = pytest.mark.usefixtures("every_backend")

TOLERANCE = {"float16": 4e-3, "float32": 2e-6, "complex128": 1e-14}


def assert_dtypes(name, dtype, results):
    """Each result of the operation has the dtype that its kind in the contract says."""
    wide = "float32" if np.dtype(dtype).itemsize == 2 else dtype
    dtypes = {"wide": wide, "ids": "int64"}
    kinds = [result.kind for result in OPERATIONS[name].record.contract.results]
    kinds += ["written"] * len(written_by(name))
    # gradients of what is None are missing
    for i, (x, kind) in enumerate(zip(results, kinds, strict=False)):
        assert x.dtype == dtypes.get(kind, dtype), f"result {i}"


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", sorted(FIRST.keys() - {"global_norm"}))
def test_dtype_in_is_dtype_out(name, dtype):
    """The results are those of float64, rounded."""
    arguments = arguments_of(name, dtype)
    in_float64 = arguments_of(name) if dtype == "complex128" else cast(arguments, "float64")
    results = run(npf, name, arguments)
    expected = run(npf, name, in_float64)
    assert_dtypes(name, dtype, results)
    assert_dtypes(name, "float64", expected)
    for x, wanted in zip(results, expected, strict=True):
        finite = np.isfinite(wanted)  # a query that may attend to nothing has a peak of -inf
        assert_array_equal(np.isfinite(x), finite)
        assert_close(x[finite], wanted[finite], TOLERANCE[dtype])


IN_BFLOAT16 = ["linear", "layer_norm", "softmax_backward", "flash_attention", "cross_entropy"]


@pytest.mark.parametrize("name", IN_BFLOAT16)
def test_bfloat16_is_half_precision_too(name):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    arguments = cast(arguments_of(name, "float32"), bfloat16)
    assert_dtypes(name, bfloat16, run(npf, name, arguments))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", ["linear", "attention", "gru", "linear_cross_entropy"])
def test_dtypes_that_differ_give_what_numpy_gives(every_backend, name, dtype, monkeypatch):
    """If one argument is float64, the results are float64.

    If no kernel computes them, a warning names it.
    """
    monkeypatch.setattr("npformer.operations.plan._told", set())
    arguments = arguments_of(name, dtype)
    arrays = OPERATIONS[name].record.contract.arrays.values()
    last = [x.name for x in arrays if x.kind == "float"][-1]
    arguments[last] = arguments[last].astype("float64")
    message = f"{last} has float64, others float32: the slower reference computes {name} in float64"
    is_told = every_backend is cpu.ops and dtype == "float32"
    with pytest.warns(UserWarning, match=message) if is_told else nullcontext():
        results = run(npf, name, arguments)
    assert_dtypes(name, "float64", results)


@pytest.mark.parametrize("name", FIRST)
def test_inputs_are_never_written(name):
    """Only arguments that the contract calls ``written`` are changed.

    If these are read-only, that is an error.
    """
    arguments = arguments_of(name)
    for argument, value in arguments.items():
        if isinstance(value, np.ndarray) and argument not in written_by(name):
            value.setflags(write=False)
    run(npf, name, arguments)
    for argument in written_by(name):
        if arguments[argument] is not None:
            arguments[argument].setflags(write=False)
            refuses(ValueError, "read-only", run, npf, name, arguments)


WRITING = [name for name in FIRST if written_by(name)]


@pytest.mark.parametrize("name", WRITING)
def test_what_is_written_may_have_its_bytes_in_another_order(name):
    """Of other arrays ``test_fuzz.py`` shows it."""
    expected = run(npf, name, arguments_of(name))
    arguments = arguments_of(name)
    arguments |= {x: byte_swapped(arguments[x]) for x in written_by(name)}
    assert_all_close(run(npf, name, arguments), expected)


@pytest.mark.parametrize("scalar", [0.7, np.float64(0.7), np.float32(0.7)])
@BOTH_ATTENTIONS
def test_numpy_scalars_do_not_promote(name, scalar):
    x = np.ones((5, 7), "float32")
    results = attend(name, x, x, x, x, scale=scalar, dropout_rate=scalar, dropout_key=1)
    assert {y.dtype for y in results} == {np.dtype("float32")}


@pytest.mark.parametrize("scalar", [np.float64(0.1), np.float32(0.1)])
def test_numpy_scalars_do_not_promote_losses_and_norms(scalar):
    x = np.ones((2, 3), "float32")
    results = [*npf.cross_entropy(x, np.array([0, 1]), label_smoothing=scalar)]
    results += npf.layer_norm(x, x[0], x[0], eps=scalar)
    positions = npf.sinusoidal_encoding(2, 3)  # float64
    results.append(npf.embed_tokens(np.array([[0, 1]]), x, positions, 0, scalar, 1))
    assert {y.dtype for y in results} == {np.dtype("float32")}


def test_a_complex_step_by_the_positions_alone_is_kept():
    positions = np.ones((2, 3)) + 1e-30j
    y = npf.embed_tokens(np.array([[1, 2]]), np.ones((4, 3)), positions, 0)
    assert_array_equal(y.imag, np.full((1, 2, 3), 1e-30))


# Half precision: 65504 is the largest number, 2048 + 1 = 2048.


def half(value, *shape):
    return np.full(shape, value, "float16")


def test_layer_norm_whose_sum_or_squares_overflow_half_precision():
    x = half(1000, 2**12)
    gain = half(1, 2**12)
    bias = half(0, 2**12)
    y, mean, _ = npf.layer_norm(x, gain, bias)
    assert not y.any()
    assert mean.item() == 1000
    x[1::2] *= -1
    y, _, rstd = npf.layer_norm(x, gain, bias)
    assert_close(rstd, [1e-3], 1e-6)
    assert_close(y, np.sign(x))


def test_softmax_over_70_000_entries():
    x = half(1, 70_000)
    assert_close(npf.softmax(x).sum(dtype="float64"), 1, 2e-3)
    assert_close(npf.log_softmax(x), np.full(70_000, -np.log(70_000)), 1e-3)


def test_loss_over_70_000_words():
    targets = np.array([0, 7, 69_999])
    loss, dlogits = npf.cross_entropy(half(0, 3, 70_000), targets)
    assert_close(loss, np.log(70_000), 1e-6)
    assert_close(dlogits[range(3), targets], [-1 / 3] * 3, 1e-3)


@pytest.mark.parametrize("name", ["attention", "flash_attention", "dot", "scaled_dot", "bilinear"])
def test_scores_that_overflow_half_precision(name):
    q = half(200, 5, 64)
    k = half(200, 7, 64)
    size = 10
    params = ()
    if name == "bilinear":
        size = 0.01  # of which the weight has 256 times more
        params = (np.eye(64, dtype="float16"),)
    assert q.astype("float64")[0] @ k[0] > 65504
    out, dq, dk, dv, *_ = attend(name, q, k, k, half(size, 5, 64), params=params)
    assert_close(out, half(200, 5, 64), 1e-3)
    assert np.isfinite([*dq, *dk]).all()
    # at a logsumexp of 320 000, float32 has a spacing of 1/32
    assert_close(dv, half(5 * np.float16(size) / 7, 7, 64), 2e-2)


@BOTH_ATTENTIONS
def test_scale_that_overflows_half_precision(name):
    arrays = half(200, 5, 64), half(0.01, 7, 64), half(3, 7, 64)
    out, *_ = getattr(npf, name)(*arrays, scale=1000.0)
    assert_close(out, half(3, 5, 64), 1e-2)


def test_sums_over_5000_rows():
    x = half(1, 5000, 3)
    dy = half(1, 5000, 2)
    bias = half(0, 2)
    _, dweight, dbias = npf.linear_backward(dy, x, half(1, 3, 2), bias)
    assert_close(dweight, half(5000, 3, 2))
    assert_close(dbias, half(5000, 2))

    _, dweight, dbias = npf.conv1d_backward(dy[None], x[None], half(1, 3, 3, 2), bias)
    of_taps = np.array([4999, 5000, 4999])[:, None, None]
    assert_close(dweight, np.broadcast_to(of_taps, (3, 3, 2)), 1e-3)
    assert_close(dbias, half(5000, 2))

    one = np.ones((5000, 1), "float32")
    _, *sums = npf.layer_norm_backward(x, x, half(1, 3), 0 * one, one)
    assert_close(sums, half(5000, 2, 3))


def test_embedding_of_one_word_5000_times():
    dtable = npf.embedding_backward(half(1, 5000, 3), np.zeros(5000, int), (2, 3))
    assert_close(dtable, [[5000] * 3, [0] * 3])


def test_norm_of_a_gradient_whose_square_overflows():
    assert npf.global_norm(half(300, 16)) == 1200


@pytest.mark.parametrize("name", ["attention", "flash_attention", "scaled_dot", "cosine"])
def test_backward_of_attention_whose_products_of_dout_and_v_overflow(name):
    q = half(1, 3, 64)
    k = half(1, 4, 64)
    _, dq, dk, dv = attend(name, q, k, 200 * k, 200 * q)
    assert not dq.any()  # equal scores, equal values: nothing to gain from another weight
    assert not dk.any()
    assert_close(dv, np.full((4, 64), 3 * 200 / 4), 0.5)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_backward_of_softmax_over_4096_entries(name):
    dy = half(100, 4096) + normal(4096, dtype="float16")
    y = getattr(npf, name)(normal(4096, seed=1, dtype="float16"))
    backward = getattr(npf, f"{name}_backward")
    exact = backward(dy.astype(float), y.astype(float))
    assert_close(backward(dy, y), exact, 1e-3 * np.abs(exact).max())
