"""Compare a function with what is expected of it, and say precisely what is wrong."""

import inspect
import linecache
import os
import re
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field

import numpy as np

from npformer import tree
from npformer.exercises.exercise import Case, Complaint, ComplaintAboutGradients

TOLERANCE = 1e-9  # relative to the largest entry that is expected
SEED = 0
STATES = "solved", "wrong", "not written"
LONGEST_LINE = 1000  # characters


@dataclass
class Verdict:
    """Whether a function is right, and what is not.

    Attributes
    ----------
    state : str
        One of STATES.
    lines : list of str
        What is certain.
    reason : str
        What may be the reason, if one was found.
    topic : str
        What is wrong with a result, or which direction is not written: a hint may be about that. Empty where the
        function raises an error or returns no results, as such words are not about the mathematics.
    """

    state: str
    lines: list[str] = field(default_factory=list)
    reason: str = ""
    topic: str = ""

    @property
    def solved(self):
        """Whether nothing is wrong."""
        return self.state == "solved"

    def text(self):
        """The text from which `from_text` makes it again."""
        return "\n".join(map(one_line, [self.state, self.reason, self.topic, *self.lines]))

    @classmethod
    def from_text(cls, text):
        """The verdict of a text. Raises ValueError if it is not that of one."""
        state, reason, topic, *lines = text.split("\n")
        if state not in STATES:
            raise ValueError("there is no verdict")
        return cls(state, lines, reason, topic)


@dataclass
class UnderWay:
    """What is being checked, for who ends the process before there is a verdict."""

    case: str = ""  # on which the function is being run, in words
    complaint: str = ""  # what is wrong with it; known while a reason is searched
    topic: str = ""  # that of the verdict

    def begin(self, exercise, case):
        """Begin with a case."""
        self.case = f"with {described(exercise, case)}"
        self.complaint = self.topic = ""

    def verdict(self, line="", reason=""):
        """That the function is wrong, with what is known of it."""
        known = [each for each in (self.case, self.complaint, line) if each]
        return Verdict("wrong", known, reason, self.topic)


UNDER_WAY = UnderWay()  # of this process, which checks one function
NUMPY = dict(vars(np))  # before a person's file runs, which may put something else in the place of a name


def too_long(seconds):
    """What is wrong with a function that has not ended."""
    return f"it has not ended after {seconds:g} seconds: is there a loop that never ends?"


@dataclass
class Outcome:
    """What a call did: its value, or the error it raised, the arguments it changed, and the names of NumPy."""

    value: object = None
    error: BaseException | None = None
    changed: list = field(default_factory=list)
    replaced: list = field(default_factory=list)


@dataclass
class Trial:
    """What a function did in a case, and what it should have done."""

    case: Case
    outcome: Outcome
    expected: object


def check_function(exercise, function, seed=SEED, file=None):
    """Compare a function, of a person's file, with what is expected on every case. Returns a `Verdict`."""
    refusal = complaint_about_function(exercise, function)
    if refusal:
        return Verdict("wrong", [refusal])
    forward = check_function(exercise.forward, function, seed, file) if exercise.forward else None
    if forward and not forward.solved:
        return forward
    cases = exercise.cases(np.random.default_rng(seed))
    trials: list[Trial] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for case in cases:
            UNDER_WAY.begin(exercise, case)
            outcome = call(exercise, function, case)
            if isinstance(outcome.error, NotImplementedError):
                return not_written(outcome.error, forward, file)
            trials.append(Trial(case, outcome, exercise.expected(*copied(case.args))))
            UNDER_WAY.complaint, UNDER_WAY.topic = complaint_and_topic(exercise, trials[-1], file)
            if outcome.replaced:  # what it does without is another function
                return UNDER_WAY.verdict()
            if UNDER_WAY.complaint:
                noted = first_note(outcome.error)  # of results_of, or of some library
                return UNDER_WAY.verdict(reason=noted or reason(exercise, function, trials, cases[len(trials) :]))
        wrong = verdict_in_float32(exercise, function, cases[0], file) if exercise.float64_from else None
    return wrong or Verdict("solved", [f"right in {'both' if len(cases) == 2 else f'all {len(cases)}'} cases"])


def not_written(error, forward, file):
    """The verdict on a function that has raised NotImplementedError, but whose forward pass may be right."""
    if not forward:
        return Verdict("not written", ["put your code in place of `raise NotImplementedError`"])
    where = f", line {line_of(error, file)}" if file else ""
    backward = f"backward: not written yet{where}"
    return Verdict("not written", [f"forward: {forward.lines[0]}", backward], topic=backward)


