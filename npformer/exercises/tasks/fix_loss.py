"""Find the bug: a loss that counts the padding."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw


def fix_loss(logits, targets, pad_id):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    chosen = log_p[np.arange(len(targets)), targets]
    counts = targets != pad_id
    return -chosen[counts].mean()


GIVEN = """
def fix_loss(logits, targets, pad_id):
    p = np.exp(logits) / np.exp(logits).sum()
    chosen = np.log(p[np.arange(len(targets)), targets])
    return -np.where(targets == pad_id, 0, chosen).mean()
"""


def expected(logits, targets, pad_id):
    return reference.cross_entropy(logits, targets, ignore_id=pad_id)[0]


def cases(rng):
    n, V = (int(size) for size in rng.integers(3, 7, size=2))
    targets = rng.integers(0, V, size=n)
    targets[0] = 1
    return [
        Case("one word", np.log([[0.25, 0.75]]), np.array([1]), 0),
        Case("three words", draw(rng, 3, 4), np.array([1, 3, 2]), 0),
        Case("three words and padding", draw(rng, 5, 4), np.array([1, 3, 2, 0, 0]), 0),
        Case("another padding", draw(rng, n, V), targets, 2),
        Case("large logits", 1000 * draw(rng, n, V), targets, 0),
        Case(
            "rows of different size", np.array([[0.0, 1.0], [2000.0, 2001.0]]), np.array([0, 0]), 1
        ),
    ]


exercise = Task(
    answer=fix_loss,
    title="find the bug: a loss that falls with the padding",
    page="gradients/cross-entropy",
    task="""
        The loss is the mean of -log p(target) over the words that are not padding, with p = softmax(logits) in each row.
        Three things are wrong: one in the softmax, one with large logits, and one in the mean. At least one word counts.""",
    arguments={"logits": "(n, V) array", "targets": "(n,) array of int", "pad_id": "int"},
    results={"loss": "number"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {"np.exp(shifted).sum(axis=-1, keepdims=True)": "np.exp(shifted).sum()"},
            "the sum of the softmax is taken over all rows: each row has its own",
        ),
        Mistake(
            {"logits - logits.max(axis=-1, keepdims=True)": "logits"},
            "exp of a large logit is inf: subtract the maximum of each row first",
        ),
        Mistake(
            {
                "log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))": "log_p = np.log(np.exp(shifted) / np.exp(shifted).sum(axis=-1, keepdims=True))"
            },
            "log(softmax) is log(0) for an improbable word: x - log Σ exp(x) needs no quotient",
        ),
        Mistake(
            {"chosen[counts].mean()": "np.where(counts, chosen, 0).mean()"},
            "the mean divides by all words: divide by the number of those that count",
        ),
        Mistake({"chosen[counts].mean()": "chosen.mean()"}, explanations.PADDING_COUNTS),
        Mistake({"chosen[counts].mean()": "chosen[counts].sum()"}, "this is the sum, not the mean"),
    ),
    hints=(
        "Do the probabilities of each row sum to 1?",
        "A batch with more padding should have the same loss.",
        "log p = x - log Σ exp(x), with the maximum of the row subtracted from x.",
    ),
    given=GIVEN,
)
