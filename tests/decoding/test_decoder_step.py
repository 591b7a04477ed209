"""A step of the layers of a decoder that a backend computes at once is that of the layers,
composed of operations.
"""

import weakref
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refuses
from results import assert_equal_within, assert_same_with_helpers

from npformer import LanguageModel, Transformer, cpu, explain, greedy_decode, layers, quantize, tree
from npformer.cpu.kernels import decoding
from npformer.models.initialization import Initializer, LayerShapes
from npformer.operations.settings import Rotary
from npformer.quantized import dequantized

N, B, T, S, D, F, H = 2, 3, 4, 5, 12, 20, 3
ROTARY = Rotary(base=100.0, scaling=0.5)
SETTINGS = [
    {"norm": norm, "activation": activation, "eps": eps}
    for norm, eps in (("pre", None), ("post", 0.1))
    for activation in ("relu", "gelu", "gelu_erf", "silu", "swiglu")
]
SETTINGS += [{"norm": norm, "norm_type": "rms_norm"} for norm in ("pre", "post")]
ATTENTIONS = [
    {},
    {"scale": 0.3, "causal": True},
    {"rotary": ROTARY, "n_kv_heads": 1},
    {"rotary": replace(ROTARY, pairs="interleaved")},
    {"rotary": replace(ROTARY, scaling=1.0, llama3=layers.Llama3Scaling(8.0, original_max_len=T))},
    {"window": T},
]
each_layer = pytest.mark.parametrize("options", SETTINGS, ids=str)
each_attention = pytest.mark.parametrize("attention", ATTENTIONS, ids=str)


def given(dtype, settings, seed=0, has_memory=True, has_bias=True):
    """Layers, x, and caches in which some words of the memory are hidden.

    What nobody may read is NaN.
    """
    rng = np.random.default_rng(seed)
    new = Initializer(seed, dtype)
    new_layer = new.decoder_layer if has_memory else new.encoder_layer
    stack = [new_layer(LayerShapes(D, F, settings, has_bias)) for _ in range(N)]
    shaken = lambda x: x + 0.1 * rng.standard_normal(x.shape).astype(dtype)
    stack = [tree.map_leaves(shaken, layer) for layer in stack]
    width = 2 * settings.attention.widths(D)[1]
    kv, memory_kv = rng.standard_normal((2, N, B * S, width)).astype(dtype)
    at = rng.permutation(B * S)[: B * T].reshape(B, T)
    mask = rng.random((B, 1, 1, S)) < 0.6
    mask[0] = False
    memory_at = rng.permutation(B * S).reshape(B, S)
    kv[:, ~np.isin(np.arange(B * S), at)] = np.nan
    memory_kv[:, memory_at[~mask[:, 0, 0]]] = np.nan
    x = rng.standard_normal((B, D)).astype(dtype)
    memory = layers.KeyValueCache(memory_kv, memory_at, mask) if has_memory else None
    return stack, x, layers.KeyValueCache(kv, at, rotary=settings.attention.rotary), memory


def stepped(stack, x, cache, memory, settings):
    step = cpu.ops.hooks["stack_step"](stack, settings, memory is not None, len(x), 99)
    return step(x, cache, memory) if step else NotImplemented


@pytest.mark.parametrize("integers", [False, True], ids=["floats", "integers"])
@pytest.mark.parametrize(("has_memory", "has_bias"), [(True, True), (False, False), (False, True)])
@each_layer
@each_attention
def test_the_kernel_of_a_step_computes_the_layers(
    options, attention, has_memory, has_bias, integers
):
    dtype = "float32" if has_bias else "float64"
    settings = layers.LayerSettings(layers.AttentionSettings(H, **attention), **options)
    stack, x, cache, memory = given(dtype, settings, has_memory=has_memory, has_bias=has_bias)
    if integers:
        small = quantize({str(i): layer for i, layer in enumerate(stack)})
        stack = list(small.values())
    written = cache._replace(kv=cache.kv.copy())
    y = stepped(stack, x, written, memory, settings)
    expected = x
    for i, layer in enumerate(map(dequantized, stack)):
        own = cache._replace(kv=cache.kv[i])
        if has_memory:
            of_layer = layer, expected, memory._replace(kv=memory.kv[i]), settings
            expected, _ = layers.decoder_layer(cpu.ops, *of_layer, cache=own)
        else:
            expected, _ = layers.encoder_layer(cpu.ops, layer, expected, settings, cache=own)
    assert_equal_within(64, dtype, [y, written.kv], [expected, cache.kv])


def test_heads_are_shared_with_helpers_and_have_the_same_bits(monkeypatch):
    rows, keys, width = 8, 40, 16 * H
    rng = np.random.default_rng(0)
    new = Initializer(0, "float32")
    settings = layers.LayerSettings(layers.AttentionSettings(H))
    kv = rng.standard_normal((1, rows * keys, 2 * width), "float32")
    at = rng.permutation(rows * keys)
    x = rng.standard_normal((rows, width), "float32")
    cache = layers.KeyValueCache(kv, at.reshape(rows, keys))
    layer = new.encoder_layer(LayerShapes(width, F, settings))
    step = lambda: stepped([layer], x, cache._replace(kv=kv.copy()), None, settings)
    alone = step()
    expected, _ = layers.encoder_layer(
        cpu.ops, layer, x, settings, cache=cache._replace(kv=kv[0].copy())
    )
    assert_equal_within(64, "float32", alone, expected)
    assert x.size * keys >= decoding.SHARED
    assert_same_with_helpers(step, alone, 4, monkeypatch)


