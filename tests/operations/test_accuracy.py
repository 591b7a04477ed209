"""Results and gradients on inputs that make sums and differences lose digits,
against exact ones.
"""

import numpy as np
import pytest
from results import FIRST, WITH_LONG_DOUBLE, named_results

from scripts.measure.measure_accuracy import HARD, errors_of

from npformer import cpu, reference
from npformer.gradients.drawing import cast


@WITH_LONG_DOUBLE
@pytest.mark.parametrize("hard", HARD, ids=str)
def test_errors_on_hard_inputs_are_within_the_bounds_of_the_table(hard):
    for name, (of_result, of_gradients) in errors_of(hard, "float32", ["reference", "cpu"]).items():
        assert of_result <= hard.case.bound, name
        assert of_gradients is None or of_gradients <= hard.case.backward_bound, name


SUMS_OF_ROWS = {
    "linear": "dbias",
    "linear_activation_dropout": "dbias",
    "linear_dropout_residual": "dbias",
    "conv1d": "dbias",
    "layer_norm": "dbias",
    "rms_norm": "dgain",
    "gru": "dbias",
}
A_MILLION = 10**6


@pytest.mark.parametrize("name", SUMS_OF_ROWS)
def test_a_million_rows_are_added_up_with_an_error_below_1e_6(name):
    sizes = {"...": (A_MILLION,), "B": A_MILLION, "T": 1, "D": 2, "E": 2, "F": 2}
    arguments = FIRST[name]._replace(sizes=sizes).backward_arguments("float32")

    def total(ops, arguments):
        return named_results(ops, f"{name}_backward", arguments)[SUMS_OF_ROWS[name]]

    exact = total(reference, cast(arguments, "float64"))
    for ops in (reference.ops, cpu.ops):
        error = np.abs(total(ops, arguments) - exact).max()
        assert error <= 1e-6 * np.abs(exact).max(), ops.name
