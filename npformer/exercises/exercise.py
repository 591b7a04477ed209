"""What an exercise is made of."""

import contextlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np

from npformer.exercises.slips import slips
from npformer.gradients import complex_step
from npformer.runtime.forks import cached_property


@dataclass(frozen=True, eq=False)
class Mistake:
    """A typical mistake: the answer with some text replaced, and what to tell who makes it.

    ``without_formula`` is told instead where the formula in the explanation is to be derived.
    """

    change: dict[str, str]
    explanation: str
    without_formula: str = ""


class WrongAnswer(NamedTuple):
    """A function with mistakes, and what to tell a person whose function does the same."""

    function: Callable
    explanation: str
    is_slip: bool = False  # one of any function with axes, not of this exercise
    is_several: bool = False  # mistakes at once


class Complaint(Exception):
    """What is wrong with the form of a function's results, in one line."""


class ComplaintAboutGradients(Complaint):
    """What is wrong with the form of the gradients of parameters: a hint may say more."""


class Case:
    """Arguments with which a function is called, and what is special about them."""

    def __init__(self, what, *args):
        self.what = what
        self.args = args


class WithAnswer:
    """What a task is given with its answer, or makes of it; a part takes it from its page."""

    # This is no dataclass, so that a part, which has these as properties, need not be given them.
    answer: Callable
    answer_source: str  # its text
    arguments: dict[str, str]  # the description of each, by name
    results: dict[str, str]
    expected: Callable  # expected(*args) is what the function should return
    given: str  # where a bug is to be found, the faulty code; else ""
    name: str
    key: str  # the name among all exercises, in the file of the progress
    imports: str  # the lines above the function


@dataclass(frozen=True, eq=False, kw_only=True)
class Exercise(WithAnswer):
    """A function to write or to mend, and how it is checked.

    It is a `Task`, which stands alone, or a `Part`, which is a function of a page.

    Attributes
    ----------
    title : str
        A line in the list of exercises.
    page : str
        The page of the book that explains it, without ``docs/`` and ``.md``.
    task : str
        What the function has to do.
    cases : callable
        ``cases(rng)`` draws the arguments on which the function is checked, the simplest first.
    mistakes : tuple of Mistake
    hints : tuple of str
        Each says more than the one before.
    hint_for : dict
        Patterns of what the checker says, and the number of the hint, from 1, that is about it.
        The first pattern that is found counts.
    float64_from : str
        What usually makes float64 of float32 here, if what the function returns has to be float32
        where its arguments are.
    """

    title: str
    page: str
    task: str
    cases: Callable
    mistakes: tuple[Mistake, ...]
    hints: tuple[str, ...]
    hint_for: dict[str, int] = field(default_factory=dict)
    float64_from: str = ""

    @property
    def function_name(self):
        """The name of the function that a person writes."""
        return self.answer.__name__

    @property
    def signature(self):
        """The first line of the function."""
        return f"def {self.function_name}{inspect.signature(self.answer)}:"

    def results_of(self, function, args):
        """The results of a call, which are compared. Raises Complaint if there are none."""
        return function(*args)

    @property
    def forward(self):
        """The exercise of the forward pass alone, where a backward pass is asked for with it."""
        return None

    def completed(self, names):
        """The person's function among the names of a file."""
        return names[self.function_name]

    def function_from(self, source):
        """The function that a changed text of the answer defines."""
        names = dict(self.answer.__globals__)
        exec(compile(source, f"<a change of {self.name}>", "exec"), names)
        return names[self.function_name]

    def with_mistakes(self, *mistakes):
        """The answer with mistakes in it."""
        source = self.answer_source
        for mistake in mistakes:
            for old, new in mistake.change.items():
                if old not in source:
                    reason = "which the answer does not contain"
                    raise ValueError(f"{self.name}: a mistake replaces {old!r}, {reason}")
                source = source.replace(old, new)
        return self.function_from(source)

    @cached_property
    def wrong_answers(self):
        """What a person may have written, the simplest first.

        Two mistakes may be made at once; where the bugs are given, three may be left.
        """
        answers = [
            WrongAnswer(self.with_mistakes(mistake), mistake.explanation)
            for mistake in self.mistakes
        ]
        for source, explanation in slips(self.answer_source):
            answers.append(WrongAnswer(self.function_from(source), explanation, is_slip=True))
        for n_mistakes in (2, 3) if self.given else (2,):
            for several in combinations(self.mistakes, n_mistakes):
                explanations = dict.fromkeys(mistake.explanation for mistake in several)
                with contextlib.suppress(ValueError, SyntaxError):  # they change the same text
                    function = self.with_mistakes(*several)
                    answers.append(
                        WrongAnswer(function, "; and ".join(explanations), is_several=True)
                    )
        return answers


@dataclass(frozen=True, eq=False, kw_only=True)
class Task(Exercise):
    """An exercise that stands alone. Its answer is a function of its module.

    Attributes
    ----------
    answer : function
        Its name is that of the exercise, its source what ``answer`` prints.
    expected : callable
        It is not the answer, so that a mistake in the answer is noticed.
    needs : tuple of str
        Lines that import what the function may use besides NumPy.
    """

    answer: Callable
    arguments: dict[str, str]
    results: dict[str, str]
    expected: Callable
    given: str = ""
    needs: tuple[str, ...] = ()

    @property
    def name(self):
        """The name of the exercise."""
        return self.answer.__name__

    @property
    def key(self):
        """Its name among those of all exercises, in the file of the progress."""
        return self.name

    @property
    def imports(self):
        """The lines above the function."""
        return "\n".join(["import numpy as np", *([""] if self.needs else []), *self.needs])

    @cached_property
    def answer_source(self):
        """The text of the answer."""
        return inspect.getsource(self.answer)


def gradients_of(forward, which=None):
    """Return ``expected(dy, *args)``: derivatives of Σ dy · forward(*args), by the complex step.

    Parameters
    ----------
    forward : callable
        It takes the same arguments as the backward pass after ``dy``, and returns one array.
    which : list of int
        The positions in ``args`` of the arguments with a gradient: by default all.
    """

    def expected(dy, *args):
        wanted = range(len(args)) if which is None else which

        def gradient(i):
            f = lambda x: forward(*args[:i], x, *args[i + 1 :])
            return complex_step(f, [args[i]], 0, dy)

        gradients = tuple(gradient(i) for i in wanted)
        return gradients if len(gradients) > 1 else gradients[0]

    return expected


def draw(rng, *shape):
    """Normal random numbers."""
    return rng.standard_normal(shape)


def sizes(rng, n, low=1, high=5):
    """Draw n different sizes, so that no axis can be mistaken for another."""
    return (int(size) for size in rng.permutation(np.arange(low, max(high, low + n - 1) + 1))[:n])
