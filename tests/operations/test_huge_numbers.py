"""Norms of numbers whose sums or squares overflow.

They are those of smaller numbers, in other units.
"""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_close
from results import BACKENDS, EVERY_KERNEL

from npformer import LanguageModel, greedy_decode, reference
from npformer.diagnosis.questions.losses import norm
from npformer.diagnosis.subject import rms

LARGEST = {dtype: float(np.finfo(dtype).max) / 4 for dtype in ("float32", "float64")}
UNITS = [(dtype, unit) for dtype, x in LARGEST.items() for unit in (math.sqrt(x), x)]
NORMS = {"layer_norm": ("gain", "bias"), "rms_norm": ("gain",)}
pytestmark = pytest.mark.filterwarnings("error")


def rows_of(width, dtype):
    """Rows of numbers from -1 to 1, of which the second has only positive ones,
    and the third mostly zeros.
    """
    rows = np.random.default_rng(0).uniform(-1, 1, (3, width))
    rows[1] = np.abs(rows[1])
    rows[2, 1:] = 0
    return rows.astype(dtype)


def assert_near(actual, expected, dtype):
    assert_close(actual, expected, 200 * np.finfo(dtype).eps * np.abs(expected).max())


@pytest.mark.parametrize("width", [3, 1100])
@pytest.mark.parametrize(("dtype", "unit"), UNITS)
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("ops", BACKENDS)
def test_a_norm_does_not_depend_on_the_unit_of_a_row(ops, name, dtype, unit, width):
    rng = np.random.default_rng(1)
    rows = rows_of(width, dtype)
    bias, gain, *dy = rng.random((5, width)).astype(dtype)
    gain += 9
    parameters = (gain, bias)[: len(NORMS[name])]

    def results_in(unit):
        x = rows * rows.dtype.type(unit)
        y, *mean, rstd = getattr(ops, name)(x, *parameters, eps=1e-37)
        arrays = np.array(dy), x, gain, *mean, rstd
        dx, *others = getattr(ops, f"{name}_backward")(*arrays)
        return [y, *(m / unit for m in mean), rstd * unit, *others], dx

    smaller, dx = results_in(1)
    huge, dx_of_huge = results_in(unit)
    for actual, expected in zip(huge, smaller, strict=True):
        assert_near(actual, expected, dtype)
    if unit < LARGEST[dtype]:  # whose gradients are below the normal numbers
        assert_near(dx_of_huge * unit, dx, dtype)


@pytest.mark.parametrize("norm_type", NORMS)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_decoding_does_not_depend_on_the_unit_of_the_embedding(backend, norm_type):
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 16}
    model = LanguageModel(vocab=50, norm_type=norm_type, tie_embeddings=False, **sizes)
    params = model.init(seed=0)
    prompts = np.arange(3, 13)[:, None]

    def texts_in(unit):
        changed = params | {"embedding": params["embedding"] * np.float32(unit)}
        return np.array(greedy_decode(model, changed, prompts, max_len=6, backend=backend))

    texts = texts_in(1e10)  # beside either, what the layers add is below the rounding error
    assert_array_equal(texts_in(1e25), texts)
    assert len(np.unique(texts[:, 1:])) > 5


def test_the_norm_of_a_gradient_in_a_report():
    grads = {"weight": np.full((2, 2), 3e30, np.float32), "bias": np.full(1, 8e30, np.float32)}
    assert norm(grads) == pytest.approx(1e31)
    assert rms(np.full(4, 2e30, np.float32)) == pytest.approx(2e30)


@EVERY_KERNEL
def test_an_infinite_score_is_nan_in_the_gradients_as_in_the_reference(ops):
    q, k, v, dheads = np.random.default_rng(0).standard_normal((4, 1, 2, 6, 4), np.float32)
    q[0, 0, 2] = k[0, 0, 3] = 1e30

    def gradients(ops):
        saved = ops.flash_attention(q, k, v)
        return ops.flash_attention_backward(dheads, q, k, v, *saved)

    with np.errstate(all="ignore"):
        for actual, expected in zip(gradients(ops), gradients(reference.ops), strict=True):
            assert_array_equal(np.isnan(actual), np.isnan(expected))
            assert np.isnan(actual).any()


@EVERY_KERNEL
def test_a_relu_cuts_infinite_gradients(ops):
    dy, x = np.array([np.inf, np.nan, 2]), np.array([-1.0, -1.0, 1.0])
    assert_array_equal(ops.relu_backward(dy, x), [0, 0, 2])
