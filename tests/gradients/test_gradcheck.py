"""The gradient checker.

Each test passes it a wrong backward, or something that it should accept.
"""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refuses
from results import normal
from tables import each_of

from npformer.commands import gradcheck as command

import npformer
from npformer import reference
from npformer.gradients import GradientError, cotangent, gradcheck
from npformer.gradients.cases import CASES

T, D = 5, 7


def test_no_two_cases_have_the_same_label():
    assert len(set(map(str, CASES))) == len(CASES)


X, Y = normal(T, D), normal(T, D, seed=1)


def multiply(x, y):
    return np.sin(x) * y


def multiply_backward(dz, x, y):
    return dz * np.cos(x) * y, dz * np.sin(x)


def with_one_wrong_entry(dx, dy):
    dy[3, 4] += 1e-6
    return dx, dy


def with_a_nan(dx, dy):
    dx[1, 2] = np.nan
    return dx, dy


# What is made of the right gradients.
WRONG = {
    "sign": lambda dx, dy: (-dx, dy),
    "sign of the second": lambda dx, dy: (dx, -dy),
    "missing factor": lambda dx, dy: (dx / Y, dy),
    "zero": lambda dx, dy: (0 * dx, dy),
    "swapped": lambda dx, dy: (dy, dx),
    "upstream ignored": lambda dx, dy: multiply_backward(1.0, X, Y),
    "shape": lambda dx, dy: (dx.sum(axis=0), dy),
    "shape that broadcasts": lambda dx, dy: (dx, dy[None]),
    "too few": lambda dx, dy: (dx,),
    "too many": lambda dx, dy: (dx, dy, dx),
    "NaN": with_a_nan,
    "one entry": with_one_wrong_entry,
}
MESSAGES = dict.fromkeys(WRONG, "gradient of x0 is off by")
MESSAGES |= {
    "sign of the second": "gradient of x1 is off by",
    "shape": r"shape \(7,\), expected \(5, 7\)",
    "shape that broadcasts": r"x1 has shape \(1, 5, 7\)",
    "too few": "returned 1 gradients for 2 arguments",
    "too many": "returned 3 gradients for 2 arguments",
    "NaN": r"gradient of x0 is off by inf .* at \[1, 2\] the backward gives nan",
    "one entry": r"gradient of x1 is off by .* at \[3, 4\]",
}


def check_wrong(name, **options):
    """Check the product with this mistake in its backward pass."""

    def f_backward(dz, x, y):
        return WRONG[name](*multiply_backward(dz, x, y))

    gradcheck(multiply, f_backward, [X, Y], **options)


def test_right_gradients_pass():
    errors = gradcheck(multiply, multiply_backward, [X, Y], names=["x", "y"])
    assert list(errors) == ["x", "y"]
    assert all(0 <= error["complex step"] < 1e-15 for error in errors.values())
    assert all(0 < error["central differences"] < 1e-9 for error in errors.values())


WAYS: list[dict] = [{}, {"complex_tolerance": None}, {"central_tolerance": None}, {"sample": 2}]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_wrong_gradients_fail(wrong, options):
    if wrong == "one entry" and "sample" in options:
        check_wrong(wrong, **options)  # a sample does not find what is wrong elsewhere
    else:
        refuses(GradientError, MESSAGES[wrong], check_wrong, wrong, **options)


def test_nothing_and_nan_fail():
    refuses(GradientError, "nan", gradcheck, lambda x: x * np.nan, lambda dy, x: dy, [X])
    refuses(GradientError, "gradient of x0 is None", gradcheck, np.sin, lambda dy, x: None, [X])


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_arguments_drawn_from_the_same_seed_are_not_taken_for_dy(seed):
    x = normal(3, 4, seed=seed)

    def refused(f, f_backward):
        refuses(GradientError, "off by", gradcheck, f, f_backward, [x], seed=seed)

    refused(lambda x: 1.0 * x, lambda dy, x: x)
    refused(np.square, lambda dy, x: 2 * dy * dy)
    refused(np.square, lambda dy, x: 2 * x * x)


def test_the_message_shows_the_worst_entry_and_both_values():
    x = np.zeros(3)
    off = np.array([0.0, 0.25, -0.5])
    dy = cotangent(3)
    with pytest.raises(GradientError) as error:
        gradcheck(lambda x: x, lambda dy, x: dy + off, [x], names=["logits"])
    message = str(error.value)
    assert "gradient of logits is off by" in message
    assert "at [2]" in message
    assert f"{dy[2] - 0.5:.8g}" in message
    assert f"{dy[2]:.8g}" in message


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex128", "int64"])
def test_only_float64_is_accepted(dtype):
    message = rf"args\[1\] has dtype {dtype}, expected float64"
    refuses(TypeError, message, gradcheck, multiply, multiply_backward, [X, Y.astype(dtype)])


