"""The fourth step back through a layer: the weighted sum of the values."""

import numpy as np

from npformer.exercises import one_word
from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def back_4_values(dz, a, v):
    return v @ dz, np.outer(a, dz)


def cases(rng):
    S, D = sizes(rng, 2, low=2)
    return [
        Case(one_word.SENTENCE, one_word.ds1, one_word.a, one_word.v),
        Case("another word", draw(rng, D), draw(rng, S), draw(rng, S, D)),
        Case("as many words as numbers", draw(rng, 3), draw(rng, 3), draw(rng, 3, 3)),
    ]


exercise = Task(
    answer=back_4_values,
    title="one layer back, 4 (step 3 back): the weighted sum",
    page="gradients/residual",
    task="""
        z = a₁ v₁ + … + a_S v_S, the row a of weights times the matrix v. Given dz, which is ds of back_3, return da, a number
        for each word, and dv, a row for each word.""",
    arguments={"dz": "(D,) array", "a": "(S,) array", "v": "(S, D) array"},
    results={"da": "(S,) array", "dv": "(S, D) array"},
    expected=gradients_of(lambda a, v: a @ v),
    cases=cases,
    mistakes=(
        Mistake(
            {"v @ dz": "dz @ v"},
            "da_j is the dot product of dz with the value of word j, the row j of v",
        ),
        Mistake(
            {"np.outer(a, dz)": "np.outer(dz, a)"}, "dv has a row for each word: row j is a_j dz"
        ),
        Mistake(
            {"np.outer(a, dz)": "np.outer(np.ones_like(a), dz)"},
            "the value of word j counts a_j times, so its row is a_j dz",
        ),
        Mistake({"v @ dz": "v.sum(axis=1)"}, "dz is missing in da"),
        Mistake(
            {"v @ dz, np.outer(a, dz)": "np.outer(a, dz), v @ dz"},
            "the results are exchanged: first da, then dv",
        ),
    ),
    hints=(
        "If a_j rises by 1, z rises by v_j, and the loss by the dot product of dz and v_j.",
        "Row j of dv is a_j dz.",
    ),
)
