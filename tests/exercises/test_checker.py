"""What the checker says about a function that is wrong in some other way than the typical ones."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from tables import table

from npformer.exercises import EXERCISES, check_function
from npformer.exercises.exercise import WrongAnswer
from npformer.exercises.transformer import BUILD
from npformer.exercises.trial import is_same
from npformer.exercises.verdict import Verdict
from tests.exercises.solving import verdict_on

softmax = EXERCISES["softmax"].answer


def raising(error):
    """A function that raises an error."""

    def function(x):
        raise error

    return function


class Stubborn:
    def __array__(self, *args, **options):
        raise RuntimeError("no")


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


@pytest.mark.parametrize("said", OTHER_FORMS)
@pytest.mark.parametrize("reason", ["", "dx has the wrong sign"])
def test_another_form_of_a_result_says_more_than_a_number(said, reason):
    def layer_norm_backward(*args):
        dx, dgain, dbias = EXERCISES["layer_norm_backward"].answer(*args)
        return -dx if reason else dx, OTHER_FORMS[said](dgain), dbias

    verdict = verdict_on("layer_norm_backward", layer_norm_backward)
    assert (verdict.state, verdict.lines[-1]) == ("wrong", f"dgain {said}")
    assert verdict.reason == reason
    assert verdict.topic == f"dgain {said}"


def name_of(row):
    return f"{row['key']}: {row.get('reason') or row['line']}"


@pytest.mark.parametrize("row", table(__file__, "odd_answers")["row"], ids=name_of)
def test_what_is_said_of_an_odd_answer(row):
    verdict = verdict_on(row["key"], row.get("changes") or row["function"])
    assert (verdict.state, verdict.lines[-1]) == ("wrong", row["line"])
    assert verdict.lines[0].startswith(row.get("case", ""))
    assert verdict.reason == row.get("reason", "")
    assert verdict.topic == (row.get("topic", row["line"]) or "")


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


# -- the reason ----------------------------------------------------------------------------------


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
