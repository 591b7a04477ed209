"""Layers with parameters, masks and caches that do not fit, or in another order."""

import collections
import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refuses

from npformer import layers, reference, tree
from npformer.models.initialization import Initializer, LayerShapes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4))
PARAMS = Initializer(0, "float64").decoder_layer(LayerShapes(4, 8))
ENCODER_PARAMS = {k: v for k, v in PARAMS.items() if not k.startswith("memory")}
HEADS = layers.AttentionSettings(2)
SETTINGS = layers.LayerSettings(HEADS)
CACHE = layers.KeyValueCache(np.zeros((2, 8)), np.arange(2)[:, None])


@pytest.fixture
def ops(every_backend):
    return every_backend


def test_a_norm_has_a_gain_and_a_bias_and_a_root_mean_square_norm_only_a_gain(ops):
    gain = {"gain": np.ones(4)}
    both = gain | {"bias": np.zeros(4)}
    message = r"params has \['gain'\], expected 'bias', too"
    refuses(ValueError, message, layers.layer_norm, ops, gain, X)
    message = r"params has 'bias', expected only names of \['gain'\]"
    refuses(ValueError, message, layers.rms_norm, ops, both, X)
    rms = layers.LayerSettings(HEADS, norm_type="rms_norm")
    refuses(ValueError, message, layers.encoder_layer, ops, ENCODER_PARAMS, X, rms)


def maps(**widths):
    params = {}
    for name, n in widths.items():
        params[name] = {"weight": np.ones((4, n)), "bias": np.zeros(n)}
    return params


def test_separate_projections_have_shapes_that_fit(ops):
    def refused(message, params):
        params = {**params, **maps(out=4)}
        refuses(ValueError, message, layers.self_attention, ops, params, X, HEADS)

    other = r"have the shapes {'weight': \(4, 6\), .*}, expected {'weight.*, as of 'q'"
    refused(f"params of 'k' {other}", maps(q=2, k=6, v=4))
    other = r".*, expected {'weight': \(4, 8\), 'bias': \(8,\)}, as of 'q'"
    refused(f"params of 'k' {other}", maps(q=8, k=2, v=2))
    other = "have .*, expected {'weight.*, as of 'q'"
    without_bias = {"weight": np.ones((4, 4))}
    refused(f"params of 'v' {other}", maps(q=4, k=4) | {"v": without_bias})
    refused(f"params of 'k' {other}", {"q": without_bias} | maps(k=4, v=4))


def test_a_mask_beside_a_cache_is_refused(ops):
    mask = np.zeros((2, 1, 1, 3), bool)
    refused = partial(refuses, ValueError, "keep_mask is given beside a cache, expected None")
    x = X[:, 0]
    refused(layers.encoder_layer, ops, ENCODER_PARAMS, x, SETTINGS, mask, cache=CACHE)
    options = {"memory_keep_mask": mask, "cache": CACHE}
    refused(layers.decoder_layer, ops, PARAMS, x, CACHE, SETTINGS, **options)


@pytest.mark.parametrize(
    ("settings", "key", "message"),
    [
        (SETTINGS, 7, "dropout_key is given beside a cache, expected None"),
        (
            layers.LayerSettings(layers.AttentionSettings(2, dropout_rate=0.9)),
            None,
            r"settings.attention.dropout_rate=0.9 beside a cache, expected 0",
        ),
        (
            layers.LayerSettings(HEADS, dropout_rate=0.5),
            7,
            "settings.dropout_rate=0.5 beside a cache, expected 0",
        ),
        (
            layers.LayerSettings(HEADS, hidden_dropout_rate=0.5),
            7,
            "settings.hidden_dropout_rate=0.5 beside a cache, expected 0",
        ),
    ],
)
def test_dropout_beside_a_cache_is_refused(settings, key, message):
    options = {"dropout_key": key, "cache": CACHE}
    refused = partial(refuses, ValueError, message)
    refused(layers.encoder_layer, reference, ENCODER_PARAMS, X[:, 0], settings, **options)
    refused(layers.decoder_layer, reference, PARAMS, X[:, 0], CACHE, settings, **options)


def test_the_cache_of_a_memory_needs_that_of_the_layer():
    message = r"memory is a KeyValueCache, expected an array \(B, S, D\): give the layer's cache"
    refuses(TypeError, message, layers.decoder_layer, reference, PARAMS, X, CACHE, SETTINGS)


