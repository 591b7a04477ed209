"""Why a function may be wrong: what is known to do the same, or how its results differ."""

import os
from contextlib import redirect_stderr, redirect_stdout

import numpy as np

from npformer.exercises.complaints import TOLERANCE, close, complaint_and_topic, has_dtype_of
from npformer.exercises.texts import error_line
from npformer.exercises.trial import Trial, as_array, call, copied, is_many


def reason(exercise, function, trials, cases):
    """Why a function may be wrong, in words, or "". A reason has to hold in all cases.

    The last trial is the one that failed; the cases are those that were not tried.
    """
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        # What the function prints was shown before.
        trials = [trials[-1], *trials[:-1]]
        for case in cases:
            outcome = call(exercise, function, case)
            trials.append(Trial(case, outcome, exercise.expected(*copied(case.args))))
        return (
            explanation(exercise, trials)
            or exchange(exercise, trials)
            or resemblance(exercise, trials)
            or ""
        )


def explanation(exercise, trials):
    """What explains a wrong answer that does what the function did, preferably in all cases.

    A slip that is possible in many functions has to be the only one, if it shows in an error alone.
    Where nothing but NaN was returned, several mistakes at once are no explanation: too many pairs
    do the same.
    """
    has_shown_a_number = has_number(trials[0].outcome)
    has_shown_nan_alone = not has_shown_a_number and trials[0].outcome.error is None
    candidates = []
    slips = set()
    for wrong in exercise.wrong_answers:
        if wrong.is_several and has_shown_nan_alone:
            continue
        first = call(exercise, wrong.function, trials[0].case)
        if not does_the_same(first, trials[0].outcome):
            continue
        outcomes = [first, *(call(exercise, wrong.function, trial.case) for trial in trials[1:])]
        if not does_the_same_everywhere(outcomes, trials):
            candidates.append((wrong.explanation, outcomes))
        elif wrong.is_slip and not has_shown_a_number:
            slips.add(wrong.explanation)
        else:
            return wrong.explanation
    if has_shown_a_number:
        for words, outcomes in candidates:
            if does_the_same_where_there_are_numbers(exercise, outcomes, trials):
                return words
    return slips.pop() if len(slips) == 1 else None


def does_the_same_everywhere(outcomes, trials):
    """Whether a wrong answer, with these outcomes, does what the function did in every trial."""
    return all(map(does_the_same, outcomes, [trial.outcome for trial in trials]))


def does_the_same_where_there_are_numbers(exercise, outcomes, trials):
    """Whether a wrong answer does what the function did in every trial that returned a number.

    Of the others nothing is known, but the answer must be wrong there, too.
    """
    for outcome, trial in zip(outcomes, trials, strict=True):
        if does_the_same(outcome, trial.outcome):
            continue
        of_answer = Trial(trial.case, outcome, trial.expected)
        complaint, _ = complaint_and_topic(exercise, of_answer, None)
        if has_number(trial.outcome) or not complaint:
            return False
    return True


def has_number(outcome):
    """Whether there is a number in the results. Errors and NaN look like those of many mistakes."""
    if outcome.error is not None:
        return False
    return any(x.dtype.kind != "f" or np.isfinite(x).any() for x in outcome.arrays())


def does_the_same(a, b):
    """Whether two outcomes are the same error, or equal values."""
    if a.error is not None or b.error is not None:
        both_raise = a.error is not None and b.error is not None
        return both_raise and error_line(a.error) == error_line(b.error)
    if a.changed != b.changed:
        return False
    return values_agree(a.value, b.value)


def values_agree(a, b):
    """Whether two values are arrays that agree, or sequences of such arrays."""
    if is_many(a) or is_many(b):
        return is_many(a) and is_many(b) and len(a) == len(b) and all(map(values_agree, a, b))
    a, b = as_array(a), as_array(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "fc":
        return np.allclose(a, b, rtol=1e-9, atol=1e-13, equal_nan=True)
    return bool(np.all(a == b))


def exchange(exercise, trials):
    """Which results are in each other's place, the same in every case that is wrong; or None."""
    wrong = [trial for trial in trials if first_wrong(exercise, trial)]
    orders = [order_of(*results_of(exercise, trial)) for trial in wrong]
    if not orders or not orders[0] or any(order != orders[0] for order in orders):
        return None
    names = list(exercise.results)
    moved = [i for i, place in enumerate(orders[0]) if place != i]
    yours = ", ".join(names[i] for i in moved)
    right = ", ".join(names[orders[0][i]] for i in moved)
    return f"the results come in another order: {yours} are what {right} should be"


def order_of(values, wanted):
    """For each value the position where it is expected; None if it is expected nowhere."""
    order: list[int] = []
    for value in values:
        places = [i for i, want in enumerate(wanted) if i not in order and agrees(value, want)]
        if not places:
            return None
        order.append(places[0])
    return order if len(values) == len(wanted) else None


def resemblance(exercise, trials):
    """A simple relation of the first wrong result to the expected one, in every case, or None."""
    found = [first_wrong(exercise, trial) for trial in trials]
    # One number is a multiple of any other.
    wrong = [each for each in found if each and each[1].size > 1]
    relations = [relation(*each) for each in wrong]
    if not relations or not relations[0] or wrong[0] is not found[0]:
        return None
    name, kind, words = relations[0]
    is_same_everywhere = all(other and other[:2] == (name, kind) for other in relations)
    return f"{name} {words}" if is_same_everywhere else None


def first_wrong(exercise, trial):
    """The name, the array and the expected array of the first wrong result, or None."""
    for name, value, want in zip(exercise.results, *results_of(exercise, trial), strict=False):
        if not agrees(value, want):
            return name, value, want
    return None


def results_of(exercise, trial):
    """The arrays of the results, and those that are expected."""
    value, wanted = trial.outcome.value, trial.expected
    if len(exercise.results) == 1:
        value, wanted = [value], [wanted]
    values = value if is_many(value) else [None]
    return [as_array(x) for x in values], [as_array(x) for x in wanted]


def agrees(value, want):
    """Whether an array is what is expected."""
    return value.shape == want.shape and has_dtype_of(value, want) and close(value, want).all()


def relation(name, value, want):
    """The relation of an array to the wanted one: its name, the kind and the words; or None."""
    if value.dtype.kind != "f" or want.dtype.kind != "f" or not has_dtype_of(value, want):
        return None
    if value.ndim == 2 and value.T.shape == want.shape and close(value.T, want).all():
        return name, "transpose", "is the transpose of what is expected"
    if value.shape != want.shape or not np.isfinite(value).all() or not np.isfinite(want).all():
        return None
    square = float((want * want).sum())
    factor = float((value * want).sum()) / square if square else 0.0
    if factor and not np.isclose(factor, 1, rtol=1e-6) and close(value, want * factor).all():
        square = factor**2
        is_whole = [np.isclose(x, round(x), rtol=1e-9, atol=0) for x in (factor, square)]
        root = f" = √{square:.0f}" if factor > 0 and is_whole == [False, True] else ""
        words = f"is what is expected times {factor:.6g}{root}"
        if np.isclose(factor, -1):
            words = "has the wrong sign"
        return name, "factor", words
    if np.ptp(value - want) <= TOLERANCE * max(1, np.abs(want).max()):
        return name, "shift", f"is what is expected plus {(value - want).flat[0]:.6g} in each entry"
    return None
