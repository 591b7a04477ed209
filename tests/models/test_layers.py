"""The backward of attention with masks and biases is its derivative, and each layer does what its
parts do; ``test_every_model.py`` checks the gradients of all layers in models.
"""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_close
from refusals import refuses
from results import normal
from tables import each_of
from whole_models import shaken

from npformer import gradcheck, layers, reference, tree
from npformer.layers.decoding import newest_heads
from npformer.layers.multi_head import self_attention_heads
from npformer.layers.normalisation import normalise
from npformer.models.initialization import Initializer, LayerShapes

B, T, S, H, K, F = 4, 5, 7, 2, 3, 8
D = H * K
KEY = 99


def keep(*shape):
    mask = np.random.default_rng(3).random(shape) < 0.7
    mask[..., 0] = True
    if shape[-2] > 1:
        mask[..., 1, :] = False  # one query sees nothing
    return mask


def check_layer(layer, inputs, params):
    """``layer(params, *inputs)`` returns y and a backward that returns the gradients of inputs,
    then of params.
    """
    flat, _ = tree.flatten(params)

    def f(flat, *inputs):
        y, _ = layer(tree.view_as(flat, params), *inputs)
        return y

    def f_backward(dy, flat, *inputs):
        _, backward = layer(tree.view_as(flat, params), *inputs)
        *dinputs, grads = backward(dy)
        assert [path for path, _ in tree.leaves(grads)] == [path for path, _ in tree.leaves(params)]
        dflat, _ = tree.flatten(grads)
        return [dflat, *dinputs]

    gradcheck(f, f_backward, [flat, *inputs], central_tolerance=None)


def settings(**options):
    """Of a layer, with dropout everywhere."""
    attention = layers.AttentionSettings(H, dropout_rate=0.3)
    return layers.LayerSettings(attention, dropout_rate=0.3, hidden_dropout_rate=0.3, **options)


NEW = Initializer(0, "float64")
SHAPES = LayerShapes(D, F)
HEADS = layers.AttentionSettings(H)
X, MEMORY = normal(B, T, D), normal(B, S, D)
LAYERS = {}


def add(name, layer, params, *inputs, **options):
    """Let the gradient of ``layer(ops, params, *inputs, **options)`` be checked."""

    def call(params, *inputs):
        return layer(reference, params, *inputs, **options)

    LAYERS[name] = call, inputs, shaken(params)


def with_bias(layer):
    """The layer, whose last input is a bias of the scores."""

    def call(ops, params, *inputs, **options):
        *inputs, bias = inputs
        return layer(ops, params, *inputs, bias=bias, **options)

    return call


OF_SELF = NEW.self_attention(SHAPES)
OF_MEMORY = NEW.memory_attention(SHAPES)
for rate in (0.0, 0.3):
    for causal in (False, True):
        heads = layers.AttentionSettings(H, causal=causal, dropout_rate=rate)
        options = {"settings": heads, "keep_mask": keep(B, H, T, T), "dropout_key": KEY}
        add(f"self-attention, {rate}, {causal}", layers.self_attention, OF_SELF, X, **options)
    heads = layers.AttentionSettings(H, dropout_rate=rate)
    options = {"settings": heads, "keep_mask": keep(B, H, T, S), "dropout_key": KEY}
    add(f"cross-attention, {rate}", layers.cross_attention, OF_MEMORY, X, MEMORY, **options)
# The gradient of a bias is that of the array as it was given, before it was broadcast.
for shape in ((B, H, T), (1, H, 1), (T,)):
    heads = layers.AttentionSettings(H, causal=True)
    bias = normal(*shape, T, seed=6)
    biased = with_bias(layers.self_attention)
    add(f"self-attention, bias {shape}", biased, OF_SELF, X, bias, settings=heads)
    heads = layers.AttentionSettings(H, dropout_rate=0.3)
    bias = normal(*shape, S, seed=6)
    options = {"settings": heads, "dropout_key": KEY}
    biased = with_bias(layers.cross_attention)
    add(f"cross-attention, bias {shape}", biased, OF_MEMORY, X, MEMORY, bias, **options)


@each_of(("layer", "inputs", "params"), LAYERS)
def test_the_backward_of_a_layer_is_its_derivative(layer, inputs, params):
    check_layer(layer, inputs, params)


def test_attention_knows_scale_and_dropout_in_its_backward():
    options = {"causal": True, "scale": 0.3, "dropout_rate": 0.3, "dropout_key": KEY}

    def attention(q, k, v, bias):
        return layers.attention(reference, q, k, v, keep(B, T, S), bias=bias, **options)

    def f(*arrays):
        out, _ = attention(*arrays)
        return out

    def f_backward(dout, *arrays):
        _, backward = attention(*arrays)
        return backward(dout)[:4]

    q = normal(B, T, K)
    k = normal(B, S, K, seed=4)
    v = normal(B, S, 2, seed=5)
    bias = normal(T, S, seed=6)
    gradcheck(f, f_backward, [q, k, v, bias], names="qkvb")