def first_note(error):
    """The first text that was added to an error by ``add_note``, or ""."""
    notes = getattr(error, "__notes__", None)  # an attribute like any other: a program may set it to anything
    return notes[0] if isinstance(notes, list) and notes and isinstance(notes[0], str) else ""


def takes(function, n):
    """Whether a function can be called with n positional arguments."""
    try:
        inspect.signature(function).bind(*range(n))
    except TypeError:
        return False
    except ValueError:  # some functions that are written in C have no signature
        return True
    return True


def call(exercise, function, case):
    """Call a function with copies of the arguments of a case."""
    args = copied(case.args)
    kept = copied(case.args)
    try:
        value = exercise.results_of(function, args)
    except (Exception, SystemExit) as error:
        return Outcome(error=error, replaced=put_back())
    replaced = put_back()  # before anything is compared
    names = exercise.arguments
    changed = [name for name, x, before in zip(names, args, kept, strict=True) if not is_same(x, before)]
    return Outcome(value, changed=changed, replaced=replaced)


def put_back():
    """Give the names of NumPy what they had before a person's file replaced it; the names for which this was needed."""
    names = vars(np)
    replaced = [name for name, value in NUMPY.items() if names.get(name) is not value]
    for name in replaced:
        names[name] = NUMPY[name]
    return replaced


def complaint_about_numpy(replaced):
    """The line that says what a person's code did to NumPy."""
    return f"it replaces np.{replaced[0]}: leave NumPy as it is, and give what is yours another name"


def copied(args):
    """The arguments, with arrays, lists and dicts copied, and iterators made anew."""
    return [copy_of(x) for x in args]


def copy_of(x):
    """A copy of one argument."""
    if isinstance(x, (np.ndarray, list)):
        return x.copy()
    if isinstance(x, dict):
        return {name: copy_of(value) for name, value in x.items()}
    return x.fresh() if hasattr(x, "fresh") else x


def is_same(x, before):
    """Whether an argument is still what it was."""
    if isinstance(before, dict):
        return isinstance(x, dict) and x.keys() == before.keys() and all(is_same(x[name], before[name]) for name in x)
    if not isinstance(before, (np.ndarray, list)):
        return True
    return type(x) is type(before) and np.array_equal(x, before, equal_nan=np.asarray(before).dtype.kind == "f")


# -- what is wrong ------------------------------------------------------------------------------------------------


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
    return f"your function is {name}{inspect.signature(function)}, expected {name}({', '.join(parameters)})"


def complaint_and_topic(exercise, trial, file):
    """The line that says what is wrong with an outcome, and the topic of a `Verdict`; or both are ""."""
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
        return (
            f"it changes its argument {outcome.changed[0]} in place: work on a new array, as in x = x - 1, not x -= 1"
        )
    names = list(exercise.results)
    if outcome.value is None:
        return f"it returns None: is `return {', '.join(names)}` missing?"
    if len(names) > 1 and (not is_many(outcome.value) or len(outcome.value) != len(names)):
        what = f"{kind(outcome.value)} of {len(outcome.value)}" if is_many(outcome.value) else kind(outcome.value)
        return f"it returns {what}, expected {len(names)} results: {', '.join(names)}"
    return ""


def complaint_about_results(exercise, value, expected):
    """The line that says what is wrong with the results, or ""."""
    if len(exercise.results) == 1:
        value, expected = [value], [expected]
    for complaint_of in (complaint_about_form, complaint_about_result):  # a shape says more than a number
        for complaint in map(complaint_of, exercise.results, value, expected):
            if complaint:
                return complaint
    return ""


def complaint_about_result(name, value, expected):
    """The line that says what is wrong with one result, or None."""
    form = complaint_about_form(name, value, expected)
    if form or isinstance(expected, list):
        return form or complaint_about_list(name, list(value), expected)
    value, expected = np.asarray(value), np.asarray(expected)
    wrong = ~close(value, expected)
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f" at {list(first)}" if value.ndim else ""
    many = f" ({wrong.sum()} of {wrong.size} entries are wrong)" if wrong.size > 1 else ""
    yours, right = two_numbers(value[first], expected[first])
    return f"{name} is wrong{where}: yours is {yours}, expected {right}{many}"


def complaint_about_form(name, value, expected):
    """The line that says what is wrong with the type, the shape or the dtype of one result, or None."""
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


def has_dtype_of(value, expected):
    """Whether an array has the dtype that is expected; integers may have another width, and floats more digits."""
    kinds = {value.dtype.kind, expected.dtype.kind}
    if kinds == {"f"}:
        return value.dtype.itemsize >= expected.dtype.itemsize
    return value.dtype == expected.dtype or kinds <= {"i", "u"}


