"""Arrays that once made kernels read beyond the end of other arrays,
or compute wrong results without an error.
"""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_all_close
from refusals import refuses
from results import arguments_of, attend, normal

import npformer as nf
from npformer import cpu, reference

BACKENDS = pytest.mark.parametrize("ops", [reference, cpu], ids=["reference", "cpu"])


class Metres(np.ndarray):
    """Has a unit."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        raise NotImplementedError


IN_ITS_PLACE = r"whose own rules .*, try numpy.asarray\({}\)"
MASKED = r"is a MaskedArray, whose own rules .*, try {}.filled\(value\), for ids"
OWN_RULES = {
    "masked": (np.ma.MaskedArray, MASKED),
    "matrix": (np.matrix, f"is a matrix, {IN_ITS_PLACE}"),
    "with units": (Metres, f"is a Metres, {IN_ITS_PLACE}"),
}
SUBCLASSES = pytest.mark.parametrize(("subclass", "message"), OWN_RULES.values(), ids=OWN_RULES)
COPY_TASK = np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]])


def small_transformer():
    return nf.Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)


@BACKENDS
@SUBCLASSES
def test_arrays_with_rules_of_their_own_are_refused(ops, subclass, message):
    """Operations would compute with the entries that are masked."""
    x = np.ones((2, 3))
    table = np.ones((3, 4))
    ids = np.array([[0, 1, 2]])

    def refused(name, operation, **arguments):
        operation(**arguments)
        arguments[name] = arguments[name].view(subclass)
        refuses(TypeError, f"{name} {message.format(name)}", operation, **arguments)

    refused("x", ops.relu, x=x)
    refused("weight", ops.linear, x=x, weight=table, bias=None)
    refused("ids", ops.embedding, ids=ids, table=table)
    refused("index", ops.random_bits, index=ids, key=1)


@SUBCLASSES
def test_models_refuse_arrays_with_rules_of_their_own(subclass, message):
    """A masked target once trained with another loss than its gradient's."""
    model = small_transformer()
    params = model.init(0)
    src, tgt = COPY_TASK
    odd_src = src.view(subclass)
    odd_tgt = tgt.view(subclass)
    trainer = nf.Trainer(model, nf.SGD(0.1))
    ids = {"bos_id": 1, "eos_id": 2, "max_len": 4}
    before = trainer.flat_params.copy()

    def refused(name, call, *arguments, **options):
        refuses(TypeError, f"{name} {message.format(name)}", call, *arguments, **options)

    refused("tgt", trainer.step, src, odd_tgt)
    refused("src", trainer.step, odd_src, tgt)
    refused("tgt_in", model.loss_and_grad, params, src, odd_tgt)
    refused("src", model.loss_and_grad, params, odd_src, tgt)
    refused("tgt_out", model.loss_and_grad, params, src, tgt[:, :-1], odd_tgt[:, 1:])
    refused("src", nf.greedy_decode, model, params, odd_src, **ids)
    refused("src", nf.beam_search, model, params, odd_src, **ids)
    refused("tgt", nf.log_probability, model, params, src, odd_tgt)
    decoder = model.decoder(params, src, max_rows=1, max_len=3)
    refused("tokens", decoder.step, odd_src[0, :1], np.array([0]))
    assert_array_equal(trainer.flat_params, before)
    params["output"]["bias"] = params["output"]["bias"].view(subclass)
    message = "parameter output.bias: given a .*, expected"
    refuses(ValueError, message, nf.Trainer, model, nf.SGD(0.1), params=params)


class Plain(np.ndarray):
    """Another class, and nothing else."""


@BACKENDS
def test_subclasses_and_scalars_that_are_converted(ops, tmp_path):
    x = np.array([[1, 2], [3, 4]], "float16")
    assert_array_equal(ops.gelu(x.view(Plain)), ops.gelu(x))
    ids = np.array([[0, 2, 1]], np.int32)
    arguments = np.ones((1, 3, 4)), ids, (3, 4)
    expected = ops.embedding_backward(*arguments)
    mapped = in_file(tmp_path / "ids", ids)
    assert_array_equal(ops.embedding_backward(arguments[0], mapped, (3, 4)), expected)
    assert ops.dropout(np.float16(1), 0.5, 1) in (0, 2)


def test_a_model_trains_on_a_file_in_memory(tmp_path):
    src, tgt = (np.repeat(ids, 4, axis=0) for ids in COPY_TASK)
    plain, on_file = (nf.Trainer(small_transformer(), nf.SGD(0.1), n_shards=2) for _ in range(2))
    loss = plain.step(src, tgt)
    assert on_file.step(in_file(tmp_path / "src", src), in_file(tmp_path / "tgt", tgt)) == loss


