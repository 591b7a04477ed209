"""A look-up that averages."""

import numpy as np

from npformer import reference
from npformer.exercises.exercise import Case, Mistake, Task, draw


def soft_lookup(similarities, values):
    return similarities @ values / similarities.sum()


def cases(rng):
    n, Kv = (int(size) for size in rng.integers(2, 7, size=2))
    return [
        Case("three keys", np.array([0.1, 0.9, 0.7]), np.array([9.0, 2.0, 3.0])),
        Case("one key that is the same", np.array([0.0, 1.0, 0.0]), np.array([9.0, 2.0, 3.0])),
        Case("other numbers", rng.random(n), draw(rng, n)),
        Case("values that are vectors", rng.random(n), draw(rng, n, Kv)),
    ]


def expected(similarities, values):
    column = values.reshape(len(values), -1)
    found = reference.soft_lookup(
        np.ones((1, 1)), np.ones((len(values), 1)), column, lambda *_: similarities[None]
    )
    return found.reshape(values.shape[1:])


exercise = Task(
    answer=soft_lookup,
    title="a look-up that averages: 2.824 from 9, 2 and 3",
    page="attention/soft-dictionary",
    task="""
        A dictionary returns the value of the one key that equals the query. A soft dictionary returns the average of all
        values, weighted by how similar their keys are to the query:

            Σ_s similarity_s · value_s / Σ_s similarity_s

        Similarities 0.1, 0.9 and 0.7 with the values 9, 2 and 3 give 4.8 / 1.7 = 2.824. A value may also be a vector.""",
    arguments={"similarities": "(S,) array, not negative", "values": "(S,) or (S, Kv) array"},
    results={"value": "number or (Kv,) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {
                "return similarities @": "similarities = np.exp(similarities)\n    return similarities @"
            },
            "here no exponential is taken: the similarities are the weights before the division",
        ),
        Mistake(
            {" / similarities.sum()": ""}, "the division by the sum of the similarities is missing"
        ),
        Mistake(
            {" / similarities.sum()": " / len(similarities)"},
            "the sum is divided by the number of keys, not by the sum of their similarities",
        ),
        Mistake(
            {"similarities @ values / similarities.sum()": "values[similarities.argmax()]"},
            "this is the value of the most similar key alone: all values count",
        ),
        Mistake(
            {"similarities @ values": "(similarities * values).sum(axis=0)"},
            "with vectors as values, the similarities need an axis more: similarities[:, None], or @",
        ),
    ),
    hints=(
        "similarities @ values is Σ_s similarity_s · value_s, for numbers and for vectors.",
        "Divide by similarities.sum().",
    ),
)