def test_steps_are_listed_as_an_operation(monkeypatch):
    model = LanguageModel(11, d_model=8, n_heads=2, n_layers=2, d_ff=8)
    params = model.init(0)
    greedy_decode(model, params, [[3]], max_len=T)
    with explain() as calls:
        greedy_decode(model, params, [[3]], max_len=T)
    steps = [call for call in calls if call.operation == "stack_step"]
    assert [call.shapes for call in steps] == [{"x": (1, 8), "at": (1, t + 1)} for t in range(T)]
    of_steps = {(call.backend, call.by, call.dtype, call.flops) for call in steps}
    assert of_steps == {("cpu", "kernel", "float32", 0)}
    assert steps[1].bytes - steps[0].bytes == 2 * 2 * 8 * 4  # of a key and a value of each layer
    assert "cached_attention" not in {call.operation for call in calls}
    assert f" (summed over threads) in {1e3 * calls.passed:.1f} ms" in repr(calls)
    assert calls.passed > sum(call.seconds for call in calls) > 0

    with explain() as calls:
        greedy_decode(model, params, [[3]] * 4, max_len=15)  # which copies the weights
    maps = [call.shapes for call in calls if call.operation == "linear"]
    assert [shapes["x"] for shapes in maps if shapes["weight"] == (8, 11)] == [(4, 8)] * 15

    # the kernel leaves steps to the operations
    monkeypatch.setattr("npformer.cpu.kernels.stack_step.FEW_ROWS", 0)
    with explain() as calls:
        greedy_decode(model, params, [[3]], max_len=T)
    assert sum(call.operation == "cached_attention" for call in calls) == 2 * T
    assert "stack_step" not in {call.operation for call in calls}


def test_a_window_that_hides_entries_of_the_cache_is_left_to_the_layer():
    settings = layers.LayerSettings(layers.AttentionSettings(H, window=T - 1))
    assert stepped(*given("float32", settings), settings) is NotImplemented


def test_parameters_that_the_kernel_does_not_take_are_left_to_the_layer():
    settings = layers.LayerSettings(layers.AttentionSettings(H))
    (first, second), *others = given("float32", settings)
    attention, norm = second["attention"], second["attention_norm"]
    two_maps = second | {"attention": {"q": attention["qkv"], "out": attention["out"]}}
    in_float64 = tree.map_leaves(lambda x: x.astype("float64"), norm)
    wide = second | {"attention_norm": in_float64}
    wider = Initializer(0, "float32").decoder_layer(LayerShapes(D, F + 1, settings))
    integers = quantize({"1": second})["1"]
    for changed in (two_maps, wide, wider, integers):
        assert stepped([first, changed], *others, settings) is NotImplemented


def test_a_cache_in_another_order_of_bytes_is_left_to_the_layer():
    settings = layers.LayerSettings(layers.AttentionSettings(H))
    stack, x, cache, memory = given("float32", settings)
    swapped = cache._replace(kv=cache.kv.astype(">f4"))
    assert stepped(stack, x, swapped, memory, settings) is NotImplemented


def test_an_embedding_in_another_order_of_bytes_decodes_the_same():
    model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8, tie_embeddings=False)
    src = np.array([[3, 4, 5]])
    ids = {"bos_id": 1, "eos_id": 2, "max_len": 6}
    for seed in range(8):
        params = model.init(seed)
        swapped = params | {"target_embedding": params["target_embedding"].astype(">f4")}
        expected = greedy_decode(model, params, src, **ids)
        assert_array_equal(greedy_decode(model, swapped, src, **ids), expected)


def test_an_eps_that_the_dtype_cannot_hold_is_refused():
    settings = layers.LayerSettings(layers.AttentionSettings(H), eps=1e-60)
    message = "eps=1e-60 is 0.0 in float32"
    refuses(ValueError, message, stepped, *given("float32", settings), settings)


def test_a_step_keeps_the_weights_that_it_reads():
    stack, x, cache, memory = given("float32", layers.LayerSettings(layers.AttentionSettings(H)))
    step = cpu.ops.hooks["stack_step"](
        stack, layers.LayerSettings(layers.AttentionSettings(H)), True, 3, 99
    )
    weight = weakref.ref(stack[1]["feed_forward"]["out"]["weight"])
    stack.clear()
    assert weight() is not None
    assert np.isfinite(step(x, cache, memory)).all()


@pytest.mark.filterwarnings("ignore:weight has float64")
@pytest.mark.parametrize(
    ("of_output", "of_layers"), [("float64", "float32"), ("float32", "float64")]
)
def test_an_output_of_another_dtype_than_the_layers(of_output, of_layers):
    model = LanguageModel(40, d_model=16, n_heads=2, n_layers=1, d_ff=16, tie_embeddings=False)
    params = tree.map_leaves(lambda x: x.astype(of_layers), model.init(0))
    params["output"] = tree.map_leaves(lambda x: x.astype(of_output), params["output"])
    prompts = np.random.default_rng(0).integers(3, 40, (4, 5))
    expected = greedy_decode(model, params, prompts, max_len=15, backend="reference")
    assert_array_equal(greedy_decode(model, params, prompts, max_len=15), expected)
