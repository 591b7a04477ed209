"""The nucleus of a distribution, for sampling."""

import numpy as np

from npformer.exercises.exercise import Case, Mistake, Task


def nucleus(p, top_p):
    order = np.argsort(-p)
    before = np.cumsum(p[order]) - p[order]
    kept = order[before < top_p]
    out = np.zeros(len(p))
    out[kept] = p[kept] / p[kept].sum()
    return out


def expected(p, top_p):
    """Word by word."""
    out, total = np.zeros(len(p)), 0.0
    for word in sorted(range(len(p)), key=lambda word: -p[word]):
        if total < top_p:
            out[word] = p[word]
        total += p[word]
    return out / out.sum()


def cases(rng):
    def random():
        return rng.dirichlet(np.ones(int(rng.integers(2, 9))))

    return [
        Case("four words", np.array([0.1, 0.5, 0.15, 0.25]), 0.7),
        Case("a first word that is enough", np.array([0.0625, 0.9375]), 0.5),
        Case("a sum of exactly top_p", np.array([0.25, 0.125, 0.5, 0.125]), 0.75),
        Case("top_p = 1, which keeps every word", random(), 1.0),
        *(Case("random probabilities", random(), float(rng.uniform(0.1, 0.95))) for _ in range(4)),
    ]


exercise = Task(
    answer=nucleus,
    title="the nucleus, for sampling",
    page="decoding/sampling",
    task="""
        Top-p sampling draws only from the most probable words: the smallest set of words, most probable first, whose
        probabilities sum to at least top_p. Return the distribution that is left: 0 outside of this set, and inside the
        probabilities divided by their sum. All probabilities are different where it matters.""",
    arguments={"p": "(V,) array, which sums to 1", "top_p": "float, 0 < top_p <= 1"},
    results={"nucleus": "(V,) array, which sums to 1"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {
                "order[before < top_p]": "order[p[order] >= top_p]",
                "p[kept] / p[kept].sum()": "p[kept]",
                "return out": "return out / out.sum()",
            },
            "each probability is compared with top_p: it is the sum of the most probable ones that has to reach it",
        ),
        Mistake(
            {" / p[kept].sum()": ""},
            "the probabilities that are left do not sum to 1: divide them by their sum",
        ),
        Mistake(
            {"np.cumsum(p[order]) - p[order]": "np.cumsum(p[order])"},
            "the word with which the sum reaches top_p belongs to the set",
        ),
        Mistake(
            {"before < top_p": "before <= top_p"},
            "where the sum is exactly top_p before a word, that word is not needed: <, not <=",
        ),
        Mistake({"np.argsort(-p)": "np.argsort(p)"}, "the least probable words come first"),
        Mistake(
            {"out[kept] = p[kept]": "out[: len(kept)] = p[kept]"},
            "the result is in the order of the probabilities; each word has to keep its place",
        ),
    ),
    hints=(
        "np.argsort(-p) lists the words, most probable first; np.cumsum sums along this list.",
        "A word belongs to the set if the sum of those before it is below top_p.",
    ),
)
