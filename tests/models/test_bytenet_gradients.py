"""The gradient of a whole ByteNet.

Loss, padding, unfolding, dropout and label smoothing on, at every parameter.
"""

import numpy as np
import pytest
from whole_models import (
    assert_gradient_along_directions,
    assert_gradient_at_every_parameter,
    assert_same_gradient,
    loss_of_leaves,
    padded,
    shaken,
)

from npformer import ByteNet, gradcheck, reference, tree
from npformer.layers.convolution import masked_conv1d, normalised_relu, residual_conv_block
from npformer.models.initialization import Initializer

B, S, T, V_SRC, V_TGT, D = 3, 11, 8, 7, 9, 6

# The shortest source has the longest target, which goes on when there are no columns of the encoder
# any more.
SRC = padded(np.random.default_rng(3), S, V_SRC, shortest=2)[[0, 1, 3]]
TGT = padded(np.random.default_rng(4), T + 1, V_TGT, shortest=3)[[3, 0, 1]]


def make(tied=False, unfold=(1.2, 0)):
    return ByteNet(
        V_TGT if tied else V_SRC,
        V_TGT,
        d_model=D,
        n_sets=(1, 2),
        dilations=(1, 3),
        unfold=unfold,
        dropout=0.3,
        tie_embeddings=tied,
        dtype="float64",
    )


def of_model(model, dropout_key=5, backend="reference"):
    return loss_of_leaves(model, shaken(model.init(0)), dropout_key, backend, SRC, TGT)


def test_the_batch_has_targets_shorter_and_longer_than_what_the_encoder_unfolds_to():
    n_columns, n_targets = make().unfolded(SRC).sum(axis=1), (TGT[:, :-1] != 0).sum(axis=1)
    assert (n_columns < n_targets).any()
    assert (n_columns > n_targets).any()


def test_every_parameter_by_complex_step():
    model = make()
    assert_gradient_at_every_parameter(*of_model(model), shaken(model.init(0)))


@pytest.mark.parametrize(("tied", "unfold"), [(False, (1.2, 0)), (True, (1, 0)), (False, (1.5, 2))])
def test_random_directions_by_complex_step(tied, unfold):
    model = make(tied, unfold)
    params, (f, f_backward) = shaken(model.init(0)), of_model(model)
    assert_gradient_along_directions(f, f_backward, params)
    assert_same_gradient(f_backward, of_model(model, backend="cpu")[1], params)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dropout_key", [None, 5])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_random_directions_by_central_differences(tied, dropout_key, backend):
    model = make(tied)
    flat, params = tree.flatten(shaken(model.init(0)))
    f, f_backward = of_model(model, dropout_key, backend)

    def loss_at(point):
        return f(*(x for _, x in tree.leaves(tree.view_as(point, params))))

    gradient = np.concatenate(
        [grad.ravel() for grad in f_backward(1.0, *(x for _, x in tree.leaves(params)))]
    )
    h = 1e-5  # with more a relu would come to its kink
    for direction in np.random.default_rng(2).standard_normal((5, flat.size)) / flat.size**0.5:
        near, far = (
            loss_at(flat + k * h * direction) - loss_at(flat - k * h * direction) for k in (1, 2)
        )
        # of fourth order: where blank columns are small, LN is steep
        slope = (8 * near - far) / (12 * h)
        assert abs(slope - gradient @ direction) <= 1e-8 * max(abs(slope), 1e-2)


def check_layer(layer, x, params):
    """``layer(params, x)`` -> (y, backward), as in test_layers.py."""
    paths, arrays = zip(*tree.leaves(params), strict=True)

    def rebuild(leaves):
        values = iter(leaves)
        return tree.map_leaves(lambda _: next(values), params)

    def f_backward(dy, x, *leaves):
        dx, grads = layer(rebuild(leaves), x)[1](dy)
        assert [path for path, _ in tree.leaves(grads)] == list(paths)
        return [dx, *(grad for _, grad in tree.leaves(grads))]

    gradcheck(
        lambda x, *leaves: layer(rebuild(leaves), x)[0],
        f_backward,
        [x, *arrays],
        central_tolerance=None,
    )


NEW = Initializer(0, "float64")
X = np.random.default_rng(2).standard_normal((B, T, D))
KEEP_MASK = np.random.default_rng(3).random((B, T)) < 0.7


def test_normalised_relu():
    check_layer(lambda params, x: normalised_relu(reference, params, x), X, shaken(NEW.norm(D)))


@pytest.mark.parametrize("causal", [False, True])
def test_masked_conv1d(causal):
    options = {"keep_mask": KEEP_MASK, "dilation": 2, "causal": causal}
    check_layer(
        lambda params, x: masked_conv1d(reference, params, x, **options),
        X,
        shaken(NEW.conv1d(3, D, 5)),
    )


@pytest.mark.parametrize("dropout", [{}, {"dropout_rate": 0.3, "dropout_key": 99}])
def test_residual_conv_block(dropout):
    def layer(params, x):
        def convolve(h):
            return masked_conv1d(reference, params["conv"], h, KEEP_MASK, dilation=2, causal=True)

        return residual_conv_block(reference, params, x, convolve, **dropout)

    check_layer(layer, X, shaken(NEW.residual_conv_block(D, 3)))