def verdict_in_float32(exercise, function, case, file):
    """The verdict on a function that does something wrong where its arguments are float32, or None."""
    case = Case(f"{case.what}, in float32", *map(in_float32, case.args))
    UNDER_WAY.begin(exercise, case)
    outcome = call(exercise, function, case)
    if outcome.error is not None or outcome.replaced:
        return UNDER_WAY.verdict(complaint_about_call(exercise, outcome, file))
    values = outcome.value if is_many(outcome.value) else [outcome.value]
    for name, array in zip(exercise.results, map(as_array, values), strict=False):
        if array.ndim and array.dtype != np.float32:
            UNDER_WAY.topic = f"{name} has dtype {array.dtype}, expected float32, as its arguments have"
            return UNDER_WAY.verdict(f"{UNDER_WAY.topic}: {exercise.float64_from}")
    return None


def in_float32(x):
    """An argument of a case with its arrays of floats in float32."""
    if isinstance(x, dict):
        return tree.map_leaves(in_float32, x)
    is_of_floats = isinstance(x, np.ndarray) and x.dtype.kind == "f"
    return x.astype(np.float32) if is_of_floats else x


def complaint_about_list(name, value, expected):
    """The line that says where a list differs from the expected one, or None."""
    same = [np.isscalar(a) and a == b for a, b in zip(value, expected, strict=False)]
    if all(same) and len(value) == len(expected):
        return None
    first = same.index(False) if False in same else len(same)
    return f"{name} is {shown(value)}, expected {expected}: they differ at position {first}"


def shown(value):
    """A list in one line that is not too long."""
    text = " ".join(text_of(value).split())
    return text if len(text) <= 100 else text[:99] + "…"


def close(value, expected):
    """Where the entries agree. NaN never does."""
    if value.dtype.kind not in "fc":
        return value == expected
    finite = np.isfinite(expected)
    scale = np.abs(expected[finite]).max(initial=0) if expected.ndim else np.abs(expected)
    return np.where(finite, np.abs(value - expected) <= TOLERANCE * scale + 1e-13, value == expected)


def two_numbers(a, b):
    """Two different numbers with as many digits as are of use, so that the texts differ too."""
    if a.dtype.kind not in "fc":
        return str(a), str(b)
    digits = next((n for n in (6, 9, 12) if f"{a:.{n}g}" != f"{b:.{n}g}"), 17)
    return f"{a:.{digits}g}", f"{b:.{digits}g}"


def kind(value):
    """The type of a value, with an article."""
    name = "array" if isinstance(value, np.ndarray) else type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def is_many(value):
    """Whether a value is a tuple or a list."""
    return isinstance(value, (tuple, list))


def error_text(error, file):
    """An error in one line, with the line of the person's file that raised it."""
    texts = {SystemExit: "it must return, not exit", EOFError: "your code cannot read input while it is checked"}
    text = f"{type(error).__name__}: {texts[type(error)]}" if type(error) in texts else error_line(error)
    line = line_of(error, file)
    return one_line(f"{text} (line {line}: {linecache.getline(file, line).strip()})" if line else text)


def one_line(text):
    """A text, of which a person's code may have made a part, in one line that is not too long."""
    text = text.replace("\n", " ")
    return text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + "…"


def line_of(error, file):
    """The number of the line of a file in which an error was raised, or None."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((frame.lineno for frame in frames if frame.filename == file), None)


def error_line(error):
    """The type of an error and the first line of its message."""
    first = (text_of(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def text_of(value):
    """The text of what a person's code has made, whose own methods may raise."""
    try:
        return str(value)
    except (Exception, SystemExit) as error:
        return f"(its text cannot be shown: that raises {type(error).__name__})"


# -- the case -----------------------------------------------------------------------------------------------------


def described(exercise, case):
    """The arguments of a case in one line."""
    texts = [argument_text(name, x) for name, x in zip(exercise.arguments, case.args, strict=True)]
    return f"{case.what}: {', '.join(texts)}"


def argument_text(name, x):
    """An argument with its numbers if they are few, else with its shape."""
    if isinstance(x, np.ndarray) and x.size <= 8:
        text = np.array2string(x.round(4) if x.dtype.kind == "f" else x, separator=", ")
        return f"{name} = " + re.sub(r"\s*\n\s*", " ", text)
    if isinstance(x, np.ndarray):
        return f"{name} of shape {x.shape}"
    if isinstance(x, dict) and tree.count(x) <= 8:
        return f"{name} = {tree.map_leaves(lambda y: y.round(4).tolist(), x)}".replace("'", '"')
    if isinstance(x, dict) and len(tree.leaves(x)) <= 4:
        return f"{name} of shapes {tree.map_leaves(np.shape, x)}".replace("'", '"')
    if isinstance(x, dict) or callable(x) or (isinstance(x, list) and len(x) > 8):
        return name
    return f"{name} = {x!r}"


