"""A track: a page, and the exercises that ask for its functions."""

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from npformer.exercises.exercise import Mistake
from npformer.exercises.progress import FOLDER, UNREADABLE
from npformer.exercises.start import explained
from npformer.exercises.track.cases import paths
from npformer.exercises.track.page import Page
from npformer.exercises.track.part import Part


def page_of_book(number, part):
    """The line that names the page of the book that explains an exercise."""
    return explained(part)


@dataclass(eq=False)
class Track:
    """A table of exercises, to which `add` adds one.

    Attributes
    ----------
    name : str
        It begins the keys of the exercises, as in ``build/softmax``.
    command : str
        The one of ``npformer exercises`` that it belongs to.
    file_name : str
        The name of the person's file in the folder of the exercises.
    mark : str
        What stands in the docstring of the person's file, so that it is known of which track it is.
        If the marks of several tracks do, the longest counts.
    page : Page
    title : str
        What the person writes, as in "your own Transformer".
    header : str
        The beginning of the person's file: a docstring without its last quotes.
    meaning : str
        What is special about it, for a track that is an option of a command.
    exercises_first : bool
        Whether the exercises stand above the given functions, in the order of their numbers, and
        not where the page has them.
    pointer : callable
        ``pointer(number, exercise)`` is the last line of a task.
    parts : dict
        The exercises by name.
    """

    name: str
    command: str
    file_name: str
    mark: str
    page: Page
    title: str
    header: str
    meaning: str = ""
    exercises_first: bool = False
    pointer: Callable[[int, Part], str] = page_of_book
    parts: dict[str, Part] = field(default_factory=dict)

    @property
    def file(self):
        """The person's file, in the current folder."""
        return FOLDER / self.file_name

    def is_of(self, key):
        """Whether an exercise with this key is one of the track."""
        return key.startswith(f"{self.name}/")

    def number_of(self, part):
        """The number of an exercise, from 1."""
        return list(self.parts).index(part.name) + 1

    def add(self, label, cases, mistakes, results=("y",), arguments=(), kind=Part, **details):
        """Make an exercise. The names of its arguments and results are those of the page's function
        and of a case.

        What is expected is what the page's function returns, which the tests compare with npformer.
        """
        answer = getattr(self.page.module, label.removesuffix("_backward"))
        first = cases(np.random.default_rng(0))[0].args
        gradients = details.get("gradients", ())
        names = list(arguments or _names_of(answer, len(first) - len(gradients[:1])))
        if gradients:
            names.append(self._argument_of_backward(answer.__name__))
            for name in gradients:
                results += _leaves_of(name, first[0])
        made = kind(
            answer=answer,
            label=label,
            arguments=dict.fromkeys(names, ""),
            results=dict.fromkeys(results, ""),
            expected=lambda *args: made.results_of(answer, args),
            cases=cases,
            mistakes=tuple(Mistake(change, text) for change, text in mistakes),
            track=self.name,
            one_page=self.page,
            **details,
        )
        self.parts[label] = made

    def add_like(self, part, **changes):
        """Add an exercise of another track with the same page, changed."""
        self.parts[part.name] = replace(part, track=self.name, **changes)

    def _argument_of_backward(self, name):
        found = re.search(r"def backward\((\w+)\)", self.page.backward_of(name))
        return found[1] if found else "dy"


def _names_of(function, n):
    return list(inspect.signature(function).parameters)[:n]


def _leaves_of(name, params):
    if name != "grads":
        return (name,)
    return tuple(f"grads{path}" for path in paths(params))


def track_of(text, tracks):
    """The track whose mark stands in the docstring of a file; None if there is none.

    What the person has written below it, as a command in a comment, says nothing of the track.
    """
    beginning = docstring_of(text)
    found = [track for track in tracks if track.mark in beginning]
    return max(found, key=lambda track: len(track.mark), default=None)


def docstring_of(text):
    """The docstring of a file; what stands above its first import if Python cannot read it."""
    try:
        return ast.get_docstring(ast.parse(text)) or ""
    except UNREADABLE:
        return re.split(r"(?m)^(?:import|from) ", text, maxsplit=1)[0]
