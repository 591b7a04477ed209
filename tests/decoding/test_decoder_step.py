"""The step of a decoder layer that a backend computes at once is the layer, composed of operations."""

import numpy as np
import pytest
from results import assert_equal_within

from npformer import Transformer, cpu, greedy_decode, layers
from npformer.models.initialization import Initializer
from npformer.reference.settings import Rotary

B, T, S, D, F, H = 3, 4, 5, 12, 20, 3
ROTARY = layers.AttentionSettings(H, rotary=Rotary())
SETTINGS = [
    {"norm": norm, "activation": activation, "eps": eps}
    for norm, eps in (("pre", None), ("post", 0.1))
    for activation in ("relu", "gelu", "gelu_erf", "silu")
]


def given(dtype, settings, seed=0):
    """Parameters, x, and caches in which some words of the memory are hidden; what nobody may read is NaN."""
    rng, new = np.random.default_rng(seed), Initializer(seed, dtype)
    params = new.decoder_layer(D, F, settings)
    kv, memory_kv = rng.standard_normal((2, B * S, 2 * D)).astype(dtype)
    at, mask = rng.permutation(B * S)[: B * T].reshape(B, T), rng.random((B, 1, 1, S)) < 0.6
    mask[0] = False
    memory_at = rng.permutation(B * S).reshape(B, S)
    kv[~np.isin(np.arange(B * S), at)] = np.nan
    memory_kv[memory_at[~mask[:, 0, 0]]] = np.nan
    x = rng.standard_normal((B, D)).astype(dtype)
    return params, x, layers.KeyValueCache(kv, at), layers.KeyValueCache(memory_kv, memory_at, mask)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize("attention", [{}, {"scale": 0.3, "causal": True}], ids=str)
def test_the_kernel_of_a_step_computes_the_layer(dtype, options, attention):
    settings = layers.LayerSettings(layers.AttentionSettings(H, **attention), **options)
    params, x, cache, memory = given(dtype, settings)
    written = layers.KeyValueCache(cache.kv.copy(), cache.at)
    y = cpu.ops.hooks["decoder_layer_step"](params, x, written, memory, settings)
    expected, _ = layers.decoder_layer(cpu.ops, params, x, memory, settings, cache=cache)
    assert_equal_within(32, dtype, [y, written.kv], [expected, cache.kv])


@pytest.mark.parametrize(
    "options", [{"activation": "swiglu"}, {"norm_type": "rms_norm"}, {"attention": ROTARY}], ids=lambda x: next(iter(x))
)
def test_a_setting_that_the_kernel_does_not_know_is_left_to_the_layer(options):
    settings = layers.LayerSettings(**{"attention": layers.AttentionSettings(H), **options})
    assert cpu.ops.hooks["decoder_layer_step"](*given("float32", settings), settings) is NotImplemented


def test_parameters_that_the_kernel_does_not_take_are_left_to_the_layer():
    settings = layers.LayerSettings(layers.AttentionSettings(H))
    params, *others = given("float32", settings)
    without_bias = {**params, "feed_forward": {**params["feed_forward"], "out": {"weight": np.ones((F, D), "float32")}}}
    wide = {**params, "attention_norm": {name: x.astype("float64") for name, x in params["attention_norm"].items()}}
    for changed in (without_bias, wide):
        assert cpu.ops.hooks["decoder_layer_step"](changed, *others, settings) is NotImplemented


def test_a_cache_in_another_order_of_bytes_is_left_to_the_layer():
    settings = layers.LayerSettings(layers.AttentionSettings(H))
    params, x, cache, memory = given("float32", settings)
    swapped = cache._replace(kv=cache.kv.astype(">f4"))
    assert cpu.ops.hooks["decoder_layer_step"](params, x, swapped, memory, settings) is NotImplemented


def test_an_embedding_in_another_order_of_bytes_decodes_the_same():
    model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8, tie_embeddings=False)
    src, ids = np.array([[3, 4, 5]]), {"bos_id": 1, "eos_id": 2, "max_len": 6}
    for seed in range(8):
        params = model.init(seed)
        swapped = params | {"target_embedding": params["target_embedding"].astype(">f4")}
        expected = greedy_decode(model, params, src, **ids)
        np.testing.assert_array_equal(greedy_decode(model, swapped, src, **ids), expected)


def test_an_eps_that_the_dtype_cannot_hold_is_refused():
    settings = layers.LayerSettings(layers.AttentionSettings(H), eps=1e-60)
    with pytest.raises(ValueError, match="eps=1e-60 is 0.0 in float32"):
        cpu.ops.hooks["decoder_layer_step"](*given("float32", settings), settings)
