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
SETTINGS: list[dict] = []
for norm, eps in (("pre", None), ("post", 0.1)):
    # Of one map, of another, and with a gate: each is compiled anew, which takes many seconds.
    activations = "relu", "gelu", "swiglu"
    SETTINGS += [{"norm": norm, "eps": eps, "activation": name} for name in activations]
    SETTINGS.append({"norm": norm, "norm_type": "rms_norm"})
LLAMA3 = layers.Llama3Scaling(8.0, original_max_len=T)
ATTENTIONS = [
    {},
    {"scale": 0.3, "causal": True},
    {"rotary": ROTARY, "n_kv_heads": 1},
    {"rotary": replace(ROTARY, pairs="interleaved")},
    {"rotary": replace(ROTARY, scaling=1.0, llama3=LLAMA3)},
    {"window": T},
]
PLAIN = layers.LayerSettings(layers.AttentionSettings(H))
POST, RMS_NORM = {"norm": "post", "eps": 0.1}, {"norm_type": "rms_norm"}
# Each with the first of the other kind, and some pairs of both.
CASES = [(options, {}) for options in SETTINGS] + [({}, attention) for attention in ATTENTIONS]
CASES += [(POST, attention) for attention in ATTENTIONS[1:3]]
CASES += [(RMS_NORM | {"activation": "swiglu"}, ATTENTIONS[2]), (RMS_NORM, ATTENTIONS[-1])]


def given(dtype="float32", settings=PLAIN, has_memory=True, has_bias=True):
    """Layers, x, and caches in which some words of the memory are hidden.

    What nobody may read is NaN.
    """
    rng = np.random.default_rng(0)
    new = Initializer(0, dtype)
    new_layer = new.decoder_layer if has_memory else new.encoder_layer
    shapes = LayerShapes(D, F, settings, has_bias)
    shaken = lambda x: x + 0.1 * rng.standard_normal(x.shape).astype(dtype)
    stack = [tree.map_leaves(shaken, new_layer(shapes)) for _ in range(N)]
    attention = settings.attention
    _, width, *_ = attention.widths(D)
    kv, memory_kv = rng.standard_normal((2, N, B * S, 2 * width)).astype(dtype)
    entries = rng.permutation(B * S)
    at, unused = np.split(entries, [B * T])
    kv[:, unused] = np.nan
    cache = layers.KeyValueCache(kv, at.reshape(B, T), rotary=attention.rotary)
    memory = None
    if has_memory:
        mask = rng.random((B, 1, 1, S)) < 0.6
        mask[0] = False
        memory_at = rng.permutation(B * S).reshape(B, S)
        memory_kv[:, memory_at[~mask[:, 0, 0]]] = np.nan
        memory = layers.KeyValueCache(memory_kv, memory_at, mask)
    x = rng.standard_normal((B, D)).astype(dtype)
    return stack, x, cache, memory


def of_integers(*layers):
    small = quantize({str(i): layer for i, layer in enumerate(layers)})
    return list(small.values())


def stepped(stack, x, cache, memory, settings=PLAIN):
    step = cpu.ops.hooks["stack_step"](stack, settings, memory is not None, len(x), 99)
    return step(x, cache, memory) if step else NotImplemented


each_stack = pytest.mark.parametrize(
    ("has_memory", "has_bias"), [(True, True), (False, False), (False, True)]
)


@pytest.mark.parametrize("integers", [False, True], ids=["floats", "integers"])
@each_stack
@pytest.mark.parametrize(("options", "attention"), CASES, ids=str)
def test_the_kernel_of_a_step_computes_the_layers(
    options, attention, has_memory, has_bias, integers
):
    # Each activation has kernels of its own, which take many seconds to compile.
    dtype = "float32" if has_bias or "activation" in options else "float64"
    settings = layers.LayerSettings(layers.AttentionSettings(H, **attention), **options)
    stack, x, cache, memory = given(dtype, settings, has_memory, has_bias)
    if integers:
        stack = of_integers(*stack)
    written = cache._replace(kv=cache.kv.copy())
    y = stepped(stack, x, written, memory, settings)
    expected = x
    for i, layer in enumerate(map(dequantized, stack)):
        inputs = [layer, expected]
        layer_of = layers.encoder_layer
        if has_memory:
            inputs.append(memory._replace(kv=memory.kv[i]))
            layer_of = layers.decoder_layer
        own = cache._replace(kv=cache.kv[i])
        expected, _ = layer_of(cpu.ops, *inputs, settings, cache=own)
    assert_equal_within(64, dtype, [y, written.kv], [expected, cache.kv])


