"""Layers with parameters, masks and caches that do not fit, or in another order."""

import collections
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refuses

from npformer import cpu, layers, reference
from npformer.models.initialization import Initializer, LayerShapes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4))
PARAMS = Initializer(0, "float64").decoder_layer(LayerShapes(4, 8))
HEADS = layers.AttentionSettings(2)
SETTINGS = layers.LayerSettings(HEADS)
BACKENDS = pytest.mark.parametrize("ops", [reference, cpu], ids=["reference", "cpu"])


@BACKENDS
def test_the_order_of_the_parameters_of_a_norm_does_not_matter(ops):
    gain, bias, dy = RNG.normal(size=4), RNG.normal(size=4), RNG.normal(size=X.shape)
    grads = [
        layers.layer_norm(ops, params, X)[1](dy)[1]
        for params in ({"gain": gain, "bias": bias}, {"bias": bias, "gain": gain})
    ]
    assert_array_equal(grads[0]["gain"], grads[1]["gain"])
    np.testing.assert_allclose(grads[1]["bias"], dy.sum(axis=(0, 1)))


@BACKENDS
def test_a_norm_has_a_gain_and_a_bias_and_a_root_mean_square_norm_only_a_gain(ops):
    gain, both = {"gain": np.ones(4)}, {"gain": np.ones(4), "bias": np.zeros(4)}
    rms = layers.LayerSettings(HEADS, norm_type="rms_norm")
    for call, message in (
        (
            lambda: layers.layer_norm(ops, gain, X),
            r"params .* has \['gain'\], expected \['gain', 'bias'\]",
        ),
        (
            lambda: layers.rms_norm(ops, both, X),
            r"params .* has \['gain', 'bias'\], expected \['gain'\]",
        ),
        (
            lambda: layers.encoder_layer(ops, PARAMS, X, rms),
            r"has \['gain', 'bias'\], expected \['gain'\]",
        ),
    ):
        refuses(ValueError, message, call)


def maps(**widths):
    return {name: {"weight": np.ones((4, n)), "bias": np.zeros(n)} for name, n in widths.items()}


@BACKENDS
@pytest.mark.parametrize(
    "params, message",
    [
        (maps(q=2, k=6, v=4),
         r"params of 'k' have the shapes {'weight': \(4, 6\), .*}, "
         "expected {'weight.*, as of 'q'"),
        (maps(q=8, k=2, v=2),
         r"params of 'k' .*, expected {'weight': \(4, 8\), 'bias': \(8,\)}, as of 'q'"),
        (maps(q=4, k=4) | {"v": {"weight": np.ones((4, 4))}},
         "params of 'v' have .*, expected {'weight.*, as of 'q'"),
        ({"q": {"weight": np.ones((4, 4))}} | maps(k=4, v=4),
         "params of 'k' have .*, expected {'weight.*, as of 'q'"),
    ],
)  # fmt: skip
def test_separate_projections_have_shapes_that_fit(ops, params, message):
    refuses(ValueError, message, layers.self_attention, ops, {**params, **maps(out=4)}, X, HEADS)


@BACKENDS
def test_biases_may_be_left_out_of_any_linear_map(ops):
    def without(tree):
        return (
            {k: without(v) for k, v in tree.items() if k != "bias"}
            if isinstance(tree, dict)
            else tree
        )

    norms = {name for name in PARAMS if name.endswith("norm")}
    params = {name: PARAMS[name] if name in norms else without(PARAMS[name]) for name in PARAMS}
    y, backward = layers.decoder_layer(ops, params, X, X, SETTINGS)
    # the biases of PARAMS are 0
    expected, expected_backward = layers.decoder_layer(ops, PARAMS, X, X, SETTINGS)
    np.testing.assert_allclose(y, expected)
    dx, _, grads = backward(np.ones_like(y))
    np.testing.assert_allclose(dx, expected_backward(np.ones_like(y))[0])
    assert list(grads["feed_forward"]["out"]) == list(grads["feed_forward"]["hidden"]) == ["weight"]


@BACKENDS
def test_a_mask_beside_a_cache_is_refused(ops):
    cache = layers.KeyValueCache(np.zeros((2, 8)), np.arange(2)[:, None])
    mask = np.zeros((2, 1, 1, 3), bool)
    with pytest.raises(ValueError, match="keep_mask is given beside a cache, expected None"):
        layers.encoder_layer(ops, PARAMS, X[:, 0], SETTINGS, mask, cache=cache)
    with pytest.raises(ValueError, match="keep_mask is given beside a cache, expected None"):
        layers.decoder_layer(
            ops, PARAMS, X[:, 0], cache, SETTINGS, memory_keep_mask=mask, cache=cache
        )


