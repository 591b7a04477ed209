"""A sliding window: each position attends to near ones only (Beltagy et al. 2020; Jiang et al. 2023)."""

import numpy as np
import pytest
from promises import assert_steps_equal_recomputation, params_of
from whole_models import assert_gradient_along_directions, assert_same_gradient, loss_of_leaves, shaken

from npformer import Transformer, layers
from npformer.models.initialization import Initializer

SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 9, "max_len": 16, "dropout": 0.3, "dtype": "float64"}
SRC = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 0, 0, 0]])


@pytest.mark.parametrize(("causal", "sees"), [(False, {2, 3, 4, 5, 6}), (True, {2, 3, 4})])
def test_a_position_sees_those_at_a_distance_below_the_window(every_backend, causal, sees):
    params, x = Initializer(0, "float64").self_attention(8), np.random.default_rng(0).standard_normal((1, 9, 8))
    settings, changes = layers.AttentionSettings(2, causal=causal, window=3), set()
    before, _ = layers.self_attention(every_backend, params, x, settings)
    for s in range(9):
        changed = x.copy()
        changed[0, s] += 1
        after, _ = layers.self_attention(every_backend, params, changed, settings)
        changes |= {s} if (after != before)[0, 4].any() else set()
    assert changes == sees


@pytest.mark.parametrize("window", [1, 2, 30])
def test_a_model_trains_and_decodes_with_it(every_backend, window):
    model = Transformer(7, 9, n_layers=(1, 2), window=window, **SIZES)
    params = shaken(model.init(0))
    f, f_backward = loss_of_leaves(model, params, 5)
    assert_gradient_along_directions(f, f_backward, params)
    assert_same_gradient(f_backward, loss_of_leaves(model, params, 5, every_backend)[1], params)
    model, whole = (Transformer(11, 11, n_layers=2, window=n, **SIZES) for n in (window, None))
    params, tgt = params_of(model), np.array([[1, 5, 6, 7, 8]] * 3)
    assert_steps_equal_recomputation(model, params, SRC, every_backend)
    assert np.allclose(model.logits(params, SRC, tgt), whole.logits(params, SRC, tgt)) == (window == 30)


def test_a_window_of_no_position_is_refused():
    with pytest.raises(ValueError, match="window=0, expected at least 1"):
        Transformer(11, 11, window=0, **SIZES)
