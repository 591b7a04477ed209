"""Arrays that once made kernels read beyond the end of other arrays, or compute wrong results without an error."""

import numpy as np
import pytest

import npformer as nf
from npformer import cpu, reference
from npformer.gradcheck.cases import CASES

BACKENDS = pytest.mark.parametrize("ops", [reference, cpu], ids=["reference", "cpu"])


@BACKENDS
@pytest.mark.parametrize("wrong", [-3, 50, 10**12])
def test_masked_ids_are_checked(ops, wrong):
    ids = np.ma.masked_array([0, wrong, 1], mask=[False, True, False])
    with pytest.raises(ValueError, match=rf"ids\[1\] is {wrong}, expected 0 <= id < 3"):
        ops.embedding_backward(np.ones((3, 4)), ids, (3, 4))


@BACKENDS
def test_subclasses_and_scalars_that_are_converted(ops):
    x = np.array([[1, 2], [3, 4]], "float16")
    np.testing.assert_array_equal(ops.gelu(x.view(np.matrix)), ops.gelu(x))
    ids = np.array([[0, 2, 1]], np.int32)
    gradients = [ops.embedding_backward(np.ones((1, 3, 4)), y, (3, 4)) for y in (ids, ids.view(np.matrix))]
    np.testing.assert_array_equal(*gradients)
    assert ops.dropout(np.float16(1), 0.5, 1) in (0, 2)


@BACKENDS
def test_a_decoding_step_with_a_gate_and_no_weights_for_it(ops):
    case = next(case for case in CASES if case.operation == "decoder_layer_step")
    with pytest.raises(ValueError, match=r"G\*F divisible by 2"):
        ops.decoder_layer_step(**case.arguments() | {"activation": "swiglu"})


def test_views_of_width_1_with_five_axes():
    qkv = np.random.default_rng(0).standard_normal((2, 2, 3, 4, 3))
    q, k, v = (qkv[..., i : i + 1] for i in range(3))
    saved = reference.flash_attention(q, k, v)
    for x, wanted in zip(cpu.flash_attention(q, k, v), saved, strict=True):
        np.testing.assert_allclose(x, wanted, rtol=0, atol=1e-13)
    gradients = (ops.flash_attention_backward(v, q, k, v, *saved) for ops in (cpu, reference))
    for x, wanted in zip(*gradients, strict=True):
        np.testing.assert_allclose(x, wanted, rtol=0, atol=1e-13)


@BACKENDS
def test_empty_results_are_the_caller_s_own(ops):
    ops.relu(np.zeros((0, 3))).shape = (3, 0)
    assert ops.relu(np.zeros((0, 3))).shape == (0, 3)


@BACKENDS
def test_no_result_opens_memory_that_is_read_only(ops):
    dy = np.frombuffer(np.ones(6).tobytes()).reshape(2, 3)
    *_, dresidual = ops.linear_dropout_residual_backward(dy, np.ones((2, 4)), np.ones((4, 3)), None)
    with pytest.raises(ValueError):
        dresidual.flags.writeable = True


@BACKENDS
def test_a_rate_too_small_to_drop_anything_still_scales(ops):
    options = {"dropout_rate": 1e-10, "dropout_key": 1}
    y, _ = ops.linear_activation_dropout(np.ones((1, 1)), np.ones((1, 1)), None, "relu", **options)
    np.testing.assert_array_equal(y, 1 / (1 - 1e-10))


def test_blocks_of_explain_may_end_in_any_order():
    first, second = nf.explain(), nf.explain()
    calls = first.__enter__()
    others = second.__enter__()
    first.__exit__(None, None, None)
    nf.relu(np.ones(3))
    second.__exit__(None, None, None)
    nf.relu(np.ones(3))
    assert (len(calls), len(others)) == (0, 1)


@BACKENDS
def test_memory_that_became_read_only_is_not_written(ops):
    """Also after a valid call with the same types."""
    case = next(case for case in CASES if case.operation == "sgd_update")
    given = case.arguments()
    velocity = given["velocity"].copy()
    ops.sgd_update(**given | {"velocity": velocity.copy()})
    velocity.flags.writeable = False
    before = velocity.copy()
    with pytest.raises(ValueError, match="velocity is read-only"):
        ops.sgd_update(**given | {"velocity": velocity})
    np.testing.assert_array_equal(velocity, before)


class Scalar:
    """Of another library."""

    shape = ()


@BACKENDS
def test_scalars_of_other_libraries_are_not_numbers(ops):
    with pytest.raises(TypeError, match="eps=.* is a Scalar, expected a number"):
        ops.layer_norm(np.ones((2, 3)), np.ones(3), np.ones(3), eps=Scalar())