def test_entries_that_a_cache_does_not_have_and_a_mask_that_is_a_list_are_named(ops):
    at = np.arange(6).reshape(2, 3)

    def refused(message, at=at, keep_mask=None, window=None, error=ValueError):
        settings = layers.LayerSettings(layers.AttentionSettings(2, window=window))
        cache = layers.KeyValueCache(np.zeros((6, 8)), at, keep_mask)
        with pytest.raises(error, match=message):
            layers.encoder_layer(ops, ENCODER_PARAMS, X[:, 0], settings, cache=cache)

    refused(r"at\[1, 2\] is 6, expected 0 <= id < 6", at + 1)
    refused(r"at\[0, 2\] is -1, expected 0 <= id < 6", at[:, ::-1] - 1)
    refused("at has dtype float64, expected integers", at + 0.0, error=TypeError)
    mask = [[[[True] * 3]]] * 2
    refused("keep_mask is a list, expected an array", keep_mask=mask, error=TypeError)
    refused("keep_mask is a list, expected an", keep_mask=mask, window=2, error=TypeError)
    refused(r"keep_mask has shape \(\), expected", keep_mask=np.array(True), window=2)


def test_a_rotation_of_keys_beside_a_cache_that_was_filled_without_one_is_refused(ops):
    rotary = layers.Rotary()
    turned = layers.LayerSettings(layers.AttentionSettings(2, rotary=rotary))
    message = r"rotary=.*, the keys of the cache rotary=.*: expected the same"
    refused = partial(
        refuses, ValueError, message, layers.encoder_layer, ops, ENCODER_PARAMS, X[:, 0]
    )
    refused(turned, cache=CACHE)
    refused(SETTINGS, cache=CACHE._replace(rotary=rotary))


@pytest.mark.parametrize("options", [{"window": 1}, {"rotary": layers.Rotary()}], ids=str)
def test_attention_refuses_settings_that_it_does_not_apply(ops, options):
    settings = layers.AttentionSettings(2, **options)
    at = np.arange(3)[None]
    qkv = RNG.normal(size=(1, 3, 12))
    kv = RNG.normal(size=(1, 3, 8))
    out, *saved = ops.self_attention(qkv, HEADS)
    message = "settings with .*: expected without, as layers.self_attention"
    refused = partial(refuses, ValueError, message)
    refused(ops.self_attention, qkv, settings)
    refused(ops.self_attention_backward, out, qkv, out, *saved, settings)
    refused(ops.cross_attention, out, kv, settings)
    refused(ops.cross_attention_backward, out, out, kv, out, *saved, settings)
    refused(ops.cached_attention, out[:, 0], kv[0], at, settings)
    refused(layers.cross_attention, ops, PARAMS["memory_attention"], X, X, settings)


def test_settings_of_another_type_are_named(ops):
    refused = partial(refuses, TypeError)
    mask = np.ones((2, 1, 1, 3), bool)
    message = r"settings is a ndarray, expected LayerSettings\(…\)"
    refused(message, layers.encoder_layer, ops, ENCODER_PARAMS, X, mask)
    message = "is a AttentionSettings, expected LayerSettings"
    refused(message, layers.decoder_layer, ops, PARAMS, X, X, HEADS)
    message = "settings is a int, expected AttentionSettings"
    refused(message, layers.self_attention, ops, PARAMS["attention"], X, 2)
    message = "a LayerSettings, expected AttentionSettings"
    refused(message, layers.cross_attention, ops, PARAMS["memory_attention"], X, X, SETTINGS)


@pytest.mark.parametrize("options", [{}, {"window": 2}, {"rotary": layers.Rotary()}], ids=str)
def test_an_input_of_other_axes_is_named(ops, options):
    settings = layers.LayerSettings(layers.AttentionSettings(2, **options))
    message = r"x has shape \(2, 4\), expected \(B, T, D\)"
    refuses(ValueError, message, layers.encoder_layer, ops, ENCODER_PARAMS, X[:, 0], settings)
    message = r"x has shape \(2, 3, 4\), expected \(R, D\) with a cache"
    cache = CACHE._replace(rotary=settings.attention.rotary)
    refuses(
        ValueError, message, layers.encoder_layer, ops, ENCODER_PARAMS, X, settings, cache=cache
    )


def test_heads_of_odd_width_are_named(ops):
    odd = layers.AttentionSettings(4, rotary=layers.Rotary())
    message = r"x has shape \(2, 3, 12\), expected \(..., T, \(H\+G\)\*2\*M\) .* by 24"
    refuses(ValueError, message, layers.self_attention, ops, PARAMS["attention"], X, odd)


def test_numbers_of_more_digits_than_python_prints(ops):
    """Python refuses to print them: 10**5000 has 16610 bits."""
    huge = layers.AttentionSettings(10**5000)
    message = "qkv .* with H = an int of 16610 bits .*divisible by an int of 16612 bits"
    refuses(ValueError, message, layers.self_attention, ops, PARAMS["attention"], X, huge)
    wide = layers.AttentionSettings(2, window=10**5000)
    message = "settings with window=an int of 16610 bits: expected without"
    params = PARAMS["memory_attention"]
    refuses(ValueError, message, layers.cross_attention, ops, params, X, X, wide)


