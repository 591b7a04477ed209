"""Steps of each optimizer, against loops over scalars."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_close
from results import normal
from tested import npf

from npformer import cpu, reference
from npformer.gradients.cases import CASES

N, STEPS = 13, 20


GRADIENTS = normal(STEPS, N, seed=1)
STEPS_OF_SGD: dict[str, dict] = {
    "plain": {"lr": 0.1},
    "momentum": {"lr": 0.1, "momentum": 0.9},
    "scaled momentum": {"lr": 0.1, "momentum": 0.9, "grad_scale": 0.25},
    "Nesterov": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
}
STEPS_OF_ADAM: dict[str, dict] = {
    "Adam": {"lr": 0.1},
    "other constants": {"lr": 0.1, "beta1": 0.8, "beta2": 0.97, "eps": 1e-3},
    "scaled": {"lr": 0.1, "grad_scale": 0.25},
    "AdamW": {"lr": 0.1, "weight_decay": 0.3},
}
STEPS_OF_LION = {
    "Lion": {"lr": 0.1},
    "Lion, other constants": {"lr": 0.1, "beta1": 0.8, "beta2": 0.97, "weight_decay": 0.3},
}
OPTIONS = STEPS_OF_SGD | STEPS_OF_ADAM | STEPS_OF_LION


def moved(name):
    """The parameters after all steps."""
    param = normal(N)
    m = np.zeros(N)
    v = np.zeros(N)
    options = OPTIONS[name]
    for step, gradient in enumerate(GRADIENTS, start=1):
        if name in STEPS_OF_SGD:
            npf.sgd_update(param, gradient, m if "momentum" in options else None, **options)
        elif name in STEPS_OF_ADAM:
            npf.adam_update(param, gradient, m, v, step=step, **options)
        else:
            npf.lion_update(param, gradient, m, **options)
    return param


def sgd(x, gradients, lr, momentum=0.0, nesterov=False):
    velocity = 0.0
    for g in gradients:
        velocity = momentum * velocity + g
        x -= lr * (g + momentum * velocity if nesterov else velocity)
    return x


def adam(x, gradients, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
    m = v = 0.0
    for step, g in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        direction = m / (1 - beta1**step) / (math.sqrt(v / (1 - beta2**step)) + eps)
        x -= lr * (weight_decay * x + direction)
    return x


def lion(x, gradients, lr, beta1=0.9, beta2=0.99, weight_decay=0.0):
    m = 0.0
    for g in gradients:
        direction = math.copysign(1, beta1 * m + (1 - beta1) * g)
        x -= lr * (weight_decay * x + direction)
        m = beta2 * m + (1 - beta2) * g
    return x


@pytest.mark.parametrize("name", OPTIONS)
def test_one_number_at_a_time(name):
    update = lion
    if name in STEPS_OF_SGD:
        update = sgd
    elif name in STEPS_OF_ADAM:
        update = adam
    options = dict(OPTIONS[name])
    scaled = GRADIENTS * options.pop("grad_scale", 1.0)
    numbers = zip(normal(N).tolist(), scaled.T, strict=True)
    expected = [update(x, gradients, **options) for x, gradients in numbers]
    assert_close(moved(name), expected, 1e-12)


def test_half_precision_gradient_and_float32_moments():
    param, m, v = np.zeros((3, N), "float32")
    param += 1
    npf.adam_update(param, np.full(N, 1e-4, "float16"), m, v, lr=0.25, step=1)
    assert_close(param, np.full(N, 0.75), 1e-3)  # in float16, g² would be 0 and the step infinite


def test_nan_in_one_gradient_reaches_one_parameter():
    param, m, v = np.zeros((3, 3))
    npf.adam_update(param, np.array([1.0, np.nan, 1.0]), m, v, lr=0.25, step=1)
    assert np.isnan(param).tolist() == [False, True, False]


def test_global_norm():
    gradient = normal(N)
    assert_close(npf.global_norm(gradient), math.sqrt(math.fsum(g * g for g in gradient)))
    assert isinstance(npf.global_norm(gradient.astype("float32")), float)
    assert npf.global_norm(np.array([])) == 0


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_global_norm_of_nan_and_infinity(dtype):
    gradient = np.ones(N, dtype)
    gradient[3] = np.inf
    assert npf.global_norm(gradient) == np.inf
    gradient[5] = np.nan
    assert math.isnan(npf.global_norm(gradient))


@pytest.mark.parametrize("size", [1e-30, 1e25])
def test_global_norm_whose_squares_leave_the_range(size):
    assert npf.global_norm(np.full(4, size, np.float32)) == pytest.approx(2 * size, rel=1e-6)


@pytest.mark.parametrize("ops", [reference, cpu], ids=["reference", "cpu"])
@pytest.mark.parametrize("name", ["sgd_update", "adam_update", "lion_update"])
def test_a_gradient_scale_that_is_nan_is_no_update(ops, name):
    for case in CASES:
        if case.operation == name:
            arguments = case.arguments("float32") | {"grad_scale": math.nan}
            getattr(ops, name)(**arguments)
            for key, before in case.arguments("float32").items():
                if isinstance(before, np.ndarray):
                    assert_array_equal(arguments[key], before)


def test_a_step_of_lion_without_a_gradient_only_decays():
    param = np.array([2.0])
    mean = np.zeros(1)
    npf.lion_update(param, np.zeros(1), mean, lr=0.5, weight_decay=0.1)
    assert (param.tolist(), mean.tolist()) == ([1.9], [0.0])
