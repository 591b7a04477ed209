"""What is wrong with a function, or with what it has returned, in one line that is certain."""

import inspect

import numpy as np

from npformer.exercises.exercise import Complaint, ComplaintAboutGradients
from npformer.exercises.texts import error_text, kind, shown, two_numbers
from npformer.exercises.trial import is_many, put_back, takes

TOLERANCE = 1e-9  # relative to the largest entry that is expected


def complaint_about_function(exercise, function):
    """The line that says why a function cannot be tried, or ""."""
    name = exercise.function_name
    if not callable(function):
        return f"{name} is {kind(function)}, expected a function"
    replaced = put_back()
    if replaced:
        return complaint_about_numpy(replaced)
    parameters = inspect.signature(exercise.answer).parameters
    if takes(function, len(parameters)):
        return ""
    expected = f"{name}({', '.join(parameters)})"
    return f"your function is {name}{inspect.signature(function)}, expected {expected}"


def complaint_about_numpy(replaced):
    """The line that says what a person's code did to NumPy."""
    return (
        f"it replaces np.{replaced[0]}: leave NumPy as it is, and give what is yours another name"
    )


def complaint_and_topic(exercise, trial, file):
    """The line that says what is wrong with an outcome, and its topic; or both are ""."""
    complaint = complaint_about_call(exercise, trial.outcome, file)
    if complaint:
        is_topic = isinstance(trial.outcome.error, ComplaintAboutGradients)
        return complaint, complaint if is_topic else ""
    complaint = complaint_about_results(exercise, trial.outcome.value, trial.expected)
    return complaint, complaint


def complaint_about_call(exercise, outcome, file):
    """The line that says why there are no results to compare, or ""."""
    if outcome.replaced:
        return complaint_about_numpy(outcome.replaced)
    if isinstance(outcome.error, Complaint):
        return str(outcome.error)
    if outcome.error is not None:
        return f"it raises {error_text(outcome.error, file)}"
    if outcome.changed:
        advice = "work on a new array, as in x = x - 1, not x -= 1"
        return f"it changes its argument {outcome.changed[0]} in place: {advice}"
    names = list(exercise.results)
    if outcome.value is None:
        return f"it returns None: is `return {', '.join(names)}` missing?"
    if len(names) > 1 and (not is_many(outcome.value) or len(outcome.value) != len(names)):
        what = kind(outcome.value)
        if is_many(outcome.value):
            what = f"{what} of {len(outcome.value)}"
        return f"it returns {what}, expected {len(names)} results: {', '.join(names)}"
    return ""


def complaint_about_results(exercise, value, expected):
    """The line that says what is wrong with the results, or ""."""
    if len(exercise.results) == 1:
        value, expected = [value], [expected]
    # A shape says more than a number, so all shapes come first.
    for complaint_of in (complaint_about_form, complaint_about_result):
        for complaint in map(complaint_of, exercise.results, value, expected):
            if complaint:
                return complaint
    return ""


def complaint_about_form(name, value, expected):
    """The line that says what is wrong with the type, shape or dtype of one result, or None."""
    if value is None:
        return f"{name} is None, expected an array of shape {np.shape(expected)}"
    if isinstance(expected, list):
        if not isinstance(value, (list, tuple, np.ndarray)):
            return f"{name} is {kind(value)}, expected a list"
        return None
    if np.ndim(expected) == 0 and not isinstance(value, (np.ndarray, np.generic, float, int)):
        return f"{name} is {kind(value)}, expected a number"
    if np.ndim(expected) and not isinstance(value, np.ndarray):
        return f"{name} is {kind(value)}, expected an array of shape {np.shape(expected)}"
    value, expected = np.asarray(value), np.asarray(expected)
    if value.shape != expected.shape:
        return f"{name} has shape {value.shape}, expected {expected.shape}"
    if not has_dtype_of(value, expected):
        return f"{name} has dtype {value.dtype}, expected {expected.dtype}"
    return None


def complaint_about_result(name, value, expected):
    """The line that says what is wrong with the numbers of a result of the right form, or None."""
    if isinstance(expected, list):
        return complaint_about_list(name, list(value), expected)
    value, expected = np.asarray(value), np.asarray(expected)
    wrong = ~close(value, expected)
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f" at {list(first)}" if value.ndim else ""
    many = f" ({wrong.sum()} of {wrong.size} entries are wrong)" if wrong.size > 1 else ""
    yours, right = two_numbers(value[first], expected[first])
    return f"{name} is wrong{where}: yours is {yours}, expected {right}{many}"


def complaint_about_list(name, value, expected):
    """The line that says where a list differs from the expected one, or None."""
    same = [np.isscalar(a) and a == b for a, b in zip(value, expected, strict=False)]
    if all(same) and len(value) == len(expected):
        return None
    first = same.index(False) if False in same else len(same)
    return f"{name} is {shown(value)}, expected {expected}: they differ at position {first}"


def has_dtype_of(value, expected):
    """Whether an array has the expected dtype; integers may be of another width, floats longer."""
    kinds = {value.dtype.kind, expected.dtype.kind}
    if kinds == {"f"}:
        return value.dtype.itemsize >= expected.dtype.itemsize
    return value.dtype == expected.dtype or kinds <= {"i", "u"}


def close(value, expected):
    """Where the entries agree. NaN never does."""
    if value.dtype.kind not in "fc":
        return value == expected
    finite = np.isfinite(expected)
    scale = np.abs(expected[finite]).max(initial=0) if expected.ndim else np.abs(expected)
    is_near = np.abs(value - expected) <= TOLERANCE * scale + 1e-13
    return np.where(finite, is_near, value == expected)
