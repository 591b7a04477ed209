"""Compare a function with what is expected of it, and say precisely what is wrong."""

import warnings

import numpy as np

from npformer import tree
from npformer.exercises.complaints import (
    complaint_about_call,
    complaint_about_function,
    complaint_and_topic,
)
from npformer.exercises.exercise import Case
from npformer.exercises.reasons import reason
from npformer.exercises.texts import line_of
from npformer.exercises.trial import Trial, call, copied
from npformer.exercises.verdict import UnderWay, Verdict

SEED = 0


def check_function(exercise, function, seed=SEED, file=None, under_way=None):
    """Compare a person's function with what is expected on every case. Returns a `Verdict`.

    ``under_way`` is told what is being checked, for who ends the process before there is a verdict.
    """
    under_way = under_way or UnderWay()
    refusal = complaint_about_function(exercise, function)
    if refusal:
        return Verdict("wrong", [refusal])
    forward = None
    if exercise.forward:
        forward = check_function(exercise.forward, function, seed, file, under_way)
        if not forward.solved:
            return forward
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return verdict_on_cases(exercise, function, seed, file, forward, under_way)


def verdict_on_cases(exercise, function, seed, file, forward, under_way):
    """The verdict on a function whose forward pass, if the backward pass is asked for, is right."""
    cases = exercise.cases(np.random.default_rng(seed))
    trials: list[Trial] = []
    for case in cases:
        under_way.begin(exercise, case)
        outcome = call(exercise, function, case)
        if isinstance(outcome.error, NotImplementedError):
            return not_written(outcome.error, forward, file)
        trials.append(Trial(case, outcome, exercise.expected(*copied(case.args))))
        under_way.complaint, under_way.topic = complaint_and_topic(exercise, trials[-1], file)
        if outcome.replaced:  # what it does without is another function
            return under_way.verdict()
        if under_way.complaint:
            noted = first_note(outcome.error)  # of results_of, or of some library
            not_tried = cases[len(trials) :]
            words = noted or reason(exercise, function, trials, not_tried)
            return under_way.verdict(reason=words)
    if exercise.float64_from:
        wrong = verdict_in_float32(exercise, function, cases[0], file, under_way)
        if wrong:
            return wrong
    how_many = "both" if len(cases) == 2 else f"all {len(cases)}"
    return Verdict("solved", [f"right in {how_many} cases"])


def verdict_in_float32(exercise, function, case, file, under_way):
    """The verdict on a function that does something wrong in float32, or None."""
    case = Case(f"{case.what}, in float32", *map(in_float32, case.args))
    under_way.begin(exercise, case)
    outcome = call(exercise, function, case)
    if outcome.error is not None or outcome.replaced:
        return under_way.verdict(complaint_about_call(exercise, outcome, file))
    for name, array in zip(exercise.results, outcome.arrays(), strict=False):
        if array.ndim and array.dtype != np.float32:
            expected = "float32, as its arguments have"
            under_way.topic = f"{name} has dtype {array.dtype}, expected {expected}"
            return under_way.verdict(f"{under_way.topic}: {exercise.float64_from}")
    return None


def in_float32(x):
    """An argument of a case with its arrays of floats in float32."""
    if isinstance(x, dict):
        return tree.map_leaves(in_float32, x)
    is_of_floats = isinstance(x, np.ndarray) and x.dtype.kind == "f"
    return x.astype(np.float32) if is_of_floats else x


def not_written(error, forward, file):
    """The verdict on a function that raised NotImplementedError: its forward pass may be right."""
    if not forward:
        return Verdict("not written", ["put your code in place of `raise NotImplementedError`"])
    where = f", line {line_of(error, file)}" if file else ""
    backward = f"backward: not written yet{where}"
    return Verdict("not written", [f"forward: {forward.lines[0]}", backward], topic=backward)


def first_note(error):
    """The first text that was added to an error by ``add_note``, or ""."""
    # It is an attribute like any other: a program may set it to anything.
    notes = getattr(error, "__notes__", None)
    return notes[0] if isinstance(notes, list) and notes and isinstance(notes[0], str) else ""
