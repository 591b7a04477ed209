"""The backward pass of the embedding."""

import numpy as np

from npformer.exercises.exercise import Case, Mistake, Task, draw, sizes


def embedding_backward(dy, ids, n_words):
    dtable = np.zeros((n_words, dy.shape[-1]))
    np.add.at(dtable, ids, dy)
    return dtable


def expected(dy, ids, n_words):
    """A product with the one-hot matrix of the ids."""
    one_hot = np.arange(n_words)[:, None] == ids.reshape(-1)
    return one_hot.astype(float) @ dy.reshape(-1, dy.shape[-1])


def cases(rng):
    B, T, D = sizes(rng, 3)
    return [
        Case(
            "every id once",
            np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]),
            np.array([2, 0, 1]),
            3,
        ),
        Case(
            "an id twice", np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]), np.array([2, 0, 2]), 3
        ),
        Case("ids that do not occur", draw(rng, 2, 3), np.array([1, 1]), 5),
        Case("a batch", draw(rng, B, T, D), rng.integers(0, 4, size=(B, T)), 6),
    ]


exercise = Task(
    answer=embedding_backward,
    title="the backward pass of the embedding",
    page="gradients/embedding",
    task="""
        y = table[ids] looks up a row for each id. Given dy and the ids, return the gradient of the table, which has
        n_words rows: a row that is used several times gets the sum of its gradients, one that is not used gets 0.""",
    arguments={
        "dy": "(..., D) array",
        "ids": "(...) array of int",
        "n_words": "int, the number of rows of the table",
    },
    results={"dtable": "(n_words, D) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {"np.add.at(dtable, ids, dy)": "np.add.at(dtable, ids, 1.0)"},
            "the ids are counted: add dy of each position",
        ),
        Mistake(
            {"np.add.at(dtable, ids, dy)": "dtable[ids] += dy"},
            "of a repeated id only the last gradient is kept: dtable[ids] += dy reads every row before it writes; np.add.at",
        ),
        Mistake(
            {"np.zeros((n_words,": "np.zeros((ids.max() + 1,"},
            "the table has n_words rows, also where no id is that large",
        ),
        Mistake(
            {
                "return dtable": "return dtable / np.maximum(np.bincount(ids.ravel(), minlength=n_words), 1)[:, None]"
            },
            "the gradients of a repeated id are averaged; they are added",
        ),
    ),
    hints=(
        "Begin with zeros of shape (n_words, D), and add each dy[position] to the row ids[position].",
        "Fancy indexing with += adds only once for a repeated index; np.add.at(array, index, values) adds each time.",
    ),
)
