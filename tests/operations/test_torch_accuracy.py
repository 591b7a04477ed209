"""On inputs that make sums and differences lose digits,
no operation is more than four times as far off as PyTorch.
"""

import numpy as np
import pytest

pytest.importorskip("torch")
from results import WITH_LONG_DOUBLE

from scripts.measure.measure_accuracy import HARD, errors_of

FLOOR = 2  # units of rounding that are never too many
CASES = [(hard, "float32") for hard in HARD]
CASES += [(hard, "float64") for hard in HARD if hard.case.operation in ("gru", "lstm")]


@WITH_LONG_DOUBLE
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # PyTorch's results may be inf
@pytest.mark.parametrize(("hard", "dtype"), CASES, ids=str)
def test_no_error_on_a_hard_input_is_four_times_that_of_pytorch(hard, dtype):
    errors = errors_of(hard, dtype)
    theirs = errors.pop("PyTorch")
    for name, ours in errors.items():
        for error, their_error in zip(ours, theirs, strict=True):
            if error is not None and their_error is not None and not np.isnan(their_error):
                assert error <= 4 * their_error + FLOOR, name