# -- why ----------------------------------------------------------------------------------------------------------


def reason(exercise, function, trials, cases):
    """Why a function may be wrong, in words, or "". A reason has to hold in all cases, not only in the failed one.

    The last trial is the one that failed; the cases are those that were not tried.
    """
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # it was shown before
        trials = [trials[-1], *trials[:-1]]
        for case in cases:
            trials.append(Trial(case, call(exercise, function, case), exercise.expected(*copied(case.args))))
        return explanation(exercise, trials) or exchange(exercise, trials) or resemblance(exercise, trials) or ""


def explanation(exercise, trials):
    """What explains a wrong answer that does what the function did; that it does so in all cases is preferred.

    A slip that is possible in many functions has to be the only one, if it shows in an error alone. Where nothing but
    NaN was returned, several mistakes at once are no explanation: too many pairs do the same.
    """
    has_shown_a_number = has_number(trials[0].outcome)
    has_shown_nan_alone = not has_shown_a_number and trials[0].outcome.error is None
    candidates, slips = [], set()
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
    """Whether a wrong answer does what the function did in every trial but those in which it returned no number.

    Of these nothing is known, but the answer must be wrong there, too.
    """
    for outcome, trial in zip(outcomes, trials, strict=True):
        if does_the_same(outcome, trial.outcome):
            continue
        complaint, _ = complaint_and_topic(exercise, Trial(trial.case, outcome, trial.expected), None)
        if has_number(trial.outcome) or not complaint:
            return False
    return True


def has_number(outcome):
    """Whether there is a number in the results. Errors and results of NaN look like those of many mistakes."""
    if outcome.error is not None:
        return False
    values = outcome.value if is_many(outcome.value) else [outcome.value]
    return any(x.dtype.kind != "f" or np.isfinite(x).any() for x in map(as_array, values))


def does_the_same(a, b):
    """Whether two outcomes are the same error, or equal values."""
    if a.error is not None or b.error is not None:
        return error_line(a.error) == error_line(b.error) if a.error is not None and b.error is not None else False
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
    orders = [order_of(*results_of(exercise, trial)) for trial in trials if first_wrong(exercise, trial)]
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
    """A simple relation between the first wrong result and the expected one, the same in every case, or None."""
    found = [first_wrong(exercise, trial) for trial in trials]
    wrong = [each for each in found if each and each[1].size > 1]  # one number is a multiple of any other
    relations = [relation(*each) for each in wrong]
    if not relations or not relations[0] or wrong[0] is not found[0]:
        return None
    name, kind, words = relations[0]
    is_same_everywhere = all(other and other[:2] == (name, kind) for other in relations)
    return f"{name} {words}" if is_same_everywhere else None


def first_wrong(exercise, trial):
    """The name, the array and the expected array of the first result that is not right, or None if all are right."""
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


def as_array(x):
    """The array of a value; one of objects if the value is none of numbers."""
    try:
        return np.asarray(x)
    except Exception:  # sequences of different lengths, or what its own __array__ raises
        return np.asarray(None)


def relation(name, value, want):
    """How an array of numbers is related to the one that is wanted: its name, the kind and the words; or None."""
    if value.dtype.kind != "f" or want.dtype.kind != "f" or not has_dtype_of(value, want):
        return None
    if value.ndim == 2 and value.T.shape == want.shape and close(value.T, want).all():
        return name, "transpose", "is the transpose of what is expected"
    if value.shape != want.shape or not np.isfinite(value).all() or not np.isfinite(want).all():
        return None
    square = float((want * want).sum())
    factor = float((value * want).sum()) / square if square else 0.0
    if factor and not np.isclose(factor, 1, rtol=1e-6) and close(value, want * factor).all():
        sign = np.isclose(factor, -1)
        square = factor**2
        is_whole = [np.isclose(x, round(x), rtol=1e-9, atol=0) for x in (factor, square)]
        root = f" = √{square:.0f}" if factor > 0 and is_whole == [False, True] else ""
        return name, "factor", "has the wrong sign" if sign else f"is what is expected times {factor:.6g}{root}"
    if np.ptp(value - want) <= TOLERANCE * max(1, np.abs(want).max()):
        return name, "shift", f"is what is expected plus {(value - want).flat[0]:.6g} in each entry"
    return None
