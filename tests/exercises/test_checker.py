"""What the checker says about a function that is wrong in some other way than the typical ones."""

from dataclasses import replace

import numpy as np
import pytest

from npformer.exercises import EXERCISES, check_function
from npformer.exercises.compare import Verdict, is_same
from npformer.exercises.exercise import WrongAnswer
from npformer.exercises.transformer import BUILD
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


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda x: x.astype(np.float32), "dgain has dtype float32, expected float64"),
        (lambda x: x.astype(object), "dgain has dtype object, expected float64"),
        (lambda x: x.astype(complex), "dgain has dtype complex128, expected float64"),
        (lambda x: x[None], "dgain has shape (1, 3), expected (3,)"),
        (lambda x: None, f"dgain is None, {AN_ARRAY} (3,)"),
        (lambda x: x.tolist(), f"dgain is a list, {AN_ARRAY} (3,)"),
        (lambda x: "gain", f"dgain is a str, {AN_ARRAY} (3,)"),
        (lambda x: Stubborn(), f"dgain is a Stubborn, {AN_ARRAY} (3,)"),
    ],
)
def test_a_result_of_another_form(change, line):
    assert verdict_on("layer_norm_backward", changed(dgain=change)).lines[1] == line
    # it says more than a number
    both = changed(dx=np.negative, dgain=change)
    assert verdict_on("layer_norm_backward", both).lines[1] == line


@pytest.mark.parametrize(
    ("key", "function", "line"),
    [
        ("layer_norm_backward", lambda *args: None,
         "it returns None: is `return dx, dgain, dbias` missing?"),
        ("layer_norm_backward", lambda *args: layer_norm_backward(*args)[:2],
         "it returns a tuple of 2, expected 3 results: dx, dgain, dbias"),
        ("layer_norm_backward", lambda *args: layer_norm_backward(*args)[0],
         "it returns an array, expected 3 results: dx, dgain, dbias"),
        ("layer_norm_backward", lambda *args: [[1, 2], [1, [2, 3]], 5],
         f"dx is a list, {AN_ARRAY} (1, 3)"),
        ("layer_norm_backward", lambda *args: [x.round(1).astype("float32")
                                               for x in layer_norm_backward(*args)],
         "dx has dtype float32, expected float64"),  # and nothing else
        ("softmax", lambda x: Stubborn(), f"y is a Stubborn, {AN_ARRAY} (3,)"),
        ("softmax", lambda x: softmax(x.astype("float32")),
         "y has dtype float32, expected float64"),
        # two different numbers look different
        ("softmax", lambda x: softmax(x) * (1 + 1e-8),
         "y is wrong at [0]: yours is 0.125000001, expected 0.125 (3 of 3 entries are wrong)"),
        ("softmax", lambda x: np.full(x.shape, np.nan),
         "y is wrong at [0]: yours is nan, expected 0.125 (3 of 3 entries are wrong)"),
        ("softmax", lambda x, y: x, "your function is softmax(x, y), expected softmax(x)"),
        ("softmax", 3, "softmax is an int, expected a function"),
        ("softmax", lambda x: x.nothing,
         "it raises AttributeError: 'numpy.ndarray' object has no attribute 'nothing'"),
        ("softmax", lambda x: exit(), "it raises SystemExit: it must return, not exit"),
        ("softmax", raising(EOFError("EOF when reading a line")),
         "it raises EOFError: your code cannot read input while it is checked"),
        ("build/softmax", "def softmax(x): x -= 1; return x",
         "it changes its argument x in place: work on a new array, as in x = x - 1, not x -= 1"),
        ("build/linear", {"    y = x": '    params["bias"] *= 2\n    y = x'},
         "it changes its argument params in place: work on a new array, as in x = x - 1, "
         "not x -= 1"),
        ("build/linear", {"    return y, backward": "    return y, backward(x)"},
         "it calls backward: return the function itself, `backward`, not `backward(…)`"),
        ("build/attention", "def attention(q, k, v, keep_mask): return q",
         "it does not return two results: y, backward"),
        ("build/attention", "def attention(q, k, v, keep_mask): return q, None",
         "its second result is None, expected the function itself: `backward`, "
         "not `backward(…)`"),
    ],
)  # fmt: skip
def test_the_line_that_says_what_is_wrong(key, function, line):
    verdict = verdict_on(key, function)
    assert (verdict.state, verdict.lines[-1], verdict.reason) == ("wrong", line, "")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("y = 1", "it returns None: is `return y, backward` missing?"),
        (f"{RIGHT}, 3", "its second result is 3, expected the function"),
        (f"backward = lambda dy: 1 / 0; {RIGHT}, backward",
         "it raises ZeroDivisionError: division by zero"),
        (f"{RIGHT}, lambda dy: None", "backward returns None: is `return dx, grads` missing?"),
        (f"{RIGHT}, lambda dy: dy", "backward does not return 2 results: dx, grads"),
    ],
)  # fmt: skip
def test_a_backward_pass_of_another_form_is_no_topic_of_a_hint(body, line):
    verdict = verdict_on("build/linear", f"def linear(params, x): {body}")
    assert verdict.lines[1].startswith(line) and verdict.topic == ""


