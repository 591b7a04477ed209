"""Right and wrong answers, for the checker and in a person's file."""

import re

from npformer.exercises import check_function
from npformer.exercises.courses import ALL
from npformer.exercises.exercise import Mistake


def verdict_on(key, answer, seed=0):
    """The verdict on an answer to an exercise: a function, the text of one, in which ``right`` is
    the right one, or what is changed in that one.
    """
    exercise = ALL[key]
    if isinstance(answer, dict):
        answer = exercise.with_mistakes(Mistake(answer, ""))
    elif isinstance(answer, str):
        before = f"import numpy as np\nright = {exercise.function_name}\n"
        answer = exercise.function_from(before + answer)
    return check_function(exercise, answer, seed)


def solve(course, *labels):
    """Put answers into the file of a course, those of the page; by default all."""
    for label, part in course.parts.items():
        if label in labels or (not labels and not part.has_later_backward):
            function = rf"(?ms)^def {part.function_name}\(.*?(?=^\S)"
            edit(course.file, function, part.answer_source + "\n\n")


# What is said of softmax in a file that was just begun.
NOT_WRITTEN = (
    "softmax: not written yet\n    put your code in place of `raise NotImplementedError`\n"
)


def edit(file, pattern, text):
    """Replace what a pattern matches in a file. Returns the whole new text."""
    new, n_places = re.subn(pattern, lambda _: text, file.read_text(encoding="utf-8"))
    assert n_places
    file.write_text(new, encoding="utf-8")
    return new
