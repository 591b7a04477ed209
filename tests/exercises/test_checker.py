"""What the checker says about a function that is wrong in some other way than the typical ones."""

import numpy as np
import pytest

from npformer.exercises import EXERCISES, check_function

LAYER_NORM = EXERCISES["layer_norm_backward"]
RIGHT = LAYER_NORM.answer


def lines_of(name, function):
    verdict = check_function(EXERCISES[name], function)
    assert verdict.state == "wrong"
    return verdict.lines


def change_result(i, change):
    def function(*args):
        results = list(RIGHT(*args))
        results[i] = change(results[i])
        return tuple(results)

    return function


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda x: x.astype(np.float32), "dgain has dtype float32, expected float64"),
        (lambda x: x[None], "dgain has shape (1, 3), expected (3,)"),
        (lambda x: None, "dgain is None, expected an array of shape (3,)"),
        (lambda x: x.tolist(), "dgain is a list, expected an array of shape (3,)"),
        (lambda x: "gain", "dgain is a str, expected an array of shape (3,)"),
        (lambda x: x.astype(object), "dgain has dtype object, expected float64"),
        (lambda x: x.astype(complex), "dgain has dtype complex128, expected float64"),
    ],
)
def test_which_result_is_wrong_and_how(change, line):
    assert lines_of("layer_norm_backward", change_result(1, change))[1] == line


def test_the_dtype_is_told_and_nothing_else():
    softmax = EXERCISES["softmax"].answer
    lines = lines_of("softmax", lambda x: softmax(x.astype("float32")))
    assert lines[1:] == ["y has dtype float32, expected float64"]
    halves = lambda *args: [x.round(1).astype("float32") for x in RIGHT(*args)]
    assert lines_of("layer_norm_backward", halves)[1:] == ["dx has dtype float32, expected float64"]
    assert check_function(EXERCISES["softmax"], lambda x: softmax(x.astype(np.longdouble))).solved


def test_the_first_wrong_entry_is_named():
    def function(x):
        y = EXERCISES["softmax"].answer(x)
        if y.ndim == 2:
            y[1, 2] = 7
        return y

    case, complaint = lines_of("softmax", function)
    assert case.startswith("with two rows: x = [[")
    assert complaint.startswith("y is wrong at [1, 2]: yours is 7, expected 0.")
    assert complaint.endswith("(1 of 6 entries are wrong)")


def test_nan_is_never_right():
    assert "yours is nan" in lines_of("softmax", lambda x: np.full(x.shape, np.nan))[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: -x, "dx has the wrong sign"),
        (lambda x: 3 * x, "dx is what is expected times 3"),
        (lambda x: 3**0.5 * x, "dx is what is expected times 1.73205 = √3"),
        (lambda x: x + 2, "dx is what is expected plus 2 in each entry"),
    ],
)
def test_simple_relations_are_recognised(change, words):
    assert lines_of("layer_norm_backward", change_result(0, change))[2] == f"perhaps: {words}"


def test_a_relation_that_holds_in_one_case_alone_is_not_named():
    assert len(lines_of("layer_norm", lambda x, gain, bias, eps: x - x.min())) == 2


def test_a_mistake_is_named_only_if_it_explains_all_cases():
    softmax = EXERCISES["softmax"].answer

    def function(x):
        return np.exp(x - x.max(axis=-1, keepdims=True)) if x.ndim == 1 else softmax(x) ** 2

    assert len(lines_of("softmax", function)) == 2  # in the first case alone the sum is missing


def test_a_case_in_which_a_function_raises_an_error_does_not_count_against_a_mistake():
    def function(x):
        if x.ndim == 3:
            raise ValueError
        return np.exp(x - x.max(axis=-1, keepdims=True))

    assert lines_of("softmax", function)[2] == "perhaps: the division by the sum is missing"


def test_a_mistake_is_not_named_if_it_is_none_where_the_function_raises_an_error():
    gain_and_bias = lambda x, gain, bias, eps: EXERCISES["layer_norm"].answer(x, gain, bias, eps)
    function = lambda x, gain, bias, eps: (
        gain_and_bias(x, gain, 0 * bias, eps) if (bias != 0).any() else 1 / 0
    )
    assert lines_of("layer_norm", function)[1:] == ["it raises ZeroDivisionError: division by zero"]


