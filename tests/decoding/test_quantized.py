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
SIZES["activation"] = "relu"  # a kernel of float64 that other tests compile, too
LANGUAGE_MODELS: list[dict] = [
    {},
    {"positions": "learned", "window": 5, "pad_id": 0},
    {"tie_embeddings": False, "bias": False, "norm_type": "rms_norm", "n_kv_heads": 1},
    {"bias": False, "qkv_bias": True, "qk_norm": True, "d_head": 4},
]
ENCODERS: list[dict] = [
    {},
    {"norm": "post", "positions": "rotary", "n_kv_heads": 1},
    {"norm_type": "rms_norm", "bias": False, "pad_id": None},
    {"window": 3},
    {"n_layers": 0},
]


IDS = {"bos_id": 1, "eos_id": 2, "max_len": 9}
SRC = RNG.integers(3, 40, (3, 6))
SRC[1, 4:] = 0


def as_floats(params):
    return tree.map_leaves(np.asarray, params)


def assert_decodes_as_floats(model, params, **options):
    options |= IDS
    said = greedy_decode(model, params, SRC, **options)
    assert_array_equal(said, greedy_decode(model, as_floats(params), SRC, **options))


def paths_of_integers(params):
    return [path for path, x in tree.leaves(params) if isinstance(x, Quantized)]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("size", [1e-45, 1e-44, 2e-43, 3e-43, 1e-40, 1e-36, 1])
def test_a_weight_changes_by_half_a_step_at_most_also_where_the_step_has_few_digits(size, axis):
    x = RNG.uniform(-size, size, (50, 50)).astype("float32")
    x[0] = x[:, 0] = size
    x[:, 2] = x[2] = 0
    matrix = Quantized.of(x, axis)
    assert (matrix.values.dtype, matrix.scale.dtype) == ("int8", "float32")
    assert matrix.shape == x.shape
    scale = matrix.scale.astype(float)
    floats = np.asarray(matrix)
    assert (np.abs(floats - x) <= 0.5001 * scale).all()
    assert (127 * scale <= np.abs(x).max(axis, keepdims=True) * (1 + 1e-6) + 200 * 1.5e-45).all()
    assert (matrix.values[0, 3:] > 0).all()
    assert_array_equal(matrix.T, floats.T)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m", [1, 2, 3, 8, 9, 16, 17, 40, 130])
def test_the_product_of_integers(m, dtype):
    for D, V in ((1, 3), (3, 1), (65, 70), (700, 130)):
        weight = RNG.standard_normal((D, V)).astype(dtype)
        x = RNG.standard_normal((m, D)).astype(dtype)
        bias = RNG.standard_normal(V).astype(dtype)
        by_columns = Quantized.of(weight, axis=0)
        by_rows = Quantized.of(weight.T.copy(), axis=1).T
        for matrix in (by_columns, by_rows):
            with kernel_threads():
                y = few_rows_linear(matrix, bias, len(x), 99)(x)
            expected = x @ np.asarray(matrix) + bias
            assert_equal_within(8 * D**0.5, dtype, [y], [expected])


@pytest.mark.parametrize("B", [1, 3, 70])
@pytest.mark.parametrize("settings", LANGUAGE_MODELS, ids=str)
def test_a_language_model_computes_with_what_the_integers_stand_for(settings, B, every_backend):
    model = LanguageModel(40, **SIZES | settings)
    in_the_order_of_a_file = tree.from_leaves(sorted(tree.leaves(model.init(0))))
    params = quantize(in_the_order_of_a_file)
    floats = as_floats(params)
    ids = RNG.integers(1, 40, (B, 9))
    assert_array_equal(model.logits(params, ids), model.logits(floats, ids))
    assert model.loss(params, ids) == model.loss(floats, ids)
    prompts = [row[: 1 + i % 7] for i, row in enumerate(ids)]
    options = {"max_rows": B, "max_len": 4, "backend": every_backend}
    decoder = model.decoder(params, prompts, **options)
    of_floats = model.decoder(floats, prompts, **options)
    for token in ids.T[:4]:
        step = token, np.arange(B)
        np.testing.assert_allclose(decoder.step(*step), of_floats.step(*step), atol=1e-13)


@pytest.mark.parametrize("tie_embeddings", [False, True])
def test_a_transformer_finds_the_same_translations(tie_embeddings, every_backend):
    model = Transformer(40, 40, tie_embeddings=tie_embeddings, **SIZES)
    params = quantize(model.init(0))
    assert_decodes_as_floats(model, params, backend=every_backend)
    options = {**IDS, "beam_size": 4, "backend": every_backend}
    found = beam_search(model, params, SRC, **options)
    expected = beam_search(model, as_floats(params), SRC, **options)
    assert [best.tokens for (best,) in found] == [best.tokens for (best,) in expected]


