"""The course of one's own Transformer: ``npformer exercises build``."""

from npformer.exercises.course import Course
from npformer.exercises.transformer import backward, forward, layers
from npformer.exercises.transformer.page import NAME, PAGE

HEADER = '''"""Your own Transformer: encoder and decoder, forward and backward, in NumPy alone.

Write the functions that are exercises, in the order of their numbers. The others are given.

    npformer exercises build check    # say what is wrong, or what comes next
    npformer exercises build hint     # a hint; the next time one more
    npformer exercises build train    # train; what you have not written yet is given

'''

BUILD = Course(
    name=NAME,
    command="build",
    file_name="transformer.py",
    mark="npformer exercises build check",
    page=PAGE,
    exercises=(*forward.EXERCISES, *backward.EXERCISES, *layers.EXERCISES),
    title="your own Transformer",
    header=HEADER,
)
