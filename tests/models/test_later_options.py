"""Options of later models: what each means, and that it trains."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_close
from promises import assert_trees_close
from refusals import refuses

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
