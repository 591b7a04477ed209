"""The page of one's own GPT, and what the exercises about its functions are made with."""

from dataclasses import replace
from functools import partial

from npformer.exercises.course import Page, Part
from npformer.exercises.course.cases import noisy

NAME = "gpt"  # of the course
PAGE = Page("one_page_gpt.py")
part = partial(Part, course_name=NAME, one_page=PAGE)


def taken(exercise):
    """An exercise of build, whose function is the same on both pages, letter by letter."""
    return replace(exercise, course_name=NAME, one_page=PAGE)


def model(rng, D, F=5, n_layers=1, vocab=7):
    """Parameters of a whole model."""
    return noisy(rng, PAGE.module.init(rng, vocab, D, n_layers, F, dtype=float))


def layer(rng, D, F=5):
    """Parameters of a layer."""
    return model(rng, D, F)["layers"]["0"]