def test_heads_are_shared_with_helpers_and_have_the_same_bits(monkeypatch):
    rows, keys, width = 8, 40, 16 * H
    rng = np.random.default_rng(0)
    kv = rng.standard_normal((1, rows * keys, 2 * width), "float32")
    at = rng.permutation(rows * keys).reshape(rows, keys)
    x = rng.standard_normal((rows, width), "float32")
    layer = Initializer(0, "float32").encoder_layer(LayerShapes(width, F, PLAIN))
    step = lambda: stepped([layer], x, layers.KeyValueCache(kv.copy(), at), None)
    alone = step()
    cache = layers.KeyValueCache(kv[0].copy(), at)
    expected, _ = layers.encoder_layer(cpu.ops, layer, x, PLAIN, cache=cache)
    assert_equal_within(64, "float32", alone, expected)
    assert x.size * keys >= decoding.SHARED
    assert_same_with_helpers(step, alone, 4, monkeypatch)


def test_steps_are_listed_as_an_operation(monkeypatch):
    model = LanguageModel(11, d_model=8, n_heads=2, n_layers=2, d_ff=8)
    params = model.init(0)

    def calls_of(n_rows, n_steps):
        with explain() as calls:
            greedy_decode(model, params, [[3]] * n_rows, max_len=n_steps)
        return calls

    calls_of(1, T)
    calls = calls_of(1, T)
    steps = [call for call in calls if call.operation == "stack_step"]
    assert [call.shapes for call in steps] == [{"x": (1, 8), "at": (1, t + 1)} for t in range(T)]
    for call in steps:
        assert (call.backend, call.by, call.dtype, call.flops) == ("cpu", "kernel", "float32", 0)
    assert steps[1].bytes - steps[0].bytes == 2 * 2 * 8 * 4  # of a key and a value of each layer
    assert "cached_attention" not in {call.operation for call in calls}
    assert f" (summed over threads) in {1e3 * calls.passed:.1f} ms" in repr(calls)
    assert calls.passed > sum(call.seconds for call in calls) > 0

    # which copies the weights
    maps = [call.shapes for call in calls_of(4, 15) if call.operation == "linear"]
    assert [shapes["x"] for shapes in maps if shapes["weight"] == (8, 11)] == [(4, 8)] * 15

    # the kernel leaves steps to the operations
    monkeypatch.setattr("npformer.cpu.kernels.stack_step.FEW_ROWS", 0)
    names = [call.operation for call in calls_of(1, T)]
    assert names.count("cached_attention") == 2 * T
    assert "stack_step" not in names


def test_a_window_that_hides_entries_of_the_cache_is_left_to_the_layer():
    settings = layers.LayerSettings(layers.AttentionSettings(H, window=T - 1))
    assert stepped(*given("float32", settings), settings) is NotImplemented


def test_parameters_that_the_kernel_does_not_take_are_left_to_the_layer():
    (first, second), *others = given()
    attention = second["attention"]
    two_maps = second | {"attention": {"q": attention["qkv"], "out": attention["out"]}}
    in_float64 = tree.map_leaves(lambda x: x.astype("float64"), second["attention_norm"])
    wide = second | {"attention_norm": in_float64}
    without_bias = second | {"attention_norm": {"gain": second["attention_norm"]["gain"]}}
    wider = Initializer(0, "float32").decoder_layer(LayerShapes(D, F + 1, PLAIN))
    for changed in (two_maps, wide, without_bias, wider, *of_integers(second)):
        assert stepped([first, changed], *others) is NotImplemented
        assert stepped([changed, first], *others) is NotImplemented
    assert stepped([], *others) is NotImplemented


def test_a_mistake_in_the_settings_is_no_reason_to_leave_a_step_to_the_layer():
    """It would be hidden, and decoding slow."""
    settings = replace(PLAIN)
    object.__setattr__(settings, "activation", "unknown")
    with pytest.raises(KeyError, match="unknown"):
        stepped(*given(), settings)


def test_a_cache_in_another_order_of_bytes_is_left_to_the_layer():
    stack, x, cache, memory = given()
    swapped = cache._replace(kv=cache.kv.astype(">f4"))
    assert stepped(stack, x, swapped, memory) is NotImplemented


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
    settings = replace(PLAIN, eps=1e-60)
    refuses(ValueError, "eps=1e-60 is 0.0 in float32", stepped, *given(), settings)


def test_a_step_keeps_the_weights_that_it_reads():
    stack, x, cache, memory = given()
    step = cpu.ops.hooks["stack_step"](stack, PLAIN, True, len(x), 99)
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
