"""Results and gradients on inputs that make sums and differences lose digits,
against exact ones.
"""

import numpy as np
import pytest
from tested import npf

from scripts.measure.measure_accuracy import HARD, errors_of


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than float64 here"
)
@pytest.mark.parametrize("hard", HARD, ids=str)
def test_errors_on_hard_inputs_are_within_the_bounds_of_the_table(hard):
    for name, (of_result, of_gradients) in errors_of(hard, "float32", ["reference", "cpu"]).items():
        assert of_result <= hard.case.bound, name
        assert of_gradients is None or of_gradients <= hard.case.backward_bound, name


# Each returns the sum over the rows of dy, given 1 x 2 ones, and a column of ones.
SUMS_OF_ROWS = {
    "linear": lambda dy, one, ones: npf.linear_backward(dy, ones, one, one[0])[2],
    "linear_activation_dropout": lambda dy, one, ones: npf.linear_activation_dropout_backward(
        dy, ones, one, one[0], np.ones_like(dy), "relu", 0.0, None
    )[2],
    "linear_dropout_residual": lambda dy, one, ones: npf.linear_dropout_residual_backward(
        dy, ones, one, one[0]
    )[2],
    "conv1d": lambda dy, one, ones: npf.conv1d_backward(dy[None], ones[None], one[None], one[0])[2],
    "layer_norm": lambda dy, one, ones: npf.layer_norm_backward(dy, dy, one[0], ones, ones)[2],
    "rms_norm": lambda dy, one, ones: npf.rms_norm_backward(dy, np.ones_like(dy), one[0], ones)[1],
    "gru": lambda dy, one, ones: npf.gru_backward(  # with r = 1, z = 0 and n = 0
        dy[:, None],
        0 * dy,
        np.zeros((2, 6), dy.dtype),
        0 * dy[:, None],
        ones[..., None] * np.float32([1, 1] + [0] * 6),
    )[3],
}


ROWS = np.random.default_rng(0).standard_normal((10**6, 2), dtype=np.float32)


@pytest.mark.usefixtures("every_backend")
@pytest.mark.parametrize("name", SUMS_OF_ROWS)
def test_a_million_rows_are_added_up_with_an_error_below_1e_6(name):
    total = SUMS_OF_ROWS[name](
        ROWS, np.ones((1, 2), ROWS.dtype), np.ones((len(ROWS), 1), ROWS.dtype)
    )
    exact = ROWS.astype(np.float64).sum(axis=0)
    assert np.abs(total - exact).max() <= 1e-6 * np.abs(exact).max()
