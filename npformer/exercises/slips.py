"""Slips that are possible in every function with axes: changes of an answer's text, each with its explanation."""

from itertools import combinations

REDUCTION = "of a sum, mean or maximum"
SLIPS = (
    (
        ", keepdims=True",
        "",
        f"keepdims=True is missing: without it the result {REDUCTION} loses its axis, and no longer fits its rows",
    ),
    ("axis=-1, ", "", f"axis=-1 {REDUCTION} is missing: this is one number of the whole array, not one of each row"),
    ("axis=-1", "axis=0", f"the axis {REDUCTION} is the first one: the numbers of a row lie along the last, axis=-1"),
    ("axis=-1", "axis=1", f"the axis {REDUCTION} is axis 1, which is the last only if there are two: axis=-1"),
    (
        ".swapaxes(-1, -2)",
        ".T",
        ".T reverses all axes, also those of batch and heads: x.swapaxes(-1, -2) swaps the last two",
    ),
)


def slips(source):
    """The pairs (changed text, explanation) for each slip at one or several places."""
    for right, wrong, explanation in SLIPS:
        parts = source.split(right)
        places = range(1, len(parts))
        for n_places in places:
            for chosen in combinations(places, n_places):
                text = parts[0] + "".join((wrong if place in chosen else right) + parts[place] for place in places)
                yield text, explanation