@BACKENDS
def test_entries_that_a_cache_does_not_have_and_a_mask_that_is_a_list_are_named(ops):
    cache, at = layers.KeyValueCache(np.zeros((6, 8)), None), np.arange(6).reshape(2, 3)
    for options, change, error, message in (
        ({}, {"at": at + 1}, ValueError, r"at\[1, 2\] is 6, expected 0 <= id < 6"),
        ({}, {"at": at[:, ::-1] - 1}, ValueError, r"at\[0, 2\] is -1, expected 0 <= id < 6"),
        ({}, {"at": at + 0.0}, TypeError, "at has dtype float64, expected integers"),
        (
            {},
            {"at": at, "keep_mask": [[[[True] * 3]]] * 2},
            TypeError,
            "keep_mask is a list, expected an array",
        ),
        (
            {"window": 2},
            {"at": at, "keep_mask": np.array(True)},
            ValueError,
            r"keep_mask has shape \(\), expected",
        ),
        (
            {"window": 2},
            {"at": at, "keep_mask": [[[[True] * 3]]] * 2},
            TypeError,
            "keep_mask is a list, expected an",
        ),
    ):
        settings = layers.LayerSettings(layers.AttentionSettings(2, **options))
        with pytest.raises(error, match=message):
            layers.encoder_layer(ops, PARAMS, X[:, 0], settings, cache=cache._replace(**change))


@BACKENDS
def test_a_rotation_of_keys_beside_a_cache_that_was_filled_without_one_is_refused(ops):
    cache = layers.KeyValueCache(np.zeros((2, 8)), np.arange(2)[:, None])
    turned = layers.LayerSettings(layers.AttentionSettings(2, rotary=layers.Rotary()))
    for settings, given in ((turned, cache), (SETTINGS, cache._replace(rotary=layers.Rotary()))):
        with pytest.raises(
            ValueError, match=r"rotary=.*, the keys of the cache rotary=.*: expected the same"
        ):
            layers.encoder_layer(ops, PARAMS, X[:, 0], settings, cache=given)


@BACKENDS
@pytest.mark.parametrize(
    "options", [{"window": 1}, {"rotary": layers.Rotary()}], ids=lambda x: next(iter(x))
)
def test_attention_refuses_settings_that_it_does_not_apply(ops, options):
    settings, at = layers.AttentionSettings(2, **options), np.arange(3)[None]
    qkv, kv = RNG.normal(size=(1, 3, 12)), RNG.normal(size=(1, 3, 8))
    out, *saved = ops.self_attention(qkv, HEADS)
    for call in (
        lambda: ops.self_attention(qkv, settings),
        lambda: ops.self_attention_backward(out, qkv, out, *saved, settings),
        lambda: ops.cross_attention(out, kv, settings),
        lambda: ops.cross_attention_backward(out, out, kv, out, *saved, settings),
        lambda: ops.cached_attention(out[:, 0], kv[0], at, settings),
        lambda: layers.cross_attention(ops, PARAMS["memory_attention"], X, X, settings),
    ):
        refuses(ValueError, "settings with .*: expected without, as layers.self_attention", call)


@BACKENDS
def test_settings_of_another_type_are_named(ops):
    params, mask = PARAMS["memory_attention"], np.ones((2, 1, 1, 3), bool)
    for call, expected in (
        (
            lambda: layers.encoder_layer(ops, PARAMS, X, mask),
            r"settings is a ndarray, expected LayerSettings\(…\)",
        ),
        (
            lambda: layers.decoder_layer(ops, PARAMS, X, X, HEADS),
            "is a AttentionSettings, expected LayerSettings",
        ),
        (
            lambda: layers.self_attention(ops, PARAMS["attention"], X, 2),
            "settings is a int, expected AttentionSettings",
        ),
        (
            lambda: layers.cross_attention(ops, params, X, X, SETTINGS),
            "a LayerSettings, expected AttentionSettings",
        ),
    ):
        refuses(TypeError, expected, call)


