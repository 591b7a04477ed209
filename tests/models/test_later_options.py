"""A Transformer with options of later models: its gradients, and decoding a token at a time."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_close
from refusals import refuses
from whole_models import V_SRC, V_TGT

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


def test_biases_of_queries_keys_and_values_alone():
    model = Transformer(V_SRC, V_TGT, 6, n_heads=2, n_layers=1, d_ff=13, bias=False, qkv_bias=True)
    biases = [
        path for path, _ in tree.leaves(model.shapes()["decoder"]["0"]) if path.endswith("bias")
    ]
    maps = "attention.qkv", "memory_attention.q", "memory_attention.kv"
    assert [path for path in biases if "norm" not in path] == [f"{name}.bias" for name in maps]
    without = replace(model, qkv_bias=None)
    assert not [path for path, _ in tree.leaves(without.shapes()) if path.endswith("v.bias")]


def test_heads_of_the_usual_width_are_those_of_a_model_that_does_not_say_it():
    model = LanguageModel(7, d_model=8, n_heads=2, n_layers=1, d_ff=12)
    params = model.init(3)
    wide = replace(model, d_head=4)
    tree.map_leaves(np.testing.assert_array_equal, params, wide.init(3))
    ids = np.array([[3, 4, 5]])
    assert_array_equal(model.logits(params, ids), wide.logits(params, ids))
    attention = replace(model, d_head=7 * 2, n_kv_heads=1).shapes()["layers"]["0"]["attention"]
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
        if name == "v":
            return of_head
        size = np.sqrt((of_head**2).mean(-1, keepdims=True) + 0.01)
        return reference.rotary(of_head / size * params[f"{name}_norm"]["gain"], np.arange(5))

    out, _ = reference.attention(heads("q"), *(np.repeat(heads(x), 2, axis=1) for x in "kv"))
    assert_close(y, reference.merge_heads(out) @ params["out"]["weight"], 1e-12)
    del params["k_norm"]
    message = "expected 'k_norm', too"
    refuses(ValueError, message, layers.self_attention, every_backend, params, x, settings)


@pytest.mark.parametrize("options", [{"qkv_bias": True}, {"qk_norm": True, "d_head": 6}], ids=str)
def test_later_options_train_without_a_finding(options):
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 2, "d_ff": 32, "pad_id": 0}
    model = LanguageModel(11, **sizes, bias=False, **options)
    ids = CopyTask().batch(0, 32)[1]
    assert from_description(describe(model)) == model
    trainer = Trainer(model, Adam(3e-3), clip_norm=1.0)
    assert trainer.diagnose(ids).names == []


def test_layers_that_share_parameters_are_layers_with_equal_ones():
    sizes = {"vocab": 7, "d_model": 8, "n_heads": 2, "n_layers": 6, "d_ff": 12, "dtype": "float64"}
    shared, apart = LanguageModel(**sizes, share_layers=2), LanguageModel(**sizes)
    params = shared.init(0)
    copies = params | {"layers": {str(i): params["layers"][str(i // 3)] for i in range(6)}}
    copies["layers"]["norm"] = params["layers"]["norm"]
    ids = np.random.default_rng(0).integers(1, 7, (3, 9))
    loss, grads, _ = shared.loss_and_grad(params, ids, dropout_key=1)
    expected, of_copies, _ = apart.loss_and_grad(copies, ids, dropout_key=1)
    assert loss == expected
    assert list(params["layers"]) == ["0", "1", "norm"]
    for name, first in (("0", 0), ("1", 3)):
        parts = [of_copies["layers"][str(i)] for i in range(first, first + 3)]
        sums = tree.map_leaves(lambda *gradients: sum(gradients), *parts)
        tree.map_leaves(np.testing.assert_allclose, grads["layers"][name], sums)


def test_a_model_of_shared_layers_can_be_deep_and_trains_without_a_mistake():
    model = LanguageModel(11, d_model=16, n_heads=2, n_layers=60, d_ff=32, share_layers=1, pad_id=0)
    arrays = tree.to_arrays(model.init(0), "params")
    assert from_description(describe(model), arrays) == model  # it has fewer arrays than layers
    model = replace(model, n_layers=4, share_layers=2)
    ids = CopyTask().batch(0, 32)[1]
    compile_kernels(model, progress=False)
    assert compile_kernels(model, progress=False) == 0
    trainer = Trainer(model, Adam(3e-3), clip_norm=1.0)
    assert trainer.diagnose(ids).names == []
