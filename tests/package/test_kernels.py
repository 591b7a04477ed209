"""What a backend accepts as a kernel."""

import re

import numpy as np
import pytest

from npformer import reference
from npformer.operations.backend import Backend


def test_a_kernel_with_two_parameters_swapped_is_refused():
    backend = Backend("mine", np.ndarray, dtypes="float32")
    expected = (
        "the kernel of linear in the backend mine has the parameters (weight, x, bias), expected (x, weight, bias)"
    )
    with pytest.raises(TypeError, match=re.escape(expected)):

        @backend.kernel_of(reference.linear)
        def linear(weight, x, bias):
            return x @ weight


def test_a_kernel_replaces_the_reference_for_the_arrays_it_takes():
    backend = Backend("mine", np.ndarray, dtypes="float32")

    @backend.kernel_of(reference.softmax)
    def softmax(x, axis):
        return x + axis

    assert softmax(np.zeros(2, np.float32), axis=0).tolist() == [0, 0]
    assert softmax(np.zeros(2), axis=0).tolist() == [0.5, 0.5]
