"""The page of one's own Transformer, and what the exercises about its functions are made with."""

from functools import partial

from npformer.exercises.course import Page, Part
from npformer.exercises.course.cases import noisy

NAME = "build"  # of the course
PAGE = Page("one_page_transformer.py")
part = partial(Part, course_name=NAME, one_page=PAGE)


def model(rng, D, F=5, n_layers=1, vocab=7):
    """Parameters of a whole model."""
    return noisy(rng, PAGE.module.init(rng, vocab, D, n_layers, F))
