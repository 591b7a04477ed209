"""The course of one's own GPT: ``npformer exercises gpt``."""

from npformer.exercises.course import Course
from npformer.exercises.gpt import blocks, layers, learning
from npformer.exercises.gpt.page import NAME, PAGE
from npformer.exercises.start import explained
from npformer.extras import PAGES

HEADER = '''"""Your own GPT: a decoder-only Transformer, forward and backward, in NumPy alone.

Write the functions that are exercises, in the order of their numbers. The others are given.

    npformer exercises gpt check                # say what is wrong, or what comes next
    npformer exercises gpt hint                 # a hint; the next time one more
    npformer exercises gpt train                # train; what you have not written yet is given
    npformer exercises gpt train --text FILE    # on a text of yours
    python exercises/gpt.py TEXT                # train this file alone, when all is written

'''


def pages(number, part):
    """The page that goes with this course, and the one that derives the function."""
    return f"Numbers: {PAGES}/guides/your-gpt.md, section {number}\n{explained(part)}"


GPT = Course(
    name=NAME,
    command="gpt",
    file_name="gpt.py",
    mark="npformer exercises gpt check",
    page=PAGE,
    exercises=(*blocks.EXERCISES, *layers.EXERCISES, *learning.EXERCISES),
    title="your own GPT",
    header=HEADER,
    pointer=pages,
)
