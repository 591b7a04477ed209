"""With 8-bit integers as parameters, a model computes what it does with the floats
that they stand for.
"""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refuses
from results import assert_equal_within

from npformer import (
    SGD,
    ByteNet,
    Encoder,
    LanguageModel,
    Recurrent,
    Trainer,
    Transformer,
    beam_search,
    greedy_decode,
    quantize,
    tree,
)
from npformer.cpu.kernels.linear import few_rows_linear
from npformer.models.low_rank import LowRank
from npformer.quantized import Quantized
from npformer.runtime.threads import kernel_threads

RNG = np.random.default_rng(0)
SIZES = {"d_model": 12, "n_heads": 2, "n_layers": 2, "d_ff": 20, "max_len": 80, "dtype": "float64"}
MODELS = [
    LanguageModel(40, **SIZES),
    LanguageModel(40, positions="learned", window=5, pad_id=0, **SIZES),
    LanguageModel(
        40, tie_embeddings=False, bias=False, norm_type="rms_norm", n_kv_heads=1, **SIZES
    ),
    LanguageModel(40, bias=False, qkv_bias=True, qk_norm=True, d_head=4, **SIZES),
]
ENCODERS = [
    {},
    {"norm": "post", "activation": "swiglu", "positions": "rotary", "n_kv_heads": 1},
    {"norm_type": "rms_norm", "bias": False, "pad_id": None},
    {"window": 3},
    {"n_layers": 0},
]


def as_floats(params):
    return tree.map_leaves(np.asarray, params)


def test_a_weight_changes_by_half_a_step_at_most():
    x = RNG.standard_normal((9, 7)).astype("float32")
    x[:, 2] = 0
    for axis in (0, 1):
        matrix = Quantized.of(x, axis)
        assert (matrix.values.dtype, matrix.scale.dtype) == ("int8", "float32")
        assert matrix.shape == (9, 7)
        largest = 127 * matrix.scale.ravel()
        np.testing.assert_allclose(np.abs(x).max(axis), largest, rtol=1e-6, atol=1e-40)
        assert (np.abs(np.asarray(matrix) - x) <= 0.5001 * matrix.scale).all()
        assert_array_equal(matrix.T, np.asarray(matrix).T)


@pytest.mark.parametrize("size", [1e-45, 1e-44, 2e-43, 3e-43, 1e-40, 1e-36])
def test_a_weight_changes_by_half_a_step_at_most_also_where_the_step_has_few_digits(size):
    x = RNG.uniform(-size, size, (50, 7)).astype("float32")
    x[0] = size
    matrix = Quantized.of(x, axis=0)
    assert (np.abs(np.asarray(matrix) - x) <= 0.5001 * matrix.scale.astype(float)).all()
    assert (127 * matrix.scale.astype(float) < x[0] + 200 * 1.5e-45).all()
    assert (matrix.values[0] > 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m", [1, 2, 3, 8, 9, 16, 17, 40, 130])
def test_the_product_of_integers(m, dtype):
    for D, V in ((1, 3), (3, 1), (65, 70), (700, 130)):
        weight = RNG.standard_normal((D, V)).astype(dtype)
        x = RNG.standard_normal((m, D)).astype(dtype)
        bias = RNG.standard_normal(V).astype(dtype)
        for matrix in (Quantized.of(weight, axis=0), Quantized.of(weight.T.copy(), axis=1).T):
            with kernel_threads():
                y = few_rows_linear(matrix, bias, len(x), 99)(x)
            assert_equal_within(8 * D**0.5, dtype, [y], [x @ np.asarray(matrix) + bias])


@pytest.mark.parametrize("B", [1, 3, 70])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.positions)
def test_a_language_model_computes_with_what_the_integers_stand_for(model, B, every_backend):
    # in the order of a file
    params = quantize(tree.from_leaves(sorted(tree.leaves(model.init(0)))))
    ids = RNG.integers(1, 40, (B, 9))
    floats = as_floats(params)
    assert_array_equal(model.logits(params, ids), model.logits(floats, ids))
    assert model.loss(params, ids) == model.loss(floats, ids)
    prompts = [row[: 1 + i % 7] for i, row in enumerate(ids)]
    decoders = [
        model.decoder(p, prompts, max_rows=B, max_len=4, backend=every_backend)
        for p in (params, floats)
    ]
    for token in ids.T[:4]:
        found, expected = (decoder.step(token, np.arange(B)) for decoder in decoders)
        np.testing.assert_allclose(found, expected, atol=1e-13)


@pytest.mark.parametrize("tie_embeddings", [False, True])
def test_a_transformer_finds_the_same_translations(tie_embeddings, every_backend):
    model = Transformer(40, 40, tie_embeddings=tie_embeddings, **SIZES)
    params = quantize(model.init(0))
    src = RNG.integers(3, 40, (3, 6))
    ids = {"bos_id": 1, "eos_id": 2, "max_len": 9, "backend": every_backend}
    src[1, 4:] = 0
    for search in (
        greedy_decode,
        lambda *args, **ids: [x[0].tokens for x in beam_search(*args, beam_size=4, **ids)],
    ):
        found = search(model, params, src, **ids)
        expected = search(model, as_floats(params), src, **ids)
        assert list(map(list, found)) == list(map(list, expected))


@pytest.mark.parametrize(
    "model", [Recurrent(40, 40, 8, attention="general"), ByteNet(40, 40, 8, n_sets=1)], ids=repr
)
def test_of_other_models_the_tables_are_quantized(model):
    params = quantize(model.init(0))
    src = RNG.integers(3, 40, (2, 6))
    tables = ["source_embedding", "target_embedding", "output.weight"]
    assert [path for path, x in tree.leaves(params) if isinstance(x, Quantized)] == tables
    ids = {"bos_id": 1, "eos_id": 2, "max_len": 4}
    found, expected = (greedy_decode(model, p, src, **ids) for p in (params, as_floats(params)))
    assert_array_equal(found, expected)
    refuses(ValueError, "8-bit integers have no gradients", model.loss_and_grad, params, src, src)


