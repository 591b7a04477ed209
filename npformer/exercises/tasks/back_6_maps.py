"""The last step back through a layer: the maps to query, keys and values."""

import numpy as np

from npformer.exercises import one_word
from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def back_6_maps(ds, dq, dk, dv, word, W_q, W_k, W_v):
    de = dk @ W_k.T + dv @ W_v.T
    de[word] += ds + dq @ W_q.T
    return de


def expected(ds, dq, dk, dv, word, W_q, W_k, W_v):
    def used(e):
        keys_and_values = (dk * (e @ W_k)).sum() + (dv * (e @ W_v)).sum()
        return np.array([keys_and_values + (ds * e[word]).sum() + (dq * (e[word] @ W_q)).sum()])

    return gradients_of(used)(np.ones(1), np.zeros(dk.shape[:1] + ds.shape))


def cases(rng):
    S, D, K = sizes(rng, 3, low=2)
    gradients = draw(rng, D), draw(rng, K), draw(rng, S, K), draw(rng, S, K)
    random = *gradients, int(rng.integers(S)), *draw(rng, 3, D, K)
    square = draw(rng, 3), draw(rng, 3), draw(rng, 3, 3), draw(rng, 3, 3), 2, *draw(rng, 3, 3, 3)
    gradients = one_word.ds1, one_word.dq, one_word.dk, one_word.dv
    given = *gradients, 1, one_word.W_q, one_word.W_k, one_word.W_v
    return [
        Case(one_word.SENTENCE, *given),
        Case("another sentence", *random),
        Case("square maps", *square),
    ]


exercise = Task(
    answer=back_6_maps,
    title="one layer back, 6 (step 1 back): query, keys and values",
    page="gradients/residual",
    task="""
        q = e[word] W_q, k = e W_k, v = e W_v. Given dq, dk (back_5), dv (back_4) and ds (back_3), the gradient of the sum
        e[word] + z, return de: a row for each word of the sentence. e₂ is used four times, each other word twice.""",
    arguments={
        "ds": "(D,) array",
        "dq": "(K,) array",
        "dk": "(S, K) array",
        "dv": "(S, K) array",
        "word": "int, the index of the word that asks: 1 is e₂",
        "W_q": "(D, K) array",
        "W_k": "(D, K) array",
        "W_v": "(D, K) array",
    },
    results={"de": "(S, D) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {"+= ds + dq": "+= dq"},
            "the residual connection is missing: ds is added to the row of the word that asks",
        ),
        Mistake(
            {"    de[word] += ds + dq @ W_q.T\n": ""},
            "the row of the word that asks also gets ds and what comes through its query",
        ),
        Mistake(
            {"de[word] +=": "de +="},
            "ds and the query belong to the word that asks alone, not to every word",
        ),
        Mistake(
            {"de[word] +=": "de[word] ="},
            "the word that asks has a key and a value too: add to its row",
        ),
        Mistake(
            {"dk @ W_k.T + dv @ W_v.T": "dk @ W_k.T"}, "what comes through the values is missing"
        ),
        Mistake(
            {"dk @ W_k.T + dv @ W_v.T": "dv @ W_v.T"}, "what comes through the keys is missing"
        ),
        Mistake({"W_q.T": "W_q", "W_k.T": "W_k", "W_v.T": "W_v"}, "the weights are not transposed"),
    ),
    hints=(
        "Every word has a key and a value: dk W_kᵀ + dv W_vᵀ has a row for each.",
        "To the row of the word that asks, add ds and dq W_qᵀ.",
    ),
)
