"""What the courses have in common: exercises that ask for the functions of one page of code.

A course is a page, such as ``docs/one_page_transformer.py``, and a table of exercises. Each asks
for a function of the page, or for its backward pass. What a person has not written yet comes from
the page, so that their file always runs.
"""

from npformer.exercises.course.course import Course
from npformer.exercises.course.page import Page
from npformer.exercises.course.part import AdamPart, Part

__all__ = ["AdamPart", "Page", "Part", "Course"]