def test_two_mistakes_are_both_named():
    first = "the maximum of the row is not subtracted: exp(1000) is inf, and inf / inf is NaN"
    second = "the division by"
    assert lines_of("softmax", np.exp)[2].startswith(f"perhaps: {first}; and {second}")


def test_results_in_another_order_are_recognised():
    right = EXERCISES["attention_backward"].answer
    lines = lines_of("attention_backward", lambda *args: right(*args)[::-1])
    assert (
        lines[2] == "perhaps: the results come in another order: dq, dv are what dv, dq should be"
    )


def test_a_shape_is_named_before_a_number():
    lines = lines_of(
        "layer_norm_backward",
        lambda *args: (RIGHT(*args)[0] + 1, RIGHT(*args)[1][None], RIGHT(*args)[2]),
    )
    assert lines[1] == "dgain has shape (1, 3), expected (3,)"


def test_two_different_numbers_look_different():
    line = lines_of("softmax", lambda x: EXERCISES["softmax"].answer(x) * (1 + 1e-8))[1]
    assert line.startswith("y is wrong at [0]: yours is 0.125000001, expected 0.125 ")


def test_a_transpose_is_recognised():
    right = EXERCISES["residual_backward"].answer
    lines = lines_of("residual_backward", lambda *args: [x.T for x in right(*args)])
    assert lines[2] == "perhaps: dx is the transpose of what is expected"


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (lambda *args: None, "it returns None: is `return dx, dgain, dbias` missing?"),
        (
            lambda *args: RIGHT(*args)[:2],
            "it returns a tuple of 2, expected 3 results: dx, dgain, dbias",
        ),
        (
            lambda *args: RIGHT(*args)[0],
            "it returns an array, expected 3 results: dx, dgain, dbias",
        ),
        (lambda *args: [[1, 2], [1, [2, 3]], 5], "dx is a list, expected an array of shape (1, 3)"),
    ],
)
def test_the_number_of_results(function, line):
    assert lines_of("layer_norm_backward", function)[1] == line


def test_a_change_of_an_argument_is_named():
    def function(x):
        x -= x.max(axis=-1, keepdims=True)
        return EXERCISES["softmax"].answer(x)

    assert lines_of("softmax", function)[1].startswith("it changes its argument x in place")


def test_an_error_is_one_line():
    assert (
        lines_of("softmax", lambda x: x.nothing)[1]
        == "it raises AttributeError: 'numpy.ndarray' object has no attribute 'nothing'"
    )
    assert (
        lines_of("softmax", lambda x: exit())[1] == "it raises SystemExit: it must return, not exit"
    )


def test_input_is_not_read(monkeypatch):
    monkeypatch.setattr(
        "builtins.input", lambda: (_ for _ in ()).throw(EOFError("EOF when reading a line"))
    )
    line = "it raises EOFError: your code cannot read input while it is checked"
    assert lines_of("softmax", lambda x: input())[1] == line


def test_the_signature_is_compared():
    assert lines_of("softmax", lambda x, y: x) == [
        "your function is softmax(x, y), expected softmax(x)"
    ]
    assert lines_of("softmax", 3) == ["softmax is an int, expected a function"]


@pytest.mark.parametrize(
    "value",
    [
        3,
        "a",
        None,
        [1, [2, 3]],
        {},
        (),
        np.ones((2, 2)),
        [np.ones(2)],
        object(),
        [None],
        [1.5] * 1000,
    ],
)
@pytest.mark.parametrize("name", ["greedy", "beam_search", "cross_entropy", "softmax", "attention"])
def test_any_value_gets_a_short_line(name, value):
    for result in (value, (value, value)):
        lines = lines_of(name, lambda *args, result=result: result)
        assert all(0 < len(line) < 300 and "\n" not in line for line in lines)


@pytest.mark.parametrize("notes", [5, [], [5], "note"])
def test_an_error_whose_notes_are_no_texts(notes):
    def function(x):
        error = ValueError("no")
        error.__notes__ = notes
        raise error

    assert lines_of("softmax", function)[1] == "it raises ValueError: no"


def test_a_result_that_raises_when_it_becomes_an_array():
    class Stubborn:
        def __array__(self, *args, **options):
            raise RuntimeError("no")

    assert (
        lines_of("softmax", lambda x: Stubborn())[1]
        == "y is a Stubborn, expected an array of shape (3,)"
    )
    assert lines_of("layer_norm_backward", lambda *args: [Stubborn()] * 3)[1].startswith(
        "dx is a Stubborn, expected"
    )
