"""What the checker says about a function that is wrong in some other way than the typical ones."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from npformer.exercises import EXERCISES, check_function
from npformer.exercises.exercise import WrongAnswer
from npformer.exercises.transformer import BUILD
from npformer.exercises.trial import is_same
from npformer.exercises.verdict import Verdict
from tests.exercises.solving import verdict_on

softmax = EXERCISES["softmax"].answer
layer_norm = EXERCISES["layer_norm"].answer
layer_norm_backward = EXERCISES["layer_norm_backward"].answer
attention_backward = EXERCISES["attention_backward"].answer
residual_backward = EXERCISES["residual_backward"].answer
RIGHT = "return x @ params['weight'] + params['bias']"


def changed(dx=np.array, dgain=np.array):
    """The backward pass of the normalisation with other results, which two functions change."""

    def function(*args):
        results = layer_norm_backward(*args)
        return dx(results[0]), dgain(results[1]), results[2]

    return function


def raising(error):
    """A function that raises an error."""

    def function(x):
        raise error

    return function


# -- the form of a result --------------------------------------------------------------------------


class Stubborn:
    def __array__(self, *args, **options):
        raise RuntimeError("no")


AN_ARRAY = "expected an array of shape"


OTHER_FORMS = {
    "has dtype float32, expected float64": lambda x: x.astype(np.float32),
    "has dtype object, expected float64": lambda x: x.astype(object),
    "has dtype complex128, expected float64": lambda x: x.astype(complex),
    "has shape (1, 3), expected (3,)": lambda x: x[None],
    "is None, expected an array of shape (3,)": lambda x: None,
    "is a list, expected an array of shape (3,)": np.ndarray.tolist,
    "is a str, expected an array of shape (3,)": lambda x: "gain",
    "is a Stubborn, expected an array of shape (3,)": lambda x: Stubborn(),
}


@pytest.mark.parametrize("line", OTHER_FORMS)
def test_a_result_of_another_form(line):
    change = OTHER_FORMS[line]
    # it says more than a number
    for function in (changed(dgain=change), changed(dx=np.negative, dgain=change)):
        assert verdict_on("layer_norm_backward", function).lines[1] == f"dgain {line}"


def told(line, key, function):
    """What the checker says at last of a wrong answer."""
    verdict = verdict_on(key, function)
    assert verdict.state == "wrong"
    assert verdict.lines[-1] == line
    assert verdict.reason == ""


def test_the_line_that_says_what_is_wrong_with_gradients():
    key = "layer_norm_backward"
    told("it returns None: is `return dx, dgain, dbias` missing?", key, lambda *args: None)
    results = "expected 3 results: dx, dgain, dbias"
    function = lambda *args: layer_norm_backward(*args)[:2]
    told(f"it returns a tuple of 2, {results}", key, function)
    function = lambda *args: layer_norm_backward(*args)[0]
    told(f"it returns an array, {results}", key, function)
    function = lambda *args: [[1, 2], [1, [2, 3]], 5]
    told(f"dx is a list, {AN_ARRAY} (1, 3)", key, function)
    function = lambda *args: [x.round(1).astype("float32") for x in layer_norm_backward(*args)]
    told("dx has dtype float32, expected float64", key, function)  # and nothing else


def test_the_line_that_says_what_is_wrong_with_softmax():
    of_softmax = lambda line, function: told(line, "softmax", function)
    of_softmax(f"y is a Stubborn, {AN_ARRAY} (3,)", lambda x: Stubborn())
    in_float32 = lambda x: softmax(x.astype("float32"))
    of_softmax("y has dtype float32, expected float64", in_float32)
    # two different numbers look different
    line = "y is wrong at [0]: yours is {}, expected 0.125 (3 of 3 entries are wrong)"
    of_softmax(line.format("0.125000001"), lambda x: softmax(x) * (1 + 1e-8))
    of_softmax(line.format("nan"), lambda x: np.full(x.shape, np.nan))
    of_softmax("your function is softmax(x, y), expected softmax(x)", lambda x, y: x)
    of_softmax("softmax is an int, expected a function", 3)
    line = "it raises AttributeError: 'numpy.ndarray' object has no attribute 'nothing'"
    of_softmax(line, lambda x: x.nothing)
    of_softmax("it raises SystemExit: it must return, not exit", lambda x: exit())
    line = "it raises EOFError: your code cannot read input while it is checked"
    of_softmax(line, raising(EOFError("EOF when reading a line")))


def test_the_line_that_says_what_is_wrong_with_a_part_of_a_page():
    line = "it changes its argument {} in place: work on a new array, as in x = x - 1, not x -= 1"
    told(line.format("x"), "build/softmax", "def softmax(x): x -= 1; return x")
    in_place = {"    y = x": '    params["bias"] *= 2\n    y = x'}
    told(line.format("params"), "build/linear", in_place)
    line = "it calls backward: return the function itself, `backward`, not `backward(…)`"
    called = {"    return y, backward": "    return y, backward(x)"}
    told(line, "build/linear", called)
    attention = "def attention(q, k, v, keep_mask): return q"
    told("it does not return two results: y, backward", "build/attention", attention)
    line = "its second result is None, expected the function itself: `backward`, not `backward(…)`"
    told(line, "build/attention", f"{attention}, None")


def told_of_linear(line, body, topic=""):
    """What the checker says of a linear map whose function has this body."""
    verdict = verdict_on("build/linear", f"def linear(params, x): {body}")
    assert verdict.lines[1].startswith(line)
    assert verdict.topic == topic


def test_a_backward_pass_of_another_form_is_no_topic_of_a_hint():
    told_of_linear("it returns None: is `return y, backward` missing?", "y = 1")
    told_of_linear("its second result is 3, expected the function", f"{RIGHT}, 3")
    raising_error = f"backward = lambda dy: 1 / 0; {RIGHT}, backward"
    told_of_linear("it raises ZeroDivisionError: division by zero", raising_error)
    line = "backward returns None: is `return dx, grads` missing?"
    told_of_linear(line, f"{RIGHT}, lambda dy: None")
    line = "backward does not return 2 results: dx, grads"
    told_of_linear(line, f"{RIGHT}, lambda dy: dy")


def test_gradients_of_other_names_are_a_topic():
    def told(line, grads):
        told_of_linear(line, f"{RIGHT}, lambda dy: (dy, {grads})", topic=line)

    names = "expected a dict with the names of params: weight, bias"
    told(f"grads is array([[1.]]), {names}", "dy")
    told("grads has no entry 'bias', expected weight, bias", "{'weight': dy}")
    told("grads has an entry 'x', expected weight, bias", "params | {'x': 0}")


def test_a_wider_float_passes():
    assert verdict_on("softmax", lambda x: softmax(x.astype(np.longdouble))).solved


def test_the_first_wrong_entry_is_named():
    def function(x):
        y = softmax(x)
        if y.ndim == 2:
            y[1, 2] = 7
        return y

    case, complaint = verdict_on("softmax", function).lines
    assert case.startswith("with two rows: x = [[")
    assert complaint.startswith("y is wrong at [1, 2]: yours is 7, expected 0.")
    assert complaint.endswith("(1 of 6 entries are wrong)")


@pytest.mark.parametrize("name", ["greedy", "beam_search", "cross_entropy", "softmax", "attention"])
def test_any_value_gets_a_short_line(name):
    values = [3, "a", None, [1, [2, 3]], {}, (), np.ones((2, 2)), [np.ones(2)], object(), [None]]
    values.append([1.5] * 1000)
    pairs = [(value, value) for value in values]
    for result in values + pairs:
        verdict = verdict_on(name, lambda *args, result=result: result)
        assert verdict.state == "wrong"
        for line in [*verdict.lines, verdict.reason]:
            assert len(line) < 300
            assert "\n" not in line


@pytest.mark.parametrize("notes", [5, [], [5], "note"])
def test_an_error_whose_notes_are_no_texts(notes):
    error = ValueError("no")
    error.__notes__ = notes
    verdict = verdict_on("softmax", raising(error))
    assert verdict.lines[1:] == ["it raises ValueError: no"]
    assert verdict.reason == ""


def test_an_argument_that_is_no_dict_of_arrays_any_more_has_been_changed():
    params = {"weight": np.zeros(2), "bias": np.zeros(1)}
    assert is_same(deepcopy(params), params)
    for changed in (params | {"bias": 0.0}, params | {"bias": None}, {"weight": params}, None):
        assert not is_same(changed, params)


def test_a_verdict_is_a_text_and_a_verdict_again():
    verdict = Verdict("wrong", ["with one\nrow", "y is wrong"], topic="y is wrong")
    again = Verdict.from_text(verdict.text())
    assert again == Verdict("wrong", ["with one row", "y is wrong"], topic="y is wrong")
    for text in ("", "wrong", "[" * 1000, "right\n\n\nline"):
        with pytest.raises(ValueError):
            Verdict.from_text(text)


# -- the reason ------------------------------------------------------------------------------------


def test_simple_relations_are_recognised():
    def recognised(reason, dx):
        assert verdict_on("layer_norm_backward", changed(dx)).reason == reason

    recognised("dx has the wrong sign", np.negative)
    recognised("dx is what is expected times 3", lambda x: 3 * x)
    recognised("dx is what is expected times 1.73205 = √3", lambda x: 3**0.5 * x)
    recognised("dx is what is expected plus 2 in each entry", lambda x: x + 2)
    transposed = lambda *args: [x.T for x in residual_backward(*args)]
    verdict = verdict_on("residual_backward", transposed)
    assert verdict.reason == "dx is the transpose of what is expected"
    turned = lambda *args: attention_backward(*args)[::-1]
    order = "the results come in another order: dq, dv are what dv, dq should be"
    assert verdict_on("attention_backward", turned).reason == order
    in_one_case_alone = lambda x, gain, bias, eps: x - x.min()
    assert verdict_on("layer_norm", in_one_case_alone).reason == ""


def shifted(x):
    """The exponentials of softmax, which are not divided by their sum."""
    return np.exp(x - x.max(axis=-1, keepdims=True))


def test_a_mistake_is_named_only_if_it_explains_all_cases():
    in_the_first_case = lambda x: shifted(x) if x.ndim == 1 else softmax(x) ** 2
    assert verdict_on("softmax", in_the_first_case).reason == ""


def test_a_case_in_which_a_function_raises_an_error_does_not_count_against_a_mistake():
    function = lambda x: shifted(x) if x.ndim != 3 else 1 / 0
    assert verdict_on("softmax", function).reason == "the division by the sum is missing"


def test_a_mistake_is_not_named_if_it_is_none_where_the_function_raises_an_error():
    def without_bias(x, gain, bias, eps):
        if not bias.any():
            raise ZeroDivisionError("division by zero")
        return layer_norm(x, gain, 0 * bias, eps)

    verdict = verdict_on("layer_norm", without_bias)
    assert verdict.lines[1:] == ["it raises ZeroDivisionError: division by zero"]
    assert verdict.reason == ""


def test_two_mistakes_are_both_named():
    first = "the maximum of the row is not subtracted: exp(1000) is inf, and inf / inf is NaN"
    assert verdict_on("softmax", np.exp).reason.startswith(f"{first}; and the division by")


def test_of_several_slips_that_raise_the_same_error_none_is_named():
    function = raising(ValueError("could not be done"))
    part = replace(BUILD.parts["softmax"], mistakes=())
    slips = [WrongAnswer(function, words, is_slip=True) for words in ("one", "other")]
    mistake = WrongAnswer(function, "a mistake of this exercise")

    def reason(*answers):
        vars(part)["wrong_answers"] = answers
        return check_function(part, function).reason

    assert reason(slips[0]) == "one"
    assert reason(*slips) == ""
    assert reason(*slips, mistake) == "a mistake of this exercise"
