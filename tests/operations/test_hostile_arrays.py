"""Arrays that once made kernels read beyond the end of other arrays,
or compute wrong results without an error.
"""

import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_all_close
from refusals import refuses

import npformer as nf
from npformer import cpu, reference
from npformer.gradients.cases import CASES

BACKENDS = pytest.mark.parametrize("ops", [reference, cpu], ids=["reference", "cpu"])


class Metres(np.ndarray):
    """Has a unit."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        raise NotImplementedError


IN_ITS_PLACE = r"whose own rules .*, try numpy.asarray\({}\)"
OWN_RULES = {
    "masked": (
        np.ma.masked_array,
        r"is a MaskedArray, whose own rules .*, try {}.filled\(value\), for ids",
    ),
    "matrix": (lambda x: x.view(np.matrix), f"is a matrix, {IN_ITS_PLACE}"),
    "with units": (lambda x: x.view(Metres), f"is a Metres, {IN_ITS_PLACE}"),
}
SUBCLASSES = pytest.mark.parametrize(("subclass", "message"), OWN_RULES.values(), ids=OWN_RULES)


@BACKENDS
@SUBCLASSES
def test_arrays_with_rules_of_their_own_are_refused(ops, subclass, message):
    """Operations would compute with the entries that are masked."""
    x, table, ids = np.ones((2, 3)), np.ones((3, 4)), np.array([[0, 1, 2]])
    for operation, arguments, name in [
        (ops.relu, {"x": x}, "x"),
        (ops.linear, {"x": x, "weight": table, "bias": None}, "weight"),
        (ops.embedding, {"ids": ids, "table": table}, "ids"),
        (ops.random_bits, {"index": ids, "key": 1}, "index"),
    ]:
        operation(**arguments)
        arguments[name] = subclass(arguments[name])
        refuses(TypeError, f"{name} {message.format(name)}", operation, **arguments)


@SUBCLASSES
def test_models_refuse_arrays_with_rules_of_their_own(subclass, message):
    """A masked target once trained with another loss than its gradient's."""
    model = nf.Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    params = model.init(0)
    src = np.array([[3, 4, 5]])
    tgt = np.array([[1, 3, 4, 5, 2]])
    odd_src, odd_tgt = subclass(src), subclass(tgt)
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
    refused("tokens", decoder.step, subclass(np.array([[1]]))[0], np.array([0]))
    assert_array_equal(trainer.flat_params, before)
    params["output"]["bias"] = subclass(params["output"]["bias"])
    message = "parameter output.bias: given a .*, expected"
    refuses(ValueError, message, nf.Trainer, model, nf.SGD(0.1), params=params)


class Plain(np.ndarray):
    """Another class, and nothing else."""


@BACKENDS
def test_subclasses_and_scalars_that_are_converted(ops, tmp_path):
    x = np.array([[1, 2], [3, 4]], "float16")
    assert_array_equal(ops.gelu(x.view(Plain)), ops.gelu(x))
    ids = in_file(tmp_path / "ids", np.array([[0, 2, 1]], np.int32))
    dy = np.ones((1, 3, 4))
    assert_array_equal(*(ops.embedding_backward(dy, x, (3, 4)) for x in (ids, np.array(ids))))
    assert ops.dropout(np.float16(1), 0.5, 1) in (0, 2)


def test_a_model_trains_on_a_file_in_memory(tmp_path):
    model = nf.Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    src, tgt = np.array([[3, 4, 5]] * 4), np.array([[1, 3, 4, 5, 2]] * 4)
    mapped = [in_file(tmp_path / str(i), x) for i, x in enumerate((src, tgt))]
    trainers = [nf.Trainer(model, nf.SGD(0.1), n_shards=2) for _ in range(2)]
    assert trainers[0].step(src, tgt) == trainers[1].step(*mapped)


def in_file(path, x):
    """The array, in a file that is mapped into memory."""
    mapped = np.memmap(path, x.dtype, "w+", shape=x.shape)
    mapped[...] = x
    return mapped


