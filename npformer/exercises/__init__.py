"""Exercises along the path of the book, with a checker: ``npformer exercises``.

Each exercise is one record: what is asked, the answer, typical mistakes with explanations, hints,
and the inputs on which a function is compared with what is expected. A file of ``tasks`` has one;
``courses`` lists those that make a whole model together.
"""

from npformer.exercises.compare import check_function
from npformer.exercises.exercise import Case, Exercise, Mistake, Task
from npformer.exercises.tasks import EXERCISES
from npformer.exercises.verdict import Verdict

__all__ = ["EXERCISES", "Case", "Exercise", "Mistake", "Task", "Verdict", "check_function"]
