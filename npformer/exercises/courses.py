"""The courses: tables of exercises that ask for the functions of one page."""

from npformer.exercises.course import Course
from npformer.exercises.gpt import GPT
from npformer.exercises.tasks import EXERCISES
from npformer.exercises.transformer import BUILD
from npformer.exercises.transformer.derive import DERIVE

COURSES: dict[str, Course] = {course.name: course for course in (BUILD, DERIVE, GPT)}
PARTS = [part for course in COURSES.values() for part in course.exercises]
# All exercises, by their keys in the file of the progress.
ALL = {exercise.key: exercise for exercise in (*EXERCISES.values(), *PARTS)}