@pytest.mark.parametrize("norm_type", ["layer_norm", "rms_norm"])
def test_the_normalisation_of_a_layer_has_the_type_and_the_eps_of_its_settings(norm_type):
    x = normal(B, T, D)
    params = NEW.norm(D, norm_type)
    norm = getattr(layers, norm_type)
    settings = layers.LayerSettings(HEADS, norm_type=norm_type, eps=0.5)
    y, _ = normalise(reference, params, x, settings)
    expected, _ = norm(reference, params, x, 0.5)
    other, _ = norm(reference, params, x)
    assert_array_equal(y, expected)
    assert not np.allclose(y, other)


@pytest.mark.parametrize("window", [None, 3])
def test_a_cache_takes_the_bias_of_the_newest_position(every_backend, window):
    settings = layers.AttentionSettings(H, causal=True, window=window)
    params = shaken(NEW.self_attention(SHAPES))
    x = normal(B, T, D)
    bias = normal(B, H, T, T, seed=6)
    whole, _ = self_attention_heads(reference.ops, params, x, settings, bias=bias)
    kv = np.empty((B * T, 2 * D))
    at = np.arange(B * T).reshape(B, T)
    for t in range(T):
        cache = layers.KeyValueCache(kv, at[:, : t + 1])
        newest = bias[:, :, t : t + 1, : t + 1]
        y = newest_heads(every_backend, params, x[:, t], settings, cache, bias=newest)
        assert_close(y, whole[:, t], 1e-14)


def test_a_cache_that_does_not_fit_is_named():
    params = NEW.encoder_layer(SHAPES)
    kv = np.zeros((6, 2 * D))
    message = "of the newest positions for a cache with kv"
    for n_rows, width in ((2, 0), (3, 1)):
        arguments = reference, params, normal(n_rows, D), layers.LayerSettings(HEADS)
        cache = layers.KeyValueCache(kv, np.zeros((2, width), int))
        refuses(ValueError, message, layers.encoder_layer, *arguments, cache=cache)


def test_projections_that_are_missing_are_named():
    params = {name: NEW.linear(D, D) for name in ("q", "k", "out")}
    message = r"params has \['q', 'k', 'out'\], expected 'qkv', or each of \['q', 'k', 'v'\]"
    refuses(ValueError, message, layers.self_attention, reference, params, X, HEADS)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_residual_passes_by_its_sublayer(norm):
    """A sublayer with a last map of 0 changes nothing.

    The gradient passes through the residual connection.
    """
    params = {"out": {"weight": np.zeros((F, D)), "bias": np.zeros(D)}}
    norm_params = NEW.norm(D)
    x, dy = normal(2, B, T, D)
    z = np.ones((B, T, F))
    options = {"settings": settings(norm=norm), "dropout_key": KEY}
    y, backward = layers.add_and_norm(reference, params, norm_params, z, x, **options)
    dz, dx, grads, norm_grads = backward(dy)
    assert not dz.any()
    assert list(grads) == ["out"]
    if norm == "pre":
        assert_array_equal(y, x)
        assert_array_equal(dx, dy)
        assert norm_grads == {}
    else:
        expected, _ = layers.layer_norm(reference, norm_params, x)
        assert_array_equal(y, expected)
        assert list(norm_grads) == ["gain", "bias"]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_sublayer_is_normalised_once(norm):
    x, dh = normal(2, B, T, D)
    h, backward = layers.norm_before(reference, NEW.norm(D), x, settings(norm=norm))
    dx, norm_grads = backward(dh)
    is_after = norm == "post"
    assert (h is x) == is_after
    assert (dx is dh) == is_after
    assert (not norm_grads) == is_after


def test_one_key_drops_different_places_in_different_layers():
    """Sub-keys are derived: were a key used twice, two dropouts of one shape would agree."""
    drawn = []
    layers.encoder_layer(
        noting_keys(drawn), shaken(NEW.encoder_layer(SHAPES)), X, settings(), dropout_key=KEY
    )
    assert len(drawn) == 4  # attention weights, attention output, hidden layer, feed-forward output
    assert len(set(drawn)) == 4


def test_the_keywords_of_attention_are_of_one_record_and_stay_as_they_are():
    settings = layers.AttentionSettings(H, causal=True, softcap=0.7)
    keywords = settings.keywords_of_scores
    for copied in (copy.deepcopy(settings), pickle.loads(pickle.dumps(settings))):
        assert copied == settings
        assert copied.keywords_of_scores == keywords
    with pytest.raises(TypeError, match="does not support item assignment"):
        keywords["causal"] = False  # type: ignore[index]


def noting_keys(drawn):
    """The reference, which appends the dropout keys that it is called with to a list."""

    def noting(operation):
        place = list(operation.record.parameters).index("dropout_key")

        def call(*args, **keywords):
            drawn.append(keywords.get("dropout_key") or args[place])
            return operation(*args, **keywords)

        return call

    replaced = {}
    for name in ("self_attention", "linear_activation_dropout", "linear_dropout_residual"):
        replaced[name] = noting(getattr(reference.ops, name))
    return reference.ops.replaced(**replaced)