@BACKENDS
def test_an_input_of_other_axes_and_heads_of_odd_width_are_named(ops):
    cache = layers.KeyValueCache(np.zeros((2, 8)), np.arange(2)[:, None])
    for options in ({}, {"window": 2}, {"rotary": layers.Rotary()}):
        settings = layers.LayerSettings(layers.AttentionSettings(2, **options))
        message = r"x has shape \(2, 4\), expected \(B, T, D\)"
        refuses(ValueError, message, layers.encoder_layer, ops, PARAMS, X[:, 0], settings)
        with pytest.raises(
            ValueError, match=r"x has shape \(2, 3, 4\), expected \(R, D\) with a cache"
        ):
            layers.encoder_layer(
                ops, PARAMS, X, settings, cache=cache._replace(rotary=settings.attention.rotary)
            )
    odd = layers.AttentionSettings(4, rotary=layers.Rotary())
    message = r"x has shape \(2, 3, 12\), expected \(..., T, \(H\+G\)\*2\*M\) .* by 24"
    refuses(ValueError, message, layers.self_attention, ops, PARAMS["attention"], X, odd)


@BACKENDS
def test_numbers_of_more_digits_than_python_prints(ops):
    """Python refuses to print them: 10**5000 has 16610 bits."""
    huge = layers.AttentionSettings(10**5000)
    message = "qkv .* with H = an int of 16610 bits .*divisible by an int of 16612 bits"
    refuses(ValueError, message, layers.self_attention, ops, PARAMS["attention"], X, huge)
    with pytest.raises(
        ValueError, match="settings with window=an int of 16610 bits: expected without"
    ):
        layers.cross_attention(
            ops, PARAMS["memory_attention"], X, X, layers.AttentionSettings(2, window=10**5000)
        )


@BACKENDS
def test_parameters_that_are_missing_are_named(ops):
    without = lambda params, name: {key: x for key, x in params.items() if key != name}
    maps_of_three = maps(q=4, k=4, v=4)
    for call, missing in [
        (lambda: layers.linear(ops, {}, X), "weight"),
        (lambda: layers.linear(ops, {"bias": np.ones(4)}, X), "weight"),
        (lambda: layers.self_attention(ops, maps_of_three, X, HEADS), "out"),
        (
            lambda: layers.self_attention(ops, maps_of_three | {"q": {}} | maps(out=4), X, HEADS),
            "weight",
        ),
        (lambda: layers.self_attention(ops, {"qkv": {}} | maps(out=4), X, HEADS), "weight"),
        (lambda: layers.feed_forward(ops, maps(out=4), X), "hidden"),
        (lambda: layers.feed_forward(ops, maps(hidden=4), X), "out"),
        *[
            (
                lambda name=name: layers.decoder_layer(ops, without(PARAMS, name), X, X, SETTINGS),
                name,
            )
            for name in PARAMS
        ],
    ]:
        refuses(ValueError, rf"^params has \[.*\], expected '{missing}', too$", call)
    for layer in (layers.linear, layers.layer_norm, layers.rms_norm, layers.feed_forward):
        message = "params=None is a NoneType, expected a dict of parameters"
        refuses(TypeError, message, layer, ops, None, X)
    message = "params='x' is a str, expected a dict of parameters"
    refuses(TypeError, message, layers.self_attention, ops, "x", X, HEADS)


@BACKENDS
@pytest.mark.parametrize(
    "mask", [np.ones((2, 3)), np.ones((3,), bool), np.ones((5, 3), bool), None, "x"], ids=str
)
def test_the_mask_of_a_convolution_is_checked(ops, mask):
    params = Initializer(0, "float64").conv1d(3, 4, 4)
    with pytest.raises((TypeError, ValueError), match="keep_mask"):
        layers.masked_conv1d(ops, params, X, mask, dilation=1, causal=True)


def test_the_kind_of_a_recurrent_layer_is_checked():
    params = Initializer(0, "float64").recurrence(4, 4, "lstm")
    message = "cell='rnn', expected 'gru' or 'lstm'"
    refuses(ValueError, message, layers.read_steps, reference, params, X, "rnn")


def test_a_dict_that_makes_what_it_lacks_is_not_filled():
    params = collections.defaultdict(dict)
    with pytest.raises(ValueError, match=r"params has \[\], expected 'attention', too"):
        layers.encoder_layer(
            reference.ops, params, X, layers.LayerSettings(layers.AttentionSettings(2))
        )
    assert params == {}


def test_layers_take_the_integers_of_numpy_as_keys_and_can_be_pickled():
    settings = layers.LayerSettings(layers.AttentionSettings(2), dropout_rate=0.5)
    params = Initializer(0, "float64").encoder_layer(LayerShapes(4, 8))
    x = np.random.default_rng(0).normal(size=(1, 3, 4))
    y, expected = (
        layers.encoder_layer(reference.ops, params, x, settings, dropout_key=key)[0]
        for key in (np.uint8(7), 7)
    )
    assert_array_equal(y, expected)
    assert pickle.loads(pickle.dumps(layers.encoder_layer)) is layers.encoder_layer
