"""Each layer's backward is its forward's derivative, and each does what its parts do."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_all_close, assert_close
from refusals import refuses

from npformer import gradcheck, layers, reference, tree
from npformer.layers.convolution import normalised_relu, residual_conv_block
from npformer.layers.decoding import newest_heads
from npformer.layers.multi_head import self_attention_heads
from npformer.layers.normalisation import normalise
from npformer.models.initialization import Initializer, LayerShapes

B, T, S, H, K, F = 4, 5, 7, 2, 3, 8
D = H * K
KEY = 99


def new(seed=0):
    return Initializer(seed, "float64")


def shaken(params, seed=1):
    """No parameter at 0 or 1, where a wrong gradient might hide."""
    rng = np.random.default_rng(seed)
    return tree.map_leaves(lambda x: x + 0.3 * rng.standard_normal(x.shape), params)


def normal(*shape, seed=2):
    return np.random.default_rng(seed).standard_normal(shape)


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
    paths, arrays = zip(*tree.leaves(params), strict=True)
    n = len(inputs)

    def rebuild(leaves):
        values = iter(leaves)
        return tree.map_leaves(lambda _: next(values), params)

    def f(*args):
        return layer(rebuild(args[n:]), *args[:n])[0]

    def f_backward(dy, *args):
        _, backward = layer(rebuild(args[n:]), *args[:n])
        *dinputs, grads = backward(dy)
        assert [path for path, _ in tree.leaves(grads)] == list(paths)
        return [*dinputs, *(grad for _, grad in tree.leaves(grads))]

    names = [f"input {i}" for i in range(n)] + list(paths)
    return gradcheck(f, f_backward, [*inputs, *arrays], names=names, central_tolerance=None)


DROPOUT = [{}, {"dropout_rate": 0.3, "dropout_key": KEY}]
RATES = [0.0, 0.3]
HEADS = layers.AttentionSettings(H)


def settings(**options):
    """Of a layer, with dropout everywhere."""
    attention = layers.AttentionSettings(H, dropout_rate=0.3)
    return layers.LayerSettings(attention, dropout_rate=0.3, hidden_dropout_rate=0.3, **options)


def test_layer_norm():
    check_layer(
        lambda params, x: layers.layer_norm(reference, params, x),
        [normal(B, T, D)],
        shaken(new().norm(D)),
    )


def test_rms_norm():
    params = shaken(new().norm(D, "rms_norm"))
    check_layer(
        lambda params, x: layers.rms_norm(reference, params, x, 0.1), [normal(B, T, D)], params
    )


@pytest.mark.parametrize("norm_type", ["layer_norm", "rms_norm"])
def test_the_normalisation_of_a_layer_has_the_type_and_the_eps_of_its_settings(norm_type):
    x, params = normal(B, T, D), new().norm(D, norm_type)
    given = layers.LayerSettings(HEADS, norm_type=norm_type, eps=0.5)
    y, _ = normalise(reference, params, x, given)
    assert_array_equal(y, getattr(layers, norm_type)(reference, params, x, 0.5)[0])
    assert not np.allclose(y, getattr(layers, norm_type)(reference, params, x)[0])


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention(causal, rate):
    heads = layers.AttentionSettings(H, causal=causal, dropout_rate=rate)

    def layer(params, x):
        return layers.self_attention(reference, params, x, heads, keep(B, H, T, T), dropout_key=KEY)

    check_layer(layer, [normal(B, T, D)], shaken(new().self_attention(LayerShapes(D, F))))


@pytest.mark.parametrize("rate", RATES)
def test_attention_to_a_memory(rate):
    heads = layers.AttentionSettings(H, dropout_rate=rate)

    def layer(params, x, memory):
        return layers.cross_attention(
            reference, params, x, memory, heads, keep(B, H, T, S), dropout_key=KEY
        )

    check_layer(
        layer, [normal(B, T, D), normal(B, S, D)], shaken(new().memory_attention(LayerShapes(D, F)))
    )


@pytest.mark.parametrize("shape", [(B, H, T), (1, H, 1), (T,)], ids=str)
def test_a_bias_of_the_scores_and_its_gradient(shape):
    """The gradient is that of the bias as it was given, before it was broadcast to (B, H, T, S)."""
    heads = layers.AttentionSettings(H, causal=True)
    memory_heads = layers.AttentionSettings(H, dropout_rate=0.3)

    def of_one(params, x, bias):
        return layers.self_attention(reference, params, x, heads, bias=bias)

    def of_two(params, x, memory, bias):
        return layers.cross_attention(
            reference, params, x, memory, memory_heads, bias=bias, dropout_key=KEY
        )

    x, memory = normal(B, T, D), normal(B, S, D)
    check_layer(
        of_one, [x, normal(*shape, T, seed=6)], shaken(new().self_attention(LayerShapes(D, F)))
    )
    check_layer(
        of_two,
        [x, memory, normal(*shape, S, seed=6)],
        shaken(new().memory_attention(LayerShapes(D, F))),
    )


@pytest.mark.parametrize("window", [None, 3])
def test_a_cache_takes_the_bias_of_the_newest_position(every_backend, window):
    settings = layers.AttentionSettings(H, causal=True, window=window)
    params, x = shaken(new().self_attention(LayerShapes(D, F))), normal(B, T, D)
    bias = normal(B, H, T, T, seed=6)
    whole, _ = self_attention_heads(reference.ops, params, x, settings, bias=bias)
    kv, at = np.empty((B * T, 2 * D)), np.arange(B * T).reshape(B, T)
    for t in range(T):
        cache, newest = layers.KeyValueCache(kv, at[:, : t + 1]), bias[:, :, t : t + 1, : t + 1]
        y = newest_heads(every_backend, params, x[:, t], settings, cache, bias=newest)
        assert_close(y, whole[:, t], 1e-14)


@pytest.mark.parametrize("dropout", DROPOUT)
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_erf", "silu"])
def test_feed_forward(activation, dropout):
    def layer(params, x):
        return layers.feed_forward(reference, params, x, activation=activation, **dropout)

    check_layer(layer, [normal(B, T, D)], shaken(new().feed_forward(LayerShapes(D, F))))


def encoder_params():
    return new().encoder_layer(LayerShapes(D, F))


def decoder_params():
    return new().decoder_layer(LayerShapes(D, F))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_encoder_layer(norm):
    def layer(params, x):
        return layers.encoder_layer(
            reference, params, x, settings(norm=norm), keep(B, 1, 1, S), dropout_key=KEY
        )

    check_layer(layer, [normal(B, S, D)], shaken(encoder_params()))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoder_layer(norm):
    def layer(params, x, memory):
        masks = keep(B, 1, T, T), keep(B, 1, 1, S)
        return layers.decoder_layer(
            reference, params, x, memory, settings(norm=norm), *masks, dropout_key=KEY
        )

    check_layer(layer, [normal(B, T, D), normal(B, S, D)], shaken(decoder_params()))


def normal_params(**shapes):
    return {name: shaken(new().linear(*shape)) for name, shape in shapes.items()}


def test_attention_knows_scale_and_dropout_in_its_backward():
    def layer(params, q, k, v, bias):
        options = {"bias": bias, "causal": True, "scale": 0.3, **DROPOUT[1]}
        out, backward = layers.attention(reference, q, k, v, keep(B, T, S), **options)
        return out, lambda dout: (*backward(dout), params)

    given = [
        normal(B, T, K),
        normal(B, S, K, seed=4),
        normal(B, S, 2, seed=5),
        normal(T, S, seed=6),
    ]
    gradcheck(
        lambda *args: layer({}, *args)[0],
        lambda dout, *args: layer({}, *args)[1](dout)[:4],
        given,
        names="qkvb",
    )


@pytest.mark.parametrize("bias", [True, False])
def test_projections_apart_are_those_side_by_side(bias):
    """So are their gradients, which have the same names as the parameters."""
    apart = {
        name: shaken(new().linear(D, D), seed=i) for i, name in enumerate(["q", "k", "v", "out"])
    }
    if not bias:
        apart = {name: {"weight": params["weight"]} for name, params in apart.items()}
    keys = list(apart["q"])
    qkv = {key: np.concatenate([apart[name][key] for name in "qkv"], axis=-1) for key in keys}
    kv = {key: qkv[key][..., D:] for key in keys}
    x, memory, dy = normal(B, T, D), normal(B, S, D, seed=4), normal(B, T, D, seed=5)
    for attend, inputs, packed in (
        (layers.self_attention, [x], {"qkv": qkv, "out": apart["out"]}),
        (layers.cross_attention, [x, memory], {"q": apart["q"], "kv": kv, "out": apart["out"]}),
    ):
        (y, backward), (expected, expected_backward) = (
            attend(reference, params, *inputs, HEADS) for params in (apart, packed)
        )
        assert_close(y, expected, 1e-13)
        *dinputs, grads = backward(dy)
        *expected_dinputs, expected_grads = expected_backward(dy)
        assert_all_close(dinputs, expected_dinputs, 1e-13)
        tree.check_like(grads, apart)
        parts = [grads[name] for name in ("qkv" if attend is layers.self_attention else "kv")]
        (name,) = expected_grads.keys() - {"q", "out"}
        for key in keys:
            together = np.concatenate([part[key] for part in parts], axis=-1)
            assert_close(together, expected_grads[name][key], 1e-12)


def test_a_cache_that_does_not_fit_is_named():
    params, kv = new().encoder_layer(LayerShapes(D, F)), np.zeros((6, 2 * D))
    for x, at in ((normal(2, D), np.zeros((2, 0), int)), (normal(3, D), np.zeros((2, 1), int))):
        with pytest.raises(ValueError, match="of the newest positions for a cache with kv"):
            layers.encoder_layer(
                reference,
                params,
                x,
                layers.LayerSettings(HEADS),
                cache=layers.KeyValueCache(kv, at),
            )


def test_projections_that_are_missing_are_named():
    params = normal_params(q=(D, D), k=(D, D), out=(D, D))
    with pytest.raises(
        ValueError,
        match=r"params has \['q', 'k', 'out'\], expected 'qkv', or each of \['q', 'k', 'v'\]",
    ):
        layers.self_attention(reference, params, normal(B, T, D), HEADS)


def test_a_feed_forward_layer_without_output_bias_in_its_maps():
    params = {"weight": normal(D, F)}
    y, backward = layers.linear(reference, params, normal(B, T, D))
    dx, grads = backward(np.ones_like(y))
    assert list(grads) == ["weight"]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_residual_passes_by_its_sublayer(norm):
    """A sublayer with a last map of 0 changes nothing.

    The gradient passes through the residual connection.
    """
    params, norm_params = {"out": {"weight": np.zeros((F, D)), "bias": np.zeros(D)}}, new().norm(D)
    x, z, dy = normal(B, T, D), np.ones((B, T, F)), normal(B, T, D, seed=6)
    y, backward = layers.add_and_norm(
        reference, params, norm_params, z, x, settings(norm=norm), dropout_key=KEY
    )
    dz, dx, grads, norm_grads = backward(dy)
    assert not dz.any()
    assert list(grads) == ["out"]
    if norm == "pre":
        assert_array_equal(y, x)
        assert_array_equal(dx, dy)
        assert norm_grads == {}
    else:
        assert_array_equal(y, layers.layer_norm(reference, norm_params, x)[0])
        assert list(norm_grads) == ["gain", "bias"]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_sublayer_is_normalised_once(norm):
    x, dh = normal(B, T, D), normal(B, T, D, seed=6)
    h, backward = layers.norm_before(reference, new().norm(D), x, settings(norm=norm))
    dx, norm_grads = backward(dh)
    assert (h is x) == (dx is dh) == (not norm_grads) == (norm == "post")


def test_one_key_drops_different_places_in_different_layers():
    """Sub-keys are derived: were a key used twice, two dropouts of one shape would agree."""
    params, x = shaken(encoder_params()), normal(B, S, D)
    drawn = []
    ops = noting_keys(drawn)
    layers.encoder_layer(ops, params, x, settings(), dropout_key=KEY)
    assert len(drawn) == 4  # attention weights, attention output, hidden layer, feed-forward output
    assert len(set(drawn)) == 4


def noting_keys(drawn):
    """The reference, which appends the dropout keys that it is called with to a list."""

    def noting(operation):
        place = list(operation.record.parameters).index("dropout_key")

        def call(*args, **keywords):
            drawn.append(keywords["dropout_key"] if "dropout_key" in keywords else args[place])
            return operation(*args, **keywords)

        return call

    names = "self_attention", "linear_activation_dropout", "linear_dropout_residual"
    return reference.ops.replaced(**{name: noting(getattr(reference.ops, name)) for name in names})


def test_a_weight_used_twice_gets_the_sum_of_both_gradients():
    """A layer that is used twice.

    The closures are independent, and the caller adds the gradients.
    """
    params = shaken(new().feed_forward(LayerShapes(D, F)))

    def twice(params, x0):
        x1, backward1 = layers.feed_forward(reference, params, x0)
        x2, backward2 = layers.feed_forward(reference, params, x1)

        def backward(dx2):
            dx1, grads2 = backward2(dx2)
            dx0, grads1 = backward1(dx1)
            return dx0, tree.map_leaves(np.add, grads1, grads2)

        return x2, backward

    check_layer(twice, [normal(B, T, D)], params)


def test_poison_in_the_padding_of_a_memory_changes_nothing():
    params = shaken(new().memory_attention(LayerShapes(D, F)))
    x = normal(B, T, D)
    memory = normal(B, S, D)
    mask = np.ones((B, 1, 1, S), bool)
    mask[:, :, :, 3:] = False
    y, backward = layers.cross_attention(reference, params, x, memory, HEADS, mask)
    for poison in (np.nan, np.inf, -np.inf):
        poisoned = memory.copy()
        poisoned[:, 3:] = poison
        poisoned_y, _ = layers.cross_attention(reference, params, x, poisoned, HEADS, mask)
        assert_array_equal(poisoned_y, y)
    _, dmemory, _ = backward(normal(B, T, D, seed=7))
    assert not dmemory[:, 3:].any()


def test_an_unknown_norm_is_named():
    message = "norm='Pre', expected 'pre' or 'post'"
    refuses(ValueError, message, layers.LayerSettings, HEADS, norm="Pre")


# The layers of convolutions.

KEPT = keep(B, T)


def test_normalised_relu():
    check_layer(
        lambda params, x: normalised_relu(reference, params, x),
        [normal(B, T, D)],
        shaken(new().norm(D)),
    )


@pytest.mark.parametrize("causal", [False, True])
def test_masked_conv1d(causal):
    def layer(params, x):
        return layers.masked_conv1d(reference, params, x, KEPT, dilation=2, causal=causal)

    check_layer(layer, [normal(B, T, D)], shaken(new().conv1d(3, D, 5)))


@pytest.mark.parametrize("dropout", DROPOUT)
def test_residual_conv_block(dropout):
    def layer(params, x):
        def convolve(h):
            return layers.masked_conv1d(reference, params["conv"], h, KEPT, dilation=2, causal=True)

        return residual_conv_block(reference, params, x, convolve, **dropout)

    check_layer(layer, [normal(B, T, D)], shaken(new().residual_conv_block(D, 3)))