def test_parameters_that_are_missing_are_named(ops):
    def missing(name, layer, params, *others):
        message = rf"^params has \[.*\], expected '{name}', too$"
        refuses(ValueError, message, layer, ops, params, X, *others)

    three = maps(q=4, k=4, v=4)
    missing("weight", layers.linear, {})
    missing("weight", layers.linear, {"bias": np.ones(4)})
    missing("out", layers.self_attention, three, HEADS)
    missing("weight", layers.self_attention, three | {"q": {}} | maps(out=4), HEADS)
    missing("weight", layers.self_attention, {"qkv": {}} | maps(out=4), HEADS)
    missing("hidden", layers.feed_forward, maps(out=4))
    missing("out", layers.feed_forward, maps(hidden=4))
    for name in PARAMS:
        params = {key: x for key, x in PARAMS.items() if key != name}
        missing(name, layers.decoder_layer, params, X, SETTINGS)
    for layer in (layers.linear, layers.layer_norm, layers.rms_norm, layers.feed_forward):
        message = "params=None is a NoneType, expected a dict of parameters"
        refuses(TypeError, message, layer, ops, None, X)
    message = "params='x' is a str, expected a dict of parameters"
    refuses(TypeError, message, layers.self_attention, ops, "x", X, HEADS)


NEW = Initializer(0, "float64")
BLOCK = NEW.residual_conv_block(4, 3)
MASK = np.ones((2, 3), bool)
LSTM = NEW.recurrence(4, 4, "lstm")
SEPARATE = maps(q=4, k=4, v=4, out=4)
# By the name of a layer, its parameters and the arguments after them.
CALLS = {
    "linear": (maps(of=4)["of"], X),
    "layer_norm": (NEW.norm(4), X),
    "rms_norm": ({"gain": np.ones(4)}, X),
    "norm_before": (NEW.norm(4), X, SETTINGS),
    "feed_forward": (PARAMS["feed_forward"], X),
    "self_attention": (PARAMS["attention"], X, HEADS),
    "self_attention of separate maps": (SEPARATE, X, HEADS),
    "cross_attention": (PARAMS["memory_attention"], X, X, HEADS),
    "cross_attention of separate maps": (SEPARATE, X, X, HEADS),
    "encoder_layer": (ENCODER_PARAMS, X, SETTINGS),
    "decoder_layer": (PARAMS, X, X, SETTINGS),
    "masked_conv1d": (NEW.conv1d(3, 4, 4), X, MASK),
    "read_steps": (LSTM, X, "lstm"),
    "read_both_ways": ({"forward": LSTM, "backward": LSTM}, X, "lstm"),
    # These read a part of a dict, all of what is below it.
    "project": (maps(q=4), X, ("q",)),
    "add_and_norm": ({"out": maps(of=4)["of"]}, {}, X, X, SETTINGS),
    "residual_conv_block": (BLOCK, X, lambda h: (h, None)),
}
OPTIONS = {"masked_conv1d": {"dilation": 1, "causal": True}}
READ_A_PART = ("project", "add_and_norm", "residual_conv_block")


def with_an_unknown_name(params):
    """Each of the nested dicts with one parameter more: what ``params`` becomes."""
    yield {**params, "bais": np.zeros(4)}
    for name, below in params.items():
        if isinstance(below, dict):
            for changed in with_an_unknown_name(below):
                yield {**params, name: changed}


@pytest.mark.parametrize("case", CALLS)
def test_parameters_that_nobody_reads_are_refused(case):
    params, *others = CALLS[case]
    name = case.split()[0]
    layer = partial(getattr(layers, name), reference.ops)
    options = OPTIONS.get(name, {})
    layer(params, *others, **options)  # as it is, it is right
    for changed in with_an_unknown_name(params):
        if name in READ_A_PART and "bais" in changed or "bais" in changed.get("conv", ()):
            layer(changed, *others, **options)
            continue
        message = r"^params has 'bais', expected only names of \['"
        refuses(ValueError, message, layer, changed, *others, **options)


def test_parameters_that_the_settings_do_not_ask_for_are_refused():
    normed = PARAMS["attention"] | {"q_norm": {"gain": np.ones(2)}, "k_norm": {"gain": np.ones(2)}}
    message = "params has 'q_norm', expected only names of"
    refuses(ValueError, message, layers.self_attention, reference.ops, normed, X, HEADS)
    with_bias = {**LSTM, "hidden": LSTM["hidden"] | {"bias": np.zeros(4)}}
    message = r"params has 'bias', expected only names of \['weight'\]"
    refuses(ValueError, message, layers.read_steps, reference.ops, with_bias, X, "lstm")


