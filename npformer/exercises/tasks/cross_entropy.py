"""Cross-entropy and its gradient."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw


def cross_entropy(logits, targets):
    n = len(targets)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    loss = -log_p[np.arange(n), targets].mean()
    dlogits = np.exp(log_p)
    dlogits[np.arange(n), targets] -= 1
    return loss, dlogits / n


def cases(rng):
    n, V = (int(size) for size in rng.integers(2, 7, size=2))
    return [
        Case("one word", np.log([[0.25, 0.75]]), np.array([1])),
        Case("two words", draw(rng, 2, 3), np.array([2, 0])),
        Case("as many words as classes", draw(rng, 3, 3), np.array([2, 0, 2])),
        Case("more words", draw(rng, n, V), rng.integers(0, V, size=n)),
        Case("large logits", draw(rng, n, V) * 1000, rng.integers(0, V, size=n)),
        Case("rows of different size", np.array([[0.0, 1.0], [2000.0, 2001.0]]), np.array([0, 1])),
    ]


exercise = Task(
    answer=cross_entropy,
    title="cross-entropy, with its gradient",
    page="gradients/cross-entropy",
    task="""
        The loss is the mean over the n words of -log p(target), where p = softmax(logits) in each row. Return the loss and
        its gradient with respect to the logits. Logits of 1000 must neither overflow nor give log(0).""",
    arguments={"logits": "(n, V) array", "targets": "(n,) array of int"},
    results={"loss": "number", "dlogits": "(n, V) array"},
    expected=reference.cross_entropy,
    cases=cases,
    mistakes=(
        Mistake(
            {
                "log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))": "log_p = np.log(np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True))"
            },
            "exp of a large logit is inf, and inf / inf is NaN: compute log p as x - log Σ exp(x), after subtracting the maximum",
        ),
        Mistake(
            {"[np.arange(n), targets]": "[:, targets]"},
            "[:, targets] takes all targets in every row: [np.arange(n), targets] takes one entry of each row",
        ),
        Mistake(
            {".mean()": ".sum()", "dlogits / n": "dlogits"},
            "this is the sum over the words and its gradient: divide both by n",
        ),
        Mistake(
            {"dlogits / n": "dlogits"},
            "the loss is a mean over the words, so the gradient is divided by their number n",
        ),
        Mistake({".mean()": ".sum()"}, "the loss is the mean over the words, not the sum"),
        Mistake(
            {"loss = -log_p": "loss = log_p"},
            "the sign of the loss is wrong: it is -log p, which is positive",
        ),
        Mistake(
            {"    dlogits[np.arange(n), targets] -= 1\n": ""},
            "the gradient is softmax minus 1 at the target: the 1 is not subtracted",
        ),
        Mistake({"] -= 1": "] += 1"}, "the gradient is softmax minus 1 at the target: 1 is added"),
        Mistake(
            {"loss, dlogits / n": "loss, -dlogits / n"},
            "the gradient has the wrong sign: it is softmax minus 1 at the target",
        ),
        Mistake(
            {"logits - logits.max(axis=-1, keepdims=True)": "logits"},
            "exp overflows: subtract the maximum of each row first",
        ),
        Mistake(
            {
                "log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))": "log_p = np.log(np.exp(shifted) / np.exp(shifted).sum(axis=-1, keepdims=True))"
            },
            explanations.LOG_OF_0,
        ),
    ),
    hints=(
        "log p_i = x_i - log Σ_j exp(x_j): subtract the maximum of the row from x first.",
        "log_p[np.arange(n), targets] picks one entry of each row.",
        "The gradient is (softmax(logits) - one_hot(targets)) / n.",
    ),
)
