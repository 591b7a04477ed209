"""The gradient of the whole model.

Loss, padding, dropout and label smoothing on, at every single parameter.
"""

import numpy as np
import pytest
from whole_models import (
    SRC,
    TGT,
    V_SRC,
    V_TGT,
    assert_gradient_along_directions,
    assert_gradient_at_every_parameter,
    assert_same_gradient,
    loss_of_leaves,
    shaken,
)

from npformer import Transformer, tree

H, K, F, N = 2, 3, 8, (1, 2)  # as those of the batch, no dimension is as long as another


def make(norm, tied, activation="gelu", n_layers=N):
    return Transformer(
        V_TGT if tied else V_SRC,
        V_TGT,
        d_model=H * K,
        n_heads=H,
        n_layers=n_layers,
        d_ff=F,
        dropout=0.3,
        norm=norm,
        activation=activation,
        tie_embeddings=tied,
        dtype="float64",
    )


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_every_parameter_by_complex_step(norm):
    model = make(norm, tied=norm == "post", n_layers=1)
    params = shaken(model.init(0))
    assert_gradient_at_every_parameter(*loss_of_leaves(model, params, dropout_key=5), params)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_random_directions_by_complex_step(norm, tied):
    model = make(norm, tied, n_layers=(2, 3))
    params = shaken(model.init(0))
    f, f_backward = loss_of_leaves(model, params, dropout_key=5)
    assert_gradient_along_directions(f, f_backward, params)
    assert_same_gradient(f_backward, loss_of_leaves(model, params, 5, "cpu")[1], params)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_erf", "silu"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("dropout_key", [None, 5])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_random_directions_by_central_differences(norm, tied, activation, dropout_key, backend):
    """A second opinion that knows no complex numbers.

    The slope of the loss along random directions.
    """
    model = make(norm, tied, activation)
    flat, params = tree.flatten(shaken(model.init(0)))
    f, f_backward = loss_of_leaves(model, params, dropout_key, backend)

    def loss_at(point):
        return f(*(x for _, x in tree.leaves(tree.view_as(point, params))))

    gradient = np.concatenate(
        [grad.ravel() for grad in f_backward(1.0, *(x for _, x in tree.leaves(params)))]
    )
    h = 1e-5
    for direction in np.random.default_rng(2).standard_normal((5, flat.size)) / flat.size**0.5:
        slope = (loss_at(flat + h * direction) - loss_at(flat - h * direction)) / (2 * h)
        assert abs(slope - gradient @ direction) <= 1e-8 * max(abs(slope), 0.1)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_two_predictions_that_shall_agree(backend):
    """Their loss, gradient and number of tokens; and that they differ by dropout alone."""
    model = make("pre", tied=True)
    params, batch = shaken(model.init(0)), (SRC % V_TGT, TGT[:, :-1], TGT[:, 1:])
    f, _ = loss_of_leaves(model, params, 5, consistency=0.7)
    _, f_backward = loss_of_leaves(model, params, 5, backend, consistency=0.7)
    assert_gradient_along_directions(f, f_backward, params)
    for dropout_key in (None, 5):
        alone, apart = (
            model.loss(params, *batch, dropout_key=dropout_key, consistency=x, backend=backend)
            for x in (1e-9, 0.7)
        )
        assert alone[1] == apart[1] == np.count_nonzero(TGT[:, 1:])
        assert (alone[0] < apart[0] - 1e-3) if dropout_key else abs(alone[0] - apart[0]) < 1e-12
    assert abs(alone[0] - model.loss(params, *batch, dropout_key=5)[0]) > 1e-3
    without = (model.loss(params, *batch, consistency=x, backend=backend)[0] for x in (0.0, 0.7))
    np.testing.assert_allclose(*without, rtol=1e-12)


def test_loss_and_loss_and_grad_agree():
    model = make("pre", tied=False)
    params = model.init(0)
    for dropout_key in (None, 3):
        loss, n = model.loss(
            params, SRC, TGT[:, :-1], TGT[:, 1:], dropout_key=dropout_key, label_smoothing=0.1
        )
        loss2, _, n2 = model.loss_and_grad(
            params, SRC, TGT[:, :-1], TGT[:, 1:], dropout_key=dropout_key, label_smoothing=0.1
        )
        assert (loss, n) == (loss2, n2)
        assert n == np.count_nonzero(TGT[:, 1:])
