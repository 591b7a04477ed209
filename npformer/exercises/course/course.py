"""A course: a page, and the exercises that ask for its functions."""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from npformer.exercises.course.page import Page
from npformer.exercises.course.part import Part
from npformer.exercises.progress import FOLDER
from npformer.exercises.source import UNREADABLE
from npformer.exercises.start import explained
from npformer.runtime.forks import cached_property


def page_of_book(number, part):
    """The line that names the page of the book that explains an exercise."""
    return explained(part)


@dataclass(frozen=True, eq=False, kw_only=True)
class Course:
    """A page, and the exercises that ask for its functions, in order.

    Attributes
    ----------
    name : str
        It begins the keys of the exercises, as in ``build/softmax``.
    command : str
        The one of ``npformer exercises`` that it belongs to.
    file_name : str
        The name of the person's file in the folder of the exercises.
    mark : str
        What stands in the docstring of the person's file, by which its course is known. If the
        marks of several courses do, the longest counts.
    page : Page
    exercises : tuple of Part
    title : str
        What the person writes, as in "your own Transformer".
    header : str
        The beginning of the person's file: a docstring without its last quotes.
    meaning : str
        What is special about it, for a course that is an option of a command.
    exercises_first : bool
        Whether the exercises stand above the given functions, in the order of their numbers, and
        not where the page has them.
    pointer : callable
        ``pointer(number, exercise)`` is the last line of a task.
    """

    name: str
    command: str
    file_name: str
    mark: str
    page: Page
    exercises: tuple[Part, ...]
    title: str
    header: str
    meaning: str = ""
    exercises_first: bool = False
    pointer: Callable[[int, Part], str] = page_of_book

    @cached_property
    def parts(self):
        """The exercises by name."""
        return {part.name: part for part in self.exercises}

    @property
    def file(self):
        """The person's file, in the current folder."""
        return FOLDER / self.file_name

    def is_of(self, key):
        """Whether an exercise with this key is one of the course."""
        return key.startswith(f"{self.name}/")

    def number_of(self, part):
        """The number of an exercise, from 1."""
        return list(self.parts).index(part.name) + 1


def course_of(text, courses):
    """The course whose mark stands in the docstring of a file; None if there is none.

    What the person has written below it, as a command in a comment, says nothing of the course.
    """
    beginning = docstring_of(text)
    found = [course for course in courses if course.mark in beginning]
    return max(found, key=lambda course: len(course.mark), default=None)


def docstring_of(text):
    """The docstring of a file; what stands above its first import if Python cannot read it."""
    try:
        return ast.get_docstring(ast.parse(text)) or ""
    except UNREADABLE:
        return re.split(r"(?m)^(?:import|from) ", text, maxsplit=1)[0]