VIEWS = {
    "itself": lambda x: x,
    "transposed": lambda x: x.T,
    "flat": lambda x: x.reshape(-1),
    "every second row": lambda x: x[::2],
}


@each_of("view", VIEWS)
def test_views_of_the_arguments_are_not_confused(view):
    def f_backward(dy, x):
        dx = np.zeros(x.shape)
        view(dx)[...] = dy
        return dx

    gradcheck(view, f_backward, [X])
    twice = lambda dy, x: 2 * f_backward(dy, x)
    refuses(GradientError, "off by", gradcheck, view, twice, [X])


def test_arguments_are_left_as_they_were():
    x = X.copy()
    y = Y.copy()
    gradcheck(multiply, multiply_backward, [x, y])
    assert np.array_equal(x, X)
    assert np.array_equal(y, Y)


def test_scalar_functions():
    def f(x):
        return (x**2).sum()

    gradcheck(f, lambda dy, x: dy * 2 * x, [X])
    refuses(GradientError, "off by", gradcheck, f, lambda dy, x: dy * x, [X])


def test_noise_in_a_gradient_that_is_zero_is_accepted_beside_a_real_one():
    def f(x, shift):
        return x * x + shift - shift

    def check(noise):
        f_backward = lambda dy, x, shift: (dy * 2 * x, noise * shift)
        gradcheck(f, f_backward, [X, Y], central_tolerance=None)

    check(1e-17)
    refuses(GradientError, "gradient of x1", check, 1e-12)


def test_rounding_of_a_gradient_that_is_zero_in_theory_is_accepted_of_softmax():
    """What is added to a whole row changes no probability. The numeric gradient is then rounding,
    too: relative to itself, and not to that of x, no backward pass would agree with it.
    """

    def f(x, shift):
        return reference.softmax(x + shift)

    def f_backward(dy, x, shift):
        dx = reference.softmax_backward(dy, f(x, shift))
        return dx, dx.sum(axis=-1, keepdims=True)

    errors = gradcheck(f, f_backward, [X, Y[:, :1]])
    assert errors["x1"]["complex step"] > 0


@pytest.mark.parametrize("margin, least_that_is_noticed", [(0, 3e-13), (9, 3e-12), (13, 3e-10)])
def test_near_a_loss_of_0_only_what_is_rounded_is_accepted(margin, least_that_is_noticed):
    """The more certain the right word, the smaller is p - 1, and the more of it is rounding."""
    targets = np.arange(T)
    x = 0.3 * X
    x[targets, targets] += margin

    def check(factor):
        def loss(x):
            return reference.cross_entropy(x, targets)[0]

        def backward(dy, x):
            return factor * dy * reference.cross_entropy(x, targets)[1]

        gradcheck(loss, backward, [x])

    check(1.0)
    message = r"so little may be rounding, .* near a loss of 0: check new parameters"
    refuses(GradientError, message, check, 1 + least_that_is_noticed)


def with_calls_counted(f, calls):
    def counted(*args):
        calls.append([np.copy(x) for x in args])
        return f(*args)

    return counted


def test_a_sample_calls_the_function_three_times_for_each_entry_and_says_how_many_were_checked():
    calls = []
    x = normal(20, 30)
    y = normal(20, 30, seed=1)
    f = with_calls_counted(multiply, calls)
    errors = gradcheck(f, multiply_backward, [x, y], names=["x", "y"], sample=12)
    assert len(calls) == 1 + 3 * (12 + 12)
    assert errors.checked == {"x": (12, 600), "y": (12, 600)}
    first, second = str(errors).splitlines()
    assert first.startswith("x: 12 of 600 entries checked, complex step ")
    assert ", central differences " in second
    again = pickle.loads(pickle.dumps(errors))
    assert (again, again.checked) == (errors, errors.checked)


def entries_that_are_stepped(**options):
    """The entries of x at which the complex step is made."""
    calls = []
    x = normal(20, 30)
    f = with_calls_counted(lambda x: np.sin(x), calls)
    gradcheck(f, lambda dy, x: dy * np.cos(x), [x], central_tolerance=None, **options)
    return [tuple(map(int, np.argwhere(args[0].imag)[0])) for args in calls[1:]]


def test_the_same_seed_draws_the_same_sample():
    entries = entries_that_are_stepped(sample=12)
    assert len({*entries}) == 12
    assert entries == entries_that_are_stepped(sample=12)
    assert entries != entries_that_are_stepped(sample=12, seed=1)
    assert len({*entries_that_are_stepped(sample=599)}) == 599
    for most in (600, 10**6):
        assert len({*entries_that_are_stepped(sample=most)}) == 600


