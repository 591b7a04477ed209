"""The fifth step back through a layer: softmax and scores."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations, one_word
from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def back_5_scores(da, q, k):
    scores = k @ q / np.sqrt(len(q))
    a = np.exp(scores - scores.max())
    a = a / a.sum()
    dscores = a * (da - a @ da) / np.sqrt(len(q))
    return dscores @ k, np.outer(dscores, q)


def cases(rng):
    S, K = sizes(rng, 2, low=2)
    return [
        Case(one_word.SENTENCE, one_word.da, one_word.q, one_word.k),
        Case("another word", draw(rng, S), draw(rng, K), draw(rng, S, K)),
        Case("as many words as numbers", draw(rng, 3), draw(rng, 3), draw(rng, 3, 3)),
    ]


exercise = Task(
    answer=back_5_scores,
    title="one layer back, 5 (step 2 back): softmax and scores",
    page="gradients/residual",
    task="""
        a = softmax(k q / √K): the query q of the word is compared with the key of each word, a row of k. Given da, of back_4,
        return dq and dk.""",
    arguments={"da": "(S,) array", "q": "(K,) array", "k": "(S, K) array"},
    results={"dq": "(K,) array", "dk": "(S, K) array"},
    expected=gradients_of(lambda q, k: reference.softmax(k @ q / np.sqrt(len(q)))),
    cases=cases,
    mistakes=(
        Mistake(
            {"(da - a @ da)": "da"},
            "each weight depends on all scores: Σ a · da is missing in the backward pass of softmax",
        ),
        Mistake(
            {"(da - a @ da)": "da * (1 - a)"},
            "this is the derivative of a weight with respect to its own score: it depends on all scores",
        ),
        Mistake(
            {"a * (da - a @ da)": "(da - a @ da)"},
            "the factor a is missing in the backward pass of softmax",
        ),
        Mistake(
            {"(da - a @ da) / np.sqrt(len(q))": "(da - a @ da)"},
            explanations.NO_FACTOR_IN_DQ_AND_DK,
        ),
        Mistake({"a @ da": "da.mean()"}, "the mean that is subtracted is weighted by a: Σ a · da"),
        Mistake(
            {"np.outer(dscores, q)": "np.outer(q, dscores)"},
            "dk has a row for each word: row j is dscores_j q",
        ),
        Mistake(
            {"dscores @ k": "k @ dscores"},
            "dq is the sum of the keys, each times its dscores_j: dscores k",
        ),
    ),
    hints=(
        "Compute a again; then the gradient of k q / √K is a · (da - Σ a · da).",
        "With g, this gradient divided by √K: dq = g k, and row j of dk is g_j q.",
    ),
)
