"""The courses: tables of exercises that ask for the functions of one page."""

from npformer.exercises.course import Course
from npformer.exercises.gpt import GPT
from npformer.exercises.transformer import BUILD
from npformer.exercises.transformer.derive import DERIVE

COURSES: dict[str, Course] = {course.name: course for course in (BUILD, DERIVE, GPT)}