@pytest.mark.parametrize(
    "model", [Recurrent(40, 40, 8, attention="general"), ByteNet(40, 40, 8, n_sets=1)], ids=repr
)
def test_of_other_models_the_tables_are_quantized(model):
    params = quantize(model.init(0))
    tables = ["source_embedding", "target_embedding", "output.weight"]
    assert paths_of_integers(params) == tables
    assert_decodes_as_floats(model, params)
    message = "8-bit integers have no gradients: train floats, and quantize"
    refuses(ValueError, message, model.loss_and_grad, params, SRC, SRC)
    refuses(ValueError, message, Trainer, model, SGD(0.1), params=params)
    refuses(ValueError, message, LowRank, model, params, targets=("output",))


def test_a_gradient_is_refused_before_anything_is_computed(monkeypatch):
    model = Transformer(40, 40, **SIZES)
    params = quantize(model.init(0))
    monkeypatch.setattr(Transformer, "_encode", None)
    refuses(ValueError, "8-bit integers have no gradients", model.loss_and_grad, params, SRC, SRC)


def test_integers_in_a_dict_of_fixed_arrays_are_seen():
    model = LanguageModel(40, **SIZES)
    params = tree.fixed(quantize(model.init(0)))
    refuses(ValueError, "8-bit integers have no gradients", Trainer, model, SGD(0.1), params=params)
    assert greedy_decode(model, params, [[3]], max_len=2).shape == (1, 2)


def test_half_precision_becomes_single_as_its_scales_would_be_too_small():
    model = LanguageModel(40, **SIZES | {"dtype": "float32"})
    half = tree.map_leaves(lambda x: (1e-3 * x).astype("float16"), model.init(0))
    params = quantize(half)
    assert {x.dtype for _, x in tree.leaves(params)} == {np.dtype("float32")}
    assert greedy_decode(model, params, [[3]], max_len=2).shape == (1, 2)

    def assert_near(x, wanted):
        np.testing.assert_allclose(x, wanted, atol=np.abs(wanted).max() / 250)

    tree.map_leaves(assert_near, params, half)


@pytest.mark.parametrize("dtype", [">f4", "float16"])
def test_other_dtypes_decode_as_what_the_integers_stand_for(dtype):
    model = Transformer(40, 40, **SIZES)
    params = quantize(tree.map_leaves(lambda x: x.astype(dtype), model.init(0)))
    assert_decodes_as_floats(model, params)


WIDE = {"d_model": 64, "n_heads": 2, "n_layers": 1, "d_ff": 64}


@pytest.mark.parametrize(
    "model", [LanguageModel(400, **WIDE), Transformer(400, 400, **WIDE)], ids=["text", "source"]
)
def test_the_integers_are_read_as_they_are(model, monkeypatch):
    """Neither a step of few rows nor reading a few tokens makes floats of them."""
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
    src[0] = 0
    src[1, 4:] = 0
    found = model.encode(params, src, backend=every_backend)
    expected = model.encode(as_floats(params), src, backend=every_backend)
    np.testing.assert_allclose(found, expected, atol=1e-13)


def test_dropout_and_masks_of_an_encoder_apply_with_integers_too():
    model = Transformer(40, 40, **SIZES)
    params = quantize(model.init(0))
    loss = model.loss(params, SRC, SRC, dropout_key=1)
    assert loss == model.loss(as_floats(params), SRC, SRC, dropout_key=1)
    assert loss != model.loss(params, SRC, SRC)
    encoder = Encoder(40, task="classes", n_outputs=3, **SIZES)
    params = quantize(encoder.init(0))
    mask = RNG.random(SRC.shape) < 0.6
    found = encoder.outputs(params, SRC, keep_mask=mask)
    expected = encoder.outputs(as_floats(params), SRC, keep_mask=mask)
    np.testing.assert_allclose(found, expected, atol=1e-13)


def test_what_is_quantized_and_what_is_not():
    model = Encoder(40, d_model=8, n_heads=2, n_layers=1, d_ff=8, task="classes", n_outputs=3)
    params = quantize(model.init(0))
    first, *of_layers, last = paths_of_integers(params)
    assert first == "embedding"
    assert last == "output.weight"
    assert len(of_layers) == 4
    assert all(path.startswith("layers.0.") for path in of_layers)
    expected = model.outputs(as_floats(params), SRC)
    assert_equal_within(64, "float32", [model.outputs(params, SRC)], [expected])


def test_what_is_no_tree_of_parameters_is_refused():
    model = LanguageModel(40, **SIZES)

    def refused(described, params):
        message = f"params is {described}, expected a nested dict such as model.init"
        refuses(TypeError, message, quantize, params)

    refused("a LanguageModel", model)
    refused(r"float64 of shape \(\d+,\)", Trainer(model, SGD(0.1)).flat_params)
    refused("a NoneType", None)
    message = "the tree has a list at layers, expected an array"
    refuses(TypeError, message, quantize, {"layers": [model.init(0)]})


def test_weights_that_are_no_numbers_are_refused():
    params = LanguageModel(40, **SIZES).init(0)
    params["layers"]["1"]["feed_forward"]["out"]["weight"][3, 4] = np.nan
    refuses(ValueError, r"layers.1.feed_forward.out.weight.*inf or NaN", quantize, params)
