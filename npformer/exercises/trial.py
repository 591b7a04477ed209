"""Run a function on a case, and keep what it does."""

import contextlib
import inspect
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npformer.exercises.exercise import Case

# Before a person's file runs, which may put something else in the place of a name.
NUMPY = dict(vars(np))
PERSONS_CODE_RUNS = threading.Event()  # and not the checker's


@dataclass
class Outcome:
    """What a call did: its value or error, the arguments it changed, and the names of NumPy."""

    value: Any = None
    error: BaseException | None = None
    changed: list = field(default_factory=list)
    replaced: list = field(default_factory=list)

    def arrays(self):
        """The arrays of its value, or of each of several values."""
        return list(map(as_array, self.value if is_many(self.value) else [self.value]))


@dataclass
class Trial:
    """What a function did in a case, and what it should have done."""

    case: Case
    outcome: Outcome
    expected: object


def call(exercise, function, case):
    """Call a function with copies of the arguments of a case."""
    args = copied(case.args)
    kept = copied(case.args)
    try:
        with persons_code():
            value = exercise.results_of(function, args)
    except (Exception, SystemExit) as error:
        return Outcome(error=error, replaced=put_back())
    replaced = put_back()  # before anything is compared
    names = exercise.arguments
    pairs = zip(names, args, kept, strict=True)
    changed = [name for name, x, before in pairs if not is_same(x, before)]
    return Outcome(value, changed=changed, replaced=replaced)


@contextlib.contextmanager
def persons_code():
    """In this block a person's code runs."""
    PERSONS_CODE_RUNS.set()
    try:
        yield
    finally:
        PERSONS_CODE_RUNS.clear()


def takes(function, n):
    """Whether a function can be called with n positional arguments."""
    try:
        inspect.signature(function).bind(*range(n))
    except TypeError:
        return False
    except ValueError:  # some functions that are written in C have no signature
        return True
    return True


def put_back():
    """Give names of NumPy back what a person's file has replaced. Returns these names."""
    names = vars(np)
    replaced = [name for name, value in NUMPY.items() if names.get(name) is not value]
    for name in replaced:
        names[name] = NUMPY[name]
    return replaced


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
        if not isinstance(x, dict) or x.keys() != before.keys():
            return False
        return all(is_same(x[name], before[name]) for name in x)
    if not isinstance(before, (np.ndarray, list)):
        return True
    may_have_nan = np.asarray(before).dtype.kind == "f"
    return type(x) is type(before) and np.array_equal(x, before, equal_nan=may_have_nan)


def is_many(value):
    """Whether a value is a tuple or a list."""
    return isinstance(value, (tuple, list))


def as_array(x):
    """The array of a value; one of objects if the value is none of numbers."""
    try:
        return np.asarray(x)
    except Exception:  # sequences of different lengths, or what its own __array__ raises
        return np.asarray(None)