def test_half_precision_becomes_single_as_its_scales_would_be_too_small():
    model = LanguageModel(40, **SIZES | {"dtype": "float32"})
    half = tree.map_leaves(lambda x: (1e-3 * x).astype("float16"), model.init(0))
    params = quantize(half)
    assert {x.dtype for _, x in tree.leaves(params)} == {np.dtype("float32")}
    assert greedy_decode(model, params, [[3]], max_len=2).shape == (1, 2)
    for (path, x), (_, wanted) in zip(tree.leaves(params), tree.leaves(half), strict=True):
        np.testing.assert_allclose(x, wanted, atol=np.abs(wanted).max() / 250, err_msg=path)


@pytest.mark.parametrize("dtype", [">f4", "float16"])
def test_other_dtypes_decode_as_what_the_integers_stand_for(dtype):
    model = Transformer(40, 40, **SIZES)
    params = quantize(tree.map_leaves(lambda x: x.astype(dtype), model.init(0)))
    src = RNG.integers(3, 40, (3, 6))
    ids = {"bos_id": 1, "eos_id": 2, "max_len": 9}
    expected = greedy_decode(model, as_floats(params), src, **ids)
    assert_array_equal(greedy_decode(model, params, src, **ids), expected)


@pytest.mark.parametrize("kind", [LanguageModel, Transformer])
def test_the_integers_are_read_as_they_are(kind, monkeypatch):
    """Neither a step of few rows nor reading a few tokens makes floats of them."""
    sizes = {"d_model": 64, "n_heads": 2, "n_layers": 1, "d_ff": 64}
    model = Transformer(400, 400, **sizes) if kind is Transformer else LanguageModel(400, **sizes)
    params = quantize(model.init(0))
    monkeypatch.setattr(Quantized, "__array__", None)
    decoder = model.decoder(params, np.array([[3, 4, 5]]), max_rows=1, max_len=9)
    assert np.isfinite(decoder.step(np.array([6]), np.array([0]))).all()


@pytest.mark.parametrize("shape", [(3, 6), (8, 8), (5, 13), (2, 40)])  # up to 64 tokens, and more
@pytest.mark.parametrize("settings", ENCODERS, ids=str)
def test_an_encoder_computes_with_what_the_integers_stand_for(settings, shape, every_backend):
    model = Transformer(40, 40, **SIZES | settings)
    params = quantize(model.init(0))
    src = RNG.integers(1, 40, shape)
    src[0], src[1, 4:] = model.pad_id or 0, 0
    both = params, as_floats(params)
    found, expected = (model.encode(p, src, backend=every_backend) for p in both)
    np.testing.assert_allclose(found, expected, atol=1e-13)


def test_dropout_and_masks_of_an_encoder_apply_with_integers_too():
    model = Transformer(40, 40, **SIZES)
    params = quantize(model.init(0))
    src = RNG.integers(1, 40, (2, 6))
    losses = [model.loss(p, src, src, dropout_key=1) for p in (params, as_floats(params))]
    assert losses[0] == losses[1] != model.loss(params, src, src)
    encoder = Encoder(40, task="classes", n_outputs=3, **SIZES)
    params = quantize(encoder.init(0))
    mask = RNG.random((2, 6)) < 0.6
    found = [encoder.outputs(p, src, keep_mask=mask) for p in (params, as_floats(params))]
    np.testing.assert_allclose(*found, atol=1e-13)


def test_what_is_quantized_and_what_is_not():
    model = Encoder(40, d_model=8, n_heads=2, n_layers=1, d_ff=8, task="classes", n_outputs=3)
    params = quantize(model.init(0))
    integers = [path for path, x in tree.leaves(params) if isinstance(x, Quantized)]
    assert (integers[0], integers[-1]) == ("embedding", "output.weight")
    assert len(integers) == 6
    assert all(path.startswith("layers.0.") for path in integers[1:-1])
    ids = RNG.integers(1, 40, (2, 5))
    found, expected = (model.outputs(p, ids) for p in (params, as_floats(params)))
    assert_equal_within(64, "float32", [found], [expected])


def test_there_are_no_gradients():
    model = LanguageModel(40, **SIZES)
    params = quantize(model.init(0))
    ids = np.array([[3, 4, 5]])
    message = "8-bit integers have no gradients: train floats, and quantize"
    refuses(ValueError, message, model.loss_and_grad, params, ids)
    refuses(ValueError, "8-bit integers have no gradients", Trainer, model, SGD(0.1), params=params)
    refuses(ValueError, "8-bit integers have no gradients", LowRank, model, params, rank=2)


def test_what_is_no_tree_of_parameters_is_refused():
    model = LanguageModel(40, **SIZES)
    for given, described in [
        (model, "a LanguageModel"),
        (Trainer(model, SGD(0.1)).flat_params, r"float64 of shape \(\d+,\)"),
        (None, "a NoneType"),
    ]:
        message = f"params is {described}, expected a nested dict such as model.init"
        refuses(TypeError, message, quantize, given)
    message = "the tree has a list at layers, expected an array"
    refuses(TypeError, message, quantize, {"layers": [model.init(0)]})


def test_weights_that_are_no_numbers_are_refused():
    params = LanguageModel(40, **SIZES).init(0)
    params["layers"]["1"]["feed_forward"]["out"]["weight"][3, 4] = np.nan
    refuses(ValueError, r"layers.1.feed_forward.out.weight.*inf or NaN", quantize, params)