def test_views_of_width_1_with_five_axes():
    qkv = np.random.default_rng(0).standard_normal((2, 2, 3, 4, 3))
    q, k, v = (qkv[..., i : i + 1] for i in range(3))
    saved = reference.flash_attention(q, k, v)
    assert_all_close(cpu.flash_attention(q, k, v), saved, 1e-13)
    gradients = (ops.flash_attention_backward(v, q, k, v, *saved) for ops in (cpu, reference))
    assert_all_close(*gradients, 1e-13)


@BACKENDS
def test_empty_results_are_the_caller_s_own(ops):
    ops.relu(np.zeros((0, 3))).resize((3, 0), refcheck=False)
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
    case = next(case for case in CASES if case.operation == "sgd_update")
    ops.sgd_update(**case.arguments())
    given = case.arguments()
    velocity = given["velocity"]
    velocity.flags.writeable = False
    refuses(ValueError, "velocity is read-only", ops.sgd_update, **given)
    assert_array_equal(velocity, case.arguments()["velocity"])


class Scalar:
    """Of another library."""

    shape = ()


@BACKENDS
def test_scalars_of_other_libraries_are_not_numbers(ops):
    arrays = np.ones((2, 3)), np.ones(3), np.ones(3)
    refuses(
        TypeError, "eps=.* is a Scalar, expected a number", ops.layer_norm, *arrays, eps=Scalar()
    )


FLOAT32 = {"x": (2, 3), "weight": (3, 5), "bias": 5}


@pytest.mark.parametrize(
    ("wide", "message"),
    [
        (["x"], "x has float64, others float32: the slower .* linear in float64; try x.astype"),
        (["bias"], "bias has float64, others float32"),
        (["weight", "bias"], r"x has float32, others float64: .* try x.astype\('float64'\)"),
    ],
)
def test_the_array_of_another_dtype_is_told_of_once(monkeypatch, wide, message):
    """At the line that called, once; for each shape there is another plan."""
    monkeypatch.setattr("npformer.operations.plan._told", set())
    linear = cpu.ops.linear
    dtypes = {name: "float64" if name in wide else "float32" for name in FLOAT32}
    arrays = {name: np.ones(shape, dtypes[name]) for name, shape in FLOAT32.items()}
    for n in range(50, 53):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            linear(**arrays | {"x": np.ones((n, 3), dtypes["x"])})
        assert len(caught) == (n == 50)
        for warning in caught:
            assert re.match(message, str(warning.message))
            assert warning.filename == __file__


def test_a_gradient_of_another_dtype_than_its_parameters_is_told_of(monkeypatch):
    monkeypatch.setattr("npformer.operations.plan._told", set())
    param, m, v = np.zeros((3, 61), "float32")
    with pytest.warns(
        UserWarning, match="grad has float64, others float32: .* computes adam_update in float64"
    ):
        cpu.adam_update(param, np.ones(61), m, v, lr=0.1, step=1)
    np.testing.assert_allclose(param, -0.1, rtol=1e-6)


def test_a_model_with_an_array_of_another_dtype_gives_one_warning(monkeypatch):
    """Though every operation after it has arrays of two dtypes, too."""
    monkeypatch.setattr("npformer.operations.plan._told", set())
    model = nf.Transformer(11, 11, d_model=18, n_heads=2, n_layers=1, d_ff=34)
    params = model.init(seed=0)
    params["encoder"]["0"]["feed_forward"]["out"]["weight"] = np.ones((34, 18))
    src, tgt = nf.CopyTask().batch(step=0, size=3)
    with pytest.warns(
        UserWarning, match=r"weight has float64, others float32.*weight.astype\('float32'\)"
    ) as caught:
        model.loss_and_grad(params, src, tgt, backend="cpu")
    assert len(caught) == 1
    assert caught[0].filename == __file__
