"""A person's file for the courses of a command: where it is, and of which course."""

import contextlib
from pathlib import Path

from npformer.commands import called

from npformer.errors import UserError
from npformer.exercises.course.course import course_of
from npformer.exercises.course.file import digests
from npformer.exercises.courses import COURSES
from npformer.exercises.progress import FOLDER
from npformer.exercises.source import UNREADABLE, read_source


class CourseFile:
    """A person's file.

    Parameters
    ----------
    courses : list of Course
        Those of one command, which have this file.

    Attributes
    ----------
    path : Path
        Where it is, in the current folder.
    """

    def __init__(self, courses):
        self.courses = courses
        self.path = courses[0].file

    def program(self):
        """How the person calls the command."""
        return f"{called('exercises')} {self.courses[0].command}"

    def read(self):
        """Its text."""
        if not self.path.exists():
            other = self.look_alike()
            rename = f" (but {other} looks like it: mv {other} {self.path})" if other else ""
            raise UserError(
                f"there is no {self.path} in {Path.cwd()}{rename}: if you have begun elsewhere, go "
                f"to that folder (cd); {self.program()} begins a new one here"
            )
        return text_of_file(self.path)

    def look_alike(self):
        """A file of these courses that has another name; None if there is none."""
        for file in sorted(FOLDER.glob("*.py")):
            with contextlib.suppress(OSError, ValueError):
                if course_of(text_of_file(file), COURSES.values()) in self.courses:
                    return file
        return None

    def course(self, progress):
        """Its course; raises if it is of another command."""
        course = course_or_most_solved(self.read(), self.courses, progress)
        if course in self.courses:
            return course
        advice = f"rename it (mv {self.path} {course.file})"
        if course.file.exists():  # which is not to be lost
            advice = f"move it out of {FOLDER}, as {course.file} is there, too"
        raise UserError(
            f"{self.path} is that of {course.title}: {advice}, then "
            f"{called('exercises')} {course.command}"
        )

    def digests(self, course):
        """The digests of what the file has now; none if Python cannot read it, which is said by
        what checks or trains.
        """
        try:
            return digests(course, read_source(self.path))
        except UNREADABLE:
            return {}

    def line_of(self, part):
        """Where the function stands in the file, or its backward pass."""
        start = f"def {part.function_name}("
        is_inside = False
        for number, line in enumerate(self.read().splitlines(), 1):
            is_backward = is_inside and "def backward(" in line
            is_inside = is_inside or line.startswith(start)
            if is_backward or (is_inside and not part.is_backward):
                return f", line {number}"
        return ""


def text_of_file(file):
    """The text of a person's file, whatever bytes it has."""
    return read_source(file).decode("utf-8", "replace")


def course_or_most_solved(text, courses, progress):
    """The course of a file with this text. If its docstring names none, it is that of several of
    which most is solved, or the first.
    """

    def n_solved(course):
        return sum(course.is_of(key) for key in progress.solved)

    return course_of(text, COURSES.values()) or max(courses, key=n_solved)
