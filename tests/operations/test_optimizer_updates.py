"""One step of each optimizer, against loops over scalars and against torch.optim."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_close
from tested import npf

from npformer import cpu, reference
from npformer.gradients.cases import CASES

N, STEPS = 13, 20


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


GRADIENTS = normal(STEPS, N, seed=1)

SGD = {
    "plain": {"lr": 0.1},
    "momentum": {"lr": 0.1, "momentum": 0.9},
    "Nesterov": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
}
ADAM = {
    "Adam": {"lr": 0.1},
    "other constants": {"lr": 0.1, "beta1": 0.8, "beta2": 0.97, "eps": 1e-3},
    "AdamW": {"lr": 0.1, "weight_decay": 0.3},
}


def run_sgd(param, **options):
    velocity = np.zeros(N) if "momentum" in options else None
    for gradient in GRADIENTS:
        npf.sgd_update(param, gradient, velocity, **options)
    return param


def run_adam(param, **options):
    m, v = np.zeros(N), np.zeros(N)
    for step, gradient in enumerate(GRADIENTS, start=1):
        npf.adam_update(param, gradient, m, v, step=step, **options)
    return param


@pytest.mark.parametrize("option", SGD)
def test_sgd_one_number_at_a_time(option):
    lr, momentum, nesterov = (SGD[option].get(name, 0) for name in ("lr", "momentum", "nesterov"))
    expected = list(normal(N))
    for i in range(N):
        velocity = 0.0
        for g in GRADIENTS[:, i]:
            velocity = momentum * velocity + g
            expected[i] -= lr * (g + momentum * velocity if nesterov else velocity)
    assert_close(run_sgd(normal(N), **SGD[option]), expected, 1e-12)


@pytest.mark.parametrize("option", ADAM)
def test_adam_one_number_at_a_time(option):
    lr, beta1, beta2, eps, decay = (
        {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0, **ADAM[option]}[name]
        for name in ("lr", "beta1", "beta2", "eps", "weight_decay")
    )
    expected = list(normal(N))
    for i in range(N):
        m = v = 0.0
        for step, g in enumerate(GRADIENTS[:, i], start=1):
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g * g
            step_size = m / (1 - beta1**step) / (math.sqrt(v / (1 - beta2**step)) + eps)
            expected[i] = expected[i] - lr * decay * expected[i] - lr * step_size
    assert_close(run_adam(normal(N), **ADAM[option]), expected, 1e-12)


@pytest.mark.parametrize("option", SGD)
def test_sgd_of_torch(option):
    torch = pytest.importorskip("torch")
    assert_close(
        run_sgd(normal(N), **SGD[option]), run_torch(torch.optim.SGD, **SGD[option]), 1e-12
    )


@pytest.mark.parametrize("option", ADAM)
def test_adam_of_torch(option):
    torch = pytest.importorskip("torch")
    options = {"beta1": 0.9, "beta2": 0.999, "weight_decay": 0, **ADAM[option]}
    betas = options.pop("beta1"), options.pop("beta2")
    assert_close(
        run_adam(normal(N), **ADAM[option]),
        run_torch(torch.optim.AdamW, betas=betas, **options),
        1e-12,
    )


def run_torch(optimizer_class, **options):
    torch = pytest.importorskip("torch")
    param = torch.tensor(normal(N), requires_grad=True)
    optimizer = optimizer_class([param], **options)
    for gradient in GRADIENTS:
        param.grad = torch.tensor(gradient)
        optimizer.step()
    return param.detach().numpy()


def test_grad_scale_multiplies_the_gradient():
    momentum, velocity = np.ones(N), np.ones(N)
    by_scale, by_hand = normal(N), normal(N)
    npf.sgd_update(by_scale, GRADIENTS[0], momentum, lr=0.1, momentum=0.9, grad_scale=0.25)
    npf.sgd_update(by_hand, 0.25 * GRADIENTS[0], velocity, lr=0.1, momentum=0.9)
    assert_array_equal(by_scale, by_hand)
    assert_array_equal(momentum, velocity)

    moments, moments_by_hand = np.zeros((2, N)), np.zeros((2, N))
    npf.adam_update(by_scale, GRADIENTS[0], *moments, lr=0.1, step=1, grad_scale=0.25)
    npf.adam_update(by_hand, 0.25 * GRADIENTS[0], *moments_by_hand, lr=0.1, step=1)
    assert_array_equal(by_scale, by_hand)
    assert_array_equal(moments, moments_by_hand)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parameters_are_written_in_place_and_the_gradient_is_not(dtype):
    param, gradient, m, v = (np.ones(N, dtype) for _ in range(4))
    gradient.setflags(write=False)
    whole = np.zeros(2 * N, dtype)
    view = whole[:N]
    npf.sgd_update(view, gradient, m, lr=0.5, momentum=0.5)
    npf.adam_update(param, gradient, m, v, lr=0.5, step=1)
    assert whole.tolist() == [-0.75] * N + [0.0] * N
    assert (param < 1).all()
    assert param.dtype == m.dtype == v.dtype == dtype


def test_half_precision_gradient_and_float32_moments():
    param, m, v = np.ones(N, "float32"), np.zeros(N, "float32"), np.zeros(N, "float32")
    npf.adam_update(param, np.full(N, 1e-4, "float16"), m, v, lr=0.25, step=1)
    assert_close(param, np.full(N, 0.75), 1e-3)  # in float16, g² would be 0 and the step infinite


def test_nan_in_one_gradient_reaches_one_parameter():
    gradient = np.array([1.0, np.nan, 1.0])
    param, m, v = np.ones(3), np.zeros(3), np.zeros(3)
    npf.adam_update(param, gradient, m, v, lr=0.25, step=1)
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
@pytest.mark.parametrize("name", ["sgd_update", "adam_update"])
def test_a_gradient_scale_that_is_nan_is_no_update(ops, name):
    for case in (case for case in CASES if case.operation == name):
        arguments = case.arguments("float32") | {"grad_scale": float("nan")}
        before = {key: x.copy() for key, x in arguments.items() if isinstance(x, np.ndarray)}
        getattr(ops, name)(**arguments)
        for key, x in before.items():
            assert_array_equal(arguments[key], x)


@pytest.mark.parametrize(
    "option", [{"lr": 0.1}, {"lr": 0.1, "beta1": 0.8, "beta2": 0.97, "weight_decay": 0.3}]
)
def test_lion_one_number_at_a_time(option):
    beta1 = option.get("beta1", 0.9)
    beta2 = option.get("beta2", 0.99)
    weight_decay = option.get("weight_decay", 0)
    expected, param, mean = list(normal(N)), normal(N), np.zeros(N)
    for i in range(N):
        m = 0.0
        for g in GRADIENTS[:, i]:
            direction = math.copysign(1, beta1 * m + (1 - beta1) * g)
            expected[i] -= option["lr"] * (direction + weight_decay * expected[i])
            m = beta2 * m + (1 - beta2) * g
    for gradient in GRADIENTS:
        npf.lion_update(param, gradient, mean, **option)
    assert_close(param, expected, 1e-12)


def test_a_step_of_lion_without_a_gradient_only_decays():
    param, mean = np.array([2.0]), np.zeros(1)
    npf.lion_update(param, np.zeros(1), mean, lr=0.5, weight_decay=0.1)
    assert (param.tolist(), mean.tolist()) == ([1.9], [0.0])
    npf.lion_update(param, np.ones(1), mean, lr=0.5, grad_scale=math.nan)
    assert (param.tolist(), mean.tolist()) == ([1.9], [0.0])