@pytest.mark.parametrize("entry", [(0, 0), (3, 4), (4, 6)])
def test_the_smallest_sample_is_the_largest_entry(entry):
    """Wherever it is; so errors are relative to the same number as without a sample."""

    def f_backward(dy, x):
        dx = dy * np.cos(x)
        dx[entry] = 50
        return dx

    row, column = entry
    expected = rf"gradient of x0 is off by .* at \[{row}, {column}\] the backward gives 50 and"
    refuses(GradientError, expected, gradcheck, np.sin, f_backward, [X], sample=1)


def test_a_sample_of_arrays_without_entries_and_without_axes():
    def f_backward(dz, x, y):
        return dz * y + 0 * x, dz * x.sum()

    f = lambda x, y: y * x.sum()
    errors = gradcheck(f, f_backward, [X[:0], Y[0, 0]], sample=5)
    assert errors.checked == {"x0": (0, 0), "x1": (1, 1)}


def test_a_sample_is_a_number_of_entries():
    for error, wrong in ((ValueError, [0, -1]), (TypeError, [2.5, True])):
        for sample in wrong:
            arguments = multiply, multiply_backward, [X, Y]
            refuses(error, f"sample={sample}", gradcheck, *arguments, sample=sample)


def test_command_prints_a_table(call):
    code, shown, _ = call(command.main, "softmax", "--seed", "3")
    lines = shown.splitlines()
    title = ["operation", "argument", "complex", "step", "central", "differences"]
    assert code == 0
    assert lines[2].split() == title
    for line in lines[3:5]:
        name, *_, complex_step, central_differences = line.split()
        assert name == "softmax"
        assert float(complex_step) < 1e-13
        assert float(central_differences) < 1e-8
    assert lines[-1] == "every backward is the derivative of its forward"


def test_command_names_the_operations_it_knows(call):
    code, _, errors = call(command.main, "softmin")
    assert code == 2
    assert "no operation 'softmin'" in errors
    assert "softmax" in errors


def test_command_fails_with_the_gradient(monkeypatch, call):
    broken = SimpleNamespace(operation="broken", is_differentiable=True)
    broken.derivative = lambda seed: (np.sin, lambda dy, x: dy, {"x": X})
    monkeypatch.setattr(command, "CASES", [broken])
    code, shown, _ = call(command.main)
    assert code == 1
    assert "WRONG: gradient of x is off by" in shown


def test_functions_of_several_results_are_refused():
    message = r"f returns a tuple of 3, expected one array: try lambda \*x: f\(\*x\)\[0\]"
    functions = npformer.layer_norm, npformer.layer_norm_backward
    arrays = [np.ones((2, 3)), np.ones(3), np.ones(3)]
    refuses(TypeError, message, gradcheck, *functions, arrays)


def test_an_array_in_place_of_the_list_is_refused():
    message = r"args is an array, expected a list of arrays: try \[x\]"
    refuses(TypeError, message, gradcheck, np.sin, lambda dy, x: dy * np.cos(x), np.ones(3))


def test_arguments_of_the_wrong_type_are_named():
    backward = lambda dy, x: dy * np.cos(x)

    def refused(error, message, f=np.sin, f_backward=backward, **options):
        refuses(error, message, gradcheck, f, f_backward, [np.ones(3)], **options)

    refused(TypeError, "seed='x' is a str, expected an int", seed="x")
    refused(ValueError, "seed=-1, expected at least 0", seed=-1)
    refused(ValueError, "2 names for 1 args, expected equally many", names=["x", "y"])
    refused(ValueError, "complex_tolerance=-1, expected a finite number", complex_tolerance=-1)
    refused(ValueError, "central_tolerance=inf, expected a finite number", central_tolerance=np.inf)
    refused(TypeError, "f=None is a NoneType, expected a function", f=None)
    refused(TypeError, "f_backward='x' is a str, expected a function", f_backward="x")


def test_a_check_without_a_method_is_refused():
    message = "complex_tolerance=None with central_tolerance=None, expected one of them"
    options = {"complex_tolerance": None, "central_tolerance": None}
    refuses(ValueError, message, gradcheck, multiply, multiply_backward, [X, Y], **options)


def test_two_arguments_of_one_name_are_refused():
    message = r"names=\['x', 'x'\], expected a name of its own for each argument"
    arrays = [X, Y]
    refuses(ValueError, message, gradcheck, multiply, multiply_backward, arrays, names=["x", "x"])