def in_file(path, x):
    """The array, in a file that is mapped into memory."""
    mapped = np.memmap(path, x.dtype, "w+", shape=x.shape)
    mapped[...] = x
    return mapped


def test_views_of_width_1_with_five_axes():
    q, k, v = np.split(normal(2, 2, 3, 4, 3), 3, axis=-1)
    expected = attend("flash_attention", q, k, v, v, ops=reference)
    assert_all_close(attend("flash_attention", q, k, v, v, ops=cpu), expected, 1e-13)


@BACKENDS
def test_empty_results_are_the_caller_s_own(ops):
    ops.relu(np.zeros((0, 3))).resize((3, 0), refcheck=False)
    assert ops.relu(np.zeros((0, 3))).shape == (0, 3)


@BACKENDS
def test_no_result_opens_memory_that_is_read_only(ops):
    dy = np.frombuffer(bytes(48)).reshape(2, 3)
    arrays = dy, np.ones((2, 4)), np.ones((4, 3)), None
    *_, dresidual = ops.linear_dropout_residual_backward(*arrays)
    with pytest.raises(ValueError):
        dresidual.flags.writeable = True


@BACKENDS
def test_a_rate_too_small_to_drop_anything_still_scales(ops):
    one = np.ones((1, 1))
    y, _ = ops.linear_activation_dropout(one, one, None, "relu", 1e-10, dropout_key=1)
    assert_array_equal(y, 1 / (1 - 1e-10))


def test_blocks_of_explain_may_end_in_any_order():
    first, second = nf.explain(), nf.explain()
    lists = first.__enter__(), second.__enter__()
    for block in (first, second):
        block.__exit__(None, None, None)
        nf.relu(np.ones(3))
    assert list(map(len, lists)) == [0, 1]


@BACKENDS
def test_memory_that_became_read_only_is_not_written(ops):
    """Also after a valid call with the same types."""
    ops.sgd_update(**arguments_of("sgd_update"))
    arguments = arguments_of("sgd_update")
    velocity = arguments["velocity"]
    before = velocity.copy()
    velocity.flags.writeable = False
    refuses(ValueError, "velocity is read-only", ops.sgd_update, **arguments)
    assert_array_equal(velocity, before)


class Scalar:
    """Of another library."""

    shape = ()


@BACKENDS
def test_scalars_of_other_libraries_are_not_numbers(ops):
    arrays = np.ones((2, 3)), np.ones(3), np.ones(3)
    message = "eps=.* is a Scalar, expected a number"
    refuses(TypeError, message, ops.layer_norm, *arrays, eps=Scalar())


SHAPES = {"x": (2, 3), "weight": (3, 5), "bias": 5}
WIDE = {
    "x": "x has float64, others float32: the slower .* linear in float64; try x.astype",
    "bias": "bias has float64, others float32",
    "weight bias": r"x has float32, others float64: .* try x.astype\('float64'\)",
}


@pytest.fixture
def nothing_was_told(monkeypatch):
    monkeypatch.setattr("npformer.operations.plan._told", set())


@pytest.mark.usefixtures("nothing_was_told")
@pytest.mark.parametrize("wide", WIDE)
def test_the_array_of_another_dtype_is_told_of_once(wide):
    """At the line that called, once; for each shape there is another plan."""
    arrays = {}
    for name, shape in SHAPES.items():
        arrays[name] = np.ones(shape, "float64" if name in wide.split() else "float32")
    linear = cpu.ops.linear
    with pytest.warns(UserWarning, match=WIDE[wide]) as caught:
        for n in range(50, 53):
            linear(**arrays | {"x": np.ones((n, 3), arrays["x"].dtype)})
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.usefixtures("nothing_was_told")
def test_a_gradient_of_another_dtype_than_its_parameters_is_told_of():
    param, m, v = np.zeros((3, 61), "float32")
    message = "grad has float64, others float32: .* computes adam_update in float64"
    with pytest.warns(UserWarning, match=message):
        cpu.adam_update(param, np.ones(61), m, v, lr=0.1, step=1)
    np.testing.assert_allclose(param, -0.1, rtol=1e-6)


@pytest.mark.usefixtures("nothing_was_told")
def test_a_model_with_an_array_of_another_dtype_gives_one_warning():
    """Though every operation after it has arrays of two dtypes, too."""
    model = nf.Transformer(11, 11, d_model=18, n_heads=2, n_layers=1, d_ff=34)
    params = model.init(seed=0)
    params["encoder"]["0"]["feed_forward"]["out"]["weight"] = np.ones((34, 18))
    batch = nf.CopyTask().batch(step=0, size=3)
    message = r"weight has float64, others float32.*weight.astype\('float32'\)"
    with pytest.warns(UserWarning, match=message) as caught:
        model.loss_and_grad(params, *batch, backend="cpu")
    assert [warning.filename for warning in caught] == [__file__]