@pytest.mark.parametrize(
    ("grads", "line"),
    [
        ("dy", "grads is array([[1.]]), expected a dict with the names of params: weight, bias"),
        ("{'weight': dy}", "grads has no entry 'bias', expected weight, bias"),
        ("params | {'x': 0}", "grads has an entry 'x', expected weight, bias"),
    ],
)
def test_gradients_of_other_names_are_a_topic(grads, line):
    verdict = verdict_on(
        "build/linear", f"def linear(params, x): {RIGHT}, lambda dy: (dy, {grads})"
    )
    assert (verdict.lines[1], verdict.topic) == (line, line)


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


@pytest.mark.parametrize(
    "value",
    [3, "a", None, [1, [2, 3]], {}, (), np.ones((2, 2)), [np.ones(2)], object(), [None],
     [1.5] * 1000],
)  # fmt: skip
@pytest.mark.parametrize("name", ["greedy", "beam_search", "cross_entropy", "softmax", "attention"])
def test_any_value_gets_a_short_line(name, value):
    for result in (value, (value, value)):
        verdict = verdict_on(name, lambda *args, result=result: result)
        assert verdict.state == "wrong"
        for line in [*verdict.lines, verdict.reason]:
            assert len(line) < 300 and "\n" not in line


@pytest.mark.parametrize("notes", [5, [], [5], "note"])
def test_an_error_whose_notes_are_no_texts(notes):
    error = ValueError("no")
    error.__notes__ = notes
    verdict = verdict_on("softmax", raising(error))
    assert (verdict.lines[1:], verdict.reason) == (["it raises ValueError: no"], "")


def test_an_argument_that_is_no_dict_of_arrays_any_more_has_been_changed():
    params = {"weight": np.zeros(2), "bias": np.zeros(1)}
    assert is_same({"weight": np.zeros(2), "bias": np.zeros(1)}, params)
    for changed in ({**params, "bias": 0.0}, {**params, "bias": None}, {"weight": params}, None):
        assert not is_same(changed, params)


def test_a_verdict_is_a_text_and_a_verdict_again():
    verdict = Verdict("wrong", ["with one\nrow", "y is wrong"], topic="y is wrong")
    again = Verdict.from_text(verdict.text())
    assert again == Verdict("wrong", ["with one row", "y is wrong"], topic="y is wrong")
    for text in ("", "wrong", "[" * 1000, "right\n\n\nline"):
        with pytest.raises(ValueError):
            Verdict.from_text(text)


# -- the reason ------------------------------------------------------------------------------------

FIRST = "the maximum of the row is not subtracted: exp(1000) is inf, and inf / inf is NaN"


@pytest.mark.parametrize(
    ("key", "function", "reason"),
    [
        ("layer_norm_backward", changed(lambda x: -x), "dx has the wrong sign"),
        ("layer_norm_backward", changed(lambda x: 3 * x),
         "dx is what is expected times 3"),
        ("layer_norm_backward", changed(lambda x: 3**0.5 * x),
         "dx is what is expected times 1.73205 = √3"),
        ("layer_norm_backward", changed(lambda x: x + 2),
         "dx is what is expected plus 2 in each entry"),
        ("residual_backward", lambda *args: [x.T for x in residual_backward(*args)],
         "dx is the transpose of what is expected"),
        ("attention_backward", lambda *args: attention_backward(*args)[::-1],
         "the results come in another order: dq, dv are what dv, dq should be"),
        # a relation that holds in one case alone
        ("layer_norm", lambda x, gain, bias, eps: x - x.min(), ""),
    ],
)  # fmt: skip
def test_simple_relations_are_recognised(key, function, reason):
    assert verdict_on(key, function).reason == reason


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
    without_bias = lambda x, gain, bias, eps: (
        layer_norm(x, gain, 0 * bias, eps) if (bias != 0).any() else 1 / 0
    )
    verdict = verdict_on("layer_norm", without_bias)
    assert verdict.lines[1:] == ["it raises ZeroDivisionError: division by zero"]
    assert verdict.reason == ""


def test_two_mistakes_are_both_named():
    assert verdict_on("softmax", np.exp).reason.startswith(f"{FIRST}; and the division by")


def test_of_several_slips_that_raise_the_same_error_none_is_named():
    function = raising(ValueError("could not be done"))
    part = replace(BUILD.parts["softmax"], mistakes=())
    slips = [WrongAnswer(function, words, is_slip=True) for words in ("one", "other")]
    mistake = WrongAnswer(function, "a mistake of this exercise")
    for answers, words in ((slips[:1], "one"), (slips, ""), ([*slips, mistake], mistake[1])):
        vars(part)["wrong_answers"] = answers
        assert check_function(part, function).reason == words