def test_a_layer_beside_a_cache_refuses_unknown_parameters_but_takes_those_of_its_memory():
    args = X[:, 0], CACHE, SETTINGS
    layers.decoder_layer(reference.ops, PARAMS, *args, cache=CACHE)
    unknown = {**PARAMS, "attention": {**PARAMS["attention"], "bais": np.zeros(4)}}
    message = "params has 'bais', expected only names of"
    refuses(ValueError, message, layers.decoder_layer, reference.ops, unknown, *args, cache=CACHE)


@pytest.mark.parametrize(
    "mask", [np.ones((2, 3)), np.ones((3,), bool), np.ones((5, 3), bool), None, "x"], ids=str
)
def test_the_mask_of_a_convolution_is_checked(ops, mask):
    convolve = partial(layers.masked_conv1d, dilation=1, causal=True)
    params = Initializer(0, "float64").conv1d(3, 4, 4)
    refuses((TypeError, ValueError), "keep_mask", convolve, ops, params, X, mask)


def test_the_kind_of_a_recurrent_layer_is_checked():
    params = Initializer(0, "float64").recurrence(4, 4, "lstm")
    message = "cell='rnn', expected 'gru' or 'lstm'"
    refuses(ValueError, message, layers.read_steps, reference, params, X, "rnn")


@pytest.mark.parametrize(
    ("cell", "expected", "n_arrays"), [("gru", r"\(h0,\)", 2), ("lstm", r"\(h0, c0\)", 1)]
)
def test_the_number_of_initial_states_is_checked(ops, cell, expected, n_arrays):
    params = Initializer(0, "float64").recurrence(4, 4, cell)
    message = f"first has {n_arrays} arrays, expected {expected}"
    first = [np.zeros((2, 4))] * n_arrays
    refuses(ValueError, message, layers.read_steps, ops, params, X, cell, first=first)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_sequence_without_steps_is_checked_as_one_with_steps_is(ops, cell):
    params = Initializer(0, "float64").recurrence(4, 4, cell)
    read = partial(layers.read_steps, ops, params, X[:, :0], cell)
    mask = np.ones((2, 7), bool)
    refuses(ValueError, r"keep_mask has shape \(2, 7\), expected", read, keep_mask=mask)
    first = [np.zeros((2, 77))] * (1 if cell == "gru" else 2)
    refuses(ValueError, r"h0 has shape \(2, 77\), expected", read, first=first)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("reverse", [False, True])
def test_without_steps_the_final_state_is_the_initial_one(ops, cell, reverse):
    params = Initializer(0, "float64").recurrence(4, 4, cell)
    first = [RNG.normal(size=(2, 4)) for _ in range(1 if cell == "gru" else 2)]
    x = X[:, :0].astype(np.float32)
    states, end, backward = layers.read_steps(ops, params, x, cell, first=first, reverse=reverse)
    assert states.shape == (2, 0, 4)
    assert states.dtype == np.float64  # that of the parameters, as with steps
    assert_array_equal(end, first)

    dend = [RNG.normal(size=(2, 4)) for _ in first]
    for given, expected in ((dend, dend), (None, np.zeros_like(dend))):
        dx, dfirst, grads = backward(states, given)
        assert dx.shape == x.shape
        assert_array_equal(dfirst, expected)
        tree.map_leaves(assert_array_equal, grads, tree.map_leaves(np.zeros_like, params))


def test_what_has_kept_nothing_has_no_backward_pass():
    stack = layers.Stack(train=False)
    stack.keep(abs)
    message = r"the stack has kept nothing .*, expected Stack\(train=True\)"
    refuses(ValueError, message, list, stack.backwards())
    y, backward = layers.encoder_layer(reference, ENCODER_PARAMS, X[:, 0], SETTINGS, cache=CACHE)
    message = "a layer with a cache has no backward pass: call it without one for gradients"
    refuses(TypeError, message, backward, y)


def test_a_dict_that_makes_what_it_lacks_is_not_filled():
    params = collections.defaultdict(dict)
    message = r"params has \[\], expected 'attention', too"
    refuses(ValueError, message, layers.encoder_layer, reference.ops, params, X, SETTINGS)
    assert params == {}


def test_layers_take_the_integers_of_numpy_as_keys_and_can_be_pickled():
    settings = layers.LayerSettings(layers.AttentionSettings(2), dropout_rate=0.5)
    params = Initializer(0, "float64").encoder_layer(LayerShapes(4, 8))
    y, _ = layers.encoder_layer(reference.ops, params, X, settings, dropout_key=np.uint8(7))
    expected, _ = layers.encoder_layer(reference.ops, params, X, settings, dropout_key=7)
    assert_array_equal(y, expected)
    assert pickle.loads(pickle.dumps(layers.encoder_layer)) is layers.encoder_layer
