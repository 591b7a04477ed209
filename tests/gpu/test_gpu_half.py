"""The kernels in half precision.

The same as the reference on the same numbers in float32, except for rounding.
"""

import importlib.util

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from on_gpu import MISSING, ON_GPU, gpu
from results import run

from npformer import reference
from npformer.gradients.cases import CASES
from npformer.gradients.drawing import cast

pytestmark = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))

# Largest difference over the largest entry of the result, in units of the dtype's rounding error
# (float16: 9.8e-4, bfloat16: 7.8e-3). Half a unit is the rounding of the result; more where
# something is rounded on the way.
BOUND = 0.51
BOUNDS = {
    "linear linear_backward product": 1.01,
    "self_attention_backward cross_attention_backward": 1.01,  # heads share keys: sums of parts
    "linear_activation_dropout linear_dropout_residual conv1d conv1d_backward": 1.6,
    "linear_activation_dropout_backward linear_dropout_residual_backward": 2,
    "linear_cross_entropy linear_paired_cross_entropy": 2,
}
BOUND_OF = {name: bound for names, bound in BOUNDS.items() for name in names.split()}
DTYPES = [np.dtype("float16")]
if importlib.util.find_spec("ml_dtypes"):
    DTYPES.append(np.dtype(importlib.import_module("ml_dtypes").bfloat16))
UNITS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
CALLS = []
for case in CASES:
    for name in case.names:
        kernel = gpu.ops.kernels.get(name)
        if kernel and UNITS.keys() <= kernel.kernel.dtypes:
            CALLS.append(pytest.param(case, name, id=f"{name}-{case}"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("case", "name"), CALLS)
def test_half_precision(case, name, dtype):
    contract = getattr(reference, name).record.contract
    wide = {x.name for x in contract.arrays.values() if x.kind == "wide"}

    def halves():
        """The same arguments each time. What a forward pass saved is that of the rounded arrays."""
        arguments = case.arguments_of(name, dtype)
        return {key: cast(x, "float32") if key in wide else x for key, x in arguments.items()}

    expected = run(reference, name, in_float32(halves(), dtype))
    actual = run(ON_GPU, name, halves())
    kinds = [result.kind for result in contract.results]
    for i, (x, wanted) in enumerate(zip(actual, expected, strict=True)):
        x = np.asarray(x)
        wanted = np.asarray(wanted)
        if kinds:  # a Python number has no dtype
            assert x.dtype == ("float32" if kinds[i : i + 1] == ["wide"] else dtype), f"result {i}"
        x = x.astype("float32")
        finite = np.isfinite(wanted)
        assert_array_equal(np.isfinite(x), finite, err_msg=f"result {i}")
        largest = np.abs(wanted[finite]).max(initial=0)
        bound = BOUND_OF.get(name, BOUND) * UNITS[dtype.name] * largest
        np.testing.assert_allclose(x[finite], wanted[finite], 0, bound, err_msg=f"result {i}")


def in_float32(value, dtype):
    """A value with its arrays of this dtype in float32."""
    if isinstance(value, dict):
        return {name: in_float32(x, dtype) for name, x in value.items()}
    return value.astype("float32") if getattr(value, "dtype", None) == dtype else value
