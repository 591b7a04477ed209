"""Options of later models: what each means, and that it trains."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_all_close, assert_close
from promises import THREE_ROWS as SRC, assert_trees_close
from refusals import refuses
from results import normal

from npformer import (
    Adam,
    CopyTask,
    LanguageModel,
    Trainer,
    Transformer,
    compile_kernels,
    layers,
    reference,
    tree,
)
from npformer.models import describe, from_description

SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 32, "pad_id": 0}


def test_biases_of_queries_keys_and_values_alone():
    model = Transformer(7, 9, 6, n_heads=2, n_layers=1, d_ff=13, bias=False)

    def biases(model):
        paths = [path for path, _ in tree.leaves(model.shapes()["decoder"]["0"])]
        return [path for path in paths if path.endswith("bias") and "norm" not in path]

    maps = ["attention.qkv.bias", "memory_attention.q.bias", "memory_attention.kv.bias"]
    assert biases(replace(model, qkv_bias=True)) == maps
    assert biases(model) == []


def test_heads_of_the_usual_width_are_those_of_a_model_that_does_not_say_it():
    model = LanguageModel(7, d_model=8, n_heads=2, n_layers=1, d_ff=12)
    params = model.init(3)
    wide = replace(model, d_head=4)
    assert_trees_close(params, wide.init(3))
    ids = np.array([[3, 4, 5]])
    assert_array_equal(model.logits(params, ids), wide.logits(params, ids))
    wider = replace(model, d_head=14, n_kv_heads=1)
    attention = wider.shapes()["layers"]["0"]["attention"]
    assert attention["qkv"]["weight"].shape == (8, 4 * 14)
    assert attention["out"]["weight"].shape == (2 * 14, 8)


def test_queries_and_keys_are_normalised_head_by_head_before_they_are_turned(every_backend):
    rotary = layers.Rotary()
    settings = layers.AttentionSettings(2, n_kv_heads=1, qk_norm_eps=0.01, rotary=rotary)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 5, 8))
    widths = {"q": 8, "k": 4, "v": 4, "out": 8}
    params = {name: {"weight": rng.normal(size=(8, n))} for name, n in widths.items()}
    params |= {name: {"gain": rng.normal(size=4)} for name in ("q_norm", "k_norm")}
    y, _ = layers.self_attention(every_backend, params, x, settings)

    def heads(name):
        of_head = (x @ params[name]["weight"]).reshape(3, 5, -1, 4).swapaxes(1, 2)
        if name != "v":
            of_head /= np.sqrt((of_head**2).mean(-1, keepdims=True) + 0.01)
            of_head *= params[f"{name}_norm"]["gain"]
            of_head = reference.rotary(of_head, np.arange(5))
        return of_head if name == "q" else np.repeat(of_head, 2, axis=1)

    out, _ = reference.attention(heads("q"), heads("k"), heads("v"))
    assert_close(y, reference.merge_heads(out) @ params["out"]["weight"], 1e-12)
    del params["k_norm"]
    message = "expected 'k_norm', too"
    refuses(ValueError, message, layers.self_attention, every_backend, params, x, settings)


OPTIONS: list[dict] = [
    {"bias": False, "qkv_bias": True},
    {"bias": False, "qk_norm": True, "d_head": 6},
    {"n_layers": 4, "share_layers": 2},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_later_options_train_without_a_finding(options):
    model = LanguageModel(11, **{**SIZES, "n_layers": 2, **options})
    ids = CopyTask().batch(0, 32)[1]
    compile_kernels(model, progress=False)
    assert compile_kernels(model, progress=False) == 0
    trainer = Trainer(model, Adam(3e-3), clip_norm=1.0)
    assert trainer.diagnose(ids).names == []


def test_layers_that_share_parameters_are_layers_with_equal_ones():
    sizes = {"vocab": 7, "d_model": 8, "n_heads": 2, "n_layers": 6, "d_ff": 12, "dtype": "float64"}
    apart = LanguageModel(**sizes)
    shared = replace(apart, share_layers=2)
    params = shared.init(0)
    own = params["layers"]
    assert list(own) == ["0", "1", "norm"]
    copies = {str(i): own[str(i // 3)] for i in range(6)}
    copies = params | {"layers": {**copies, "norm": own["norm"]}}
    ids = np.random.default_rng(0).integers(1, 7, (3, 9))
    loss, grads, _ = shared.loss_and_grad(params, ids, dropout_key=1)
    expected, of_copies, _ = apart.loss_and_grad(copies, ids, dropout_key=1)
    assert loss == expected
    for name, copies in (("0", "012"), ("1", "345")):
        parts = [of_copies["layers"][i] for i in copies]
        sums = tree.map_leaves(lambda *gradients: sum(gradients), *parts)
        tree.map_leaves(np.testing.assert_allclose, grads["layers"][name], sums)


def test_a_model_of_shared_layers_can_be_deep():
    """It has fewer arrays than layers."""
    model = LanguageModel(11, **SIZES, n_layers=60, share_layers=1)
    arrays = tree.to_arrays(model.init(0), "params")
    assert from_description(describe(model), arrays) == model


# --- heads of queries that share heads of keys and values (Ainslie et al. 2023) ---

GROUPED = {"d_model": 8, "n_heads": 4, "n_layers": (1, 2), "d_ff": 9, "max_len": 16}


def packed(params, names):
    """The maps of these names as one."""
    others = {name: x for name, x in params.items() if name not in names}
    parts = [params[name] for name in names]
    joined = tree.map_leaves(lambda *arrays: np.concatenate(arrays, axis=-1), *parts)
    return {names: joined} | others


@pytest.mark.parametrize("has_bias", [True, False])
def test_separate_projections_compute_what_a_packed_one_does(every_backend, has_bias):
    """Forward and gradients, for q (D, D) and narrower k and v, as in the weights of Llama."""
    maps = {}
    for seed, (name, n) in enumerate({"q": 12, "k": 6, "v": 6, "out": 12}.items()):
        maps[name] = {"weight": normal(12, n, seed=seed)}
        if has_bias:
            maps[name]["bias"] = normal(n, seed=seed)
    x, dy = normal(2, 2, 5, 12)
    memory = normal(2, 7, 12)

    def results(layer, params, *inputs):
        y, backward = layer(every_backend, params, *inputs, layers.AttentionSettings(4, 2))
        return y, *backward(dy)

    for layer, inputs, names in (
        (layers.self_attention, [x], "qkv"),
        (layers.cross_attention, [x, memory], "kv"),
    ):
        *arrays, grads = results(layer, maps, *inputs)
        *expected, of_packed = results(layer, packed(maps, names), *inputs)
        assert_all_close(arrays, expected, 1e-11)
        grads = dict(tree.leaves(packed(grads, names)))
        for path, grad in tree.leaves(of_packed):
            assert_close(grad, grads[path], 1e-11)


def test_as_many_as_heads_of_queries_change_nothing():
    model = Transformer(11, 11, **GROUPED)
    assert_trees_close(replace(model, n_kv_heads=4).init(0), model.init(0))


def test_weights_of_attention_are_those_of_each_head_of_queries():
    model = Transformer(11, 11, n_kv_heads=2, **GROUPED)
    params = model.init(0)
    decoder = model.decoder(params, SRC, max_rows=3, max_len=4)
    assert decoder.kv.shape[-1] == 2 * 2 * 2  # keys and values, heads, width
    assert model.attention_weights(params, SRC, SRC)["memory"][0].shape == (3, 4, 4, 4)


def test_a_number_that_does_not_divide_the_heads_and_widths_that_do_not_fit():
    message = "n_kv_heads=3, expected a divisor of n_heads=4"
    refuses(ValueError, message, Transformer, 11, 11, n_kv_heads=3, **GROUPED)
    message = r"kv has shape \(2, 7, 24\), expected \(B, S, 2\*G\*K\) with .*G = 2 from settings"
    settings = layers.AttentionSettings(4, 2)
    refuses(
        ValueError, message, reference.cross_attention, normal(2, 5, 12), normal(2, 7, 24), settings
    )


# --- position vectors that are parameters ---

LEARNED = Transformer(11, 11, 6, n_heads=2, n_layers=1, d_ff=8, max_len=13, positions="learned")
TABLES = ["source_positions", "target_positions"]


def test_what_lies_beyond_the_sentences_does_not_matter():
    params = LEARNED.init(0)
    loss, grads, _ = LEARNED.loss_and_grad(params, SRC, SRC, dropout_key=1)
    for name, length in zip(TABLES, (4, 3), strict=True):
        params[name][length:] = np.nan
    other_loss, other_grads, _ = LEARNED.loss_and_grad(params, SRC, SRC, dropout_key=1)
    assert other_loss == loss
    assert_trees_close(other_grads, grads)


def test_the_option_changes_nothing_but_the_positions():
    sinusoidal = replace(LEARNED, positions="sinusoidal")
    params = LEARNED.init(0)
    assert [params[name].shape for name in TABLES] == [(13, 6)] * 2
    assert LEARNED.position_table is None
    for name in TABLES:
        params[name][...] = sinusoidal.position_table
    alike = {name: x for name, x in params.items() if name not in TABLES}
    assert_array_equal(LEARNED.logits(params, SRC, SRC), sinusoidal.logits(alike, SRC, SRC))


def test_they_begin_as_large_as_sines_and_cosines():
    params = replace(LEARNED, d_model=256, max_len=100).init(0)
    for name in TABLES:
        assert abs(np.square(params[name]).mean() - 0.5) < 0.02
