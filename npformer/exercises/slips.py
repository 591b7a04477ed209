"""Slips of every function with axes: changes of an answer's text, each with its explanation."""

import re
from itertools import combinations

REDUCTION = "of a sum, mean or maximum"
CALL = r"(\.(?:sum|mean|max)\([^()]*)"  # the beginning of its call, as \1
SLIPS = (  # a pattern, what takes its place, and the explanation
    (
        f"{CALL}, keepdims=True",
        r"\1",
        f"keepdims=True is missing: without it the result {REDUCTION} loses its axis, and no "
        "longer fits its rows",
    ),
    (
        f"{CALL}axis=-1, ",
        r"\1",
        f"axis=-1 {REDUCTION} is missing: this is one number of the whole array, not of a row",
    ),
    (
        f"{CALL}axis=-1",
        r"\1axis=0",
        f"the axis {REDUCTION} is the first one: the numbers of a row lie along axis=-1",
    ),
    (
        f"{CALL}axis=-1",
        r"\1axis=1",
        f"the axis {REDUCTION} is axis 1: the last one is axis=-1",
    ),
    (
        r"\.swapaxes\(-1, -2\)",
        ".T",
        "the swapped axes are not the last two, as in .T, which also swaps batch and heads: "
        "x.swapaxes(-1, -2)",
    ),
)


def slips(source):
    """The pairs (changed text, explanation) for each slip at one or several places."""
    for pattern, wrong, explanation in SLIPS:
        places = list(re.finditer(pattern, source))
        for n_places in range(1, len(places) + 1):
            for chosen in combinations(places, n_places):
                yield _changed(source, chosen, wrong), explanation


def _changed(source, places, wrong):
    for place in reversed(places):
        source = source[: place.start()] + place.expand(wrong) + source[place.end() :]
    return source
