"""Cross-entropy with label smoothing and padding."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw
from npformer.reference import log_softmax


def smoothed_cross_entropy(logits, targets, smoothing, pad_id):
    V = logits.shape[-1]
    counts = targets != pad_id
    wanted = (1 - smoothing) * np.eye(V)[targets] + smoothing / V
    wanted = np.where(counts[:, None], wanted, 0)
    log_p = log_softmax(logits)
    loss = -(wanted * log_p).sum() / counts.sum()
    dlogits = np.where(counts[:, None], np.exp(log_p) - wanted, 0) / counts.sum()
    return loss, dlogits


def cases(rng):
    n, V = (int(size) for size in rng.integers(2, 7, size=2))
    targets = rng.integers(0, V, size=n)
    targets[0] = 1
    return [
        Case("one word", np.log([[0.25, 0.75]]), np.array([1]), 0.2, 0),
        Case("no smoothing", draw(rng, 3, 4), np.array([1, 2, 3]), 0.0, 0),
        Case("two words", draw(rng, 2, 3), np.array([1, 2]), 0.3, 0),
        Case("padding", draw(rng, 4, 5), np.array([1, 0, 3, 0]), 0.1, 0),
        Case("another padding", draw(rng, n, V), targets, 0.25, 0 if V < 3 else 2),
    ]


def expected(logits, targets, smoothing, pad_id):
    return reference.cross_entropy(logits, targets, label_smoothing=smoothing, ignore_id=pad_id)


exercise = Task(
    answer=smoothed_cross_entropy,
    title="label smoothing, without the padding",
    page="training/loss",
    task="""
        Cross-entropy with the target distribution q instead of a single target:

            loss = mean over the words of -Σ_v q_v log p_v,   p = softmax(logits)
            q    = smoothing / V for each word v, and 1 - smoothing more at the target

        Words whose target is pad_id do not count: not in the sum, not in the number by which the mean divides, and their
        gradient is 0. At least one word counts. Return the loss and its gradient. You may use log_softmax of npformer.""",
    arguments={
        "logits": "(n, V) array",
        "targets": "(n,) array of int",
        "smoothing": "float, 0 to 1",
        "pad_id": "int",
    },
    results={"loss": "number", "dlogits": "(n, V) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {
                "(1 - smoothing) * np.eye(V)[targets] + smoothing / V": "np.where(np.eye(V)[targets] == 1, 1 - smoothing, smoothing / V)"
            },
            "the target gets smoothing / V too, like every word: 1 - smoothing is added to it",
        ),
        Mistake(
            {"counts.sum()": "len(targets)"}, "the mean divides by all words, also by the padding"
        ),
        Mistake(
            {"counts = targets != pad_id": "counts = np.ones(len(targets), bool)"},
            explanations.PADDING_COUNTS,
        ),
        Mistake({"counts = targets != pad_id": "counts = targets != 0"}, explanations.PADDING_IS_0),
        Mistake(
            {
                "np.eye(V)[targets] + smoothing / V": "np.eye(V)[targets] + smoothing / (V - 1) * (1 - np.eye(V)[targets])"
            },
            "smoothing is spread over the other V - 1 words; here it is spread over all V, the target too",
        ),
        Mistake(
            {"smoothing / V": "smoothing"},
            "smoothing is divided among the V words: the distribution has to sum to 1",
        ),
        Mistake(
            {" + smoothing / V": ""},
            "the target gets less, but the other words get nothing: add smoothing / V to each",
        ),
        Mistake(
            {"(1 - smoothing) * np": "np"},
            "the target keeps the weight 1: multiply it by 1 - smoothing",
        ),
        Mistake(
            {"np.where(counts[:, None], np.exp(log_p) - wanted, 0)": "(np.exp(log_p) - wanted)"},
            "the gradient of the padding is not 0",
        ),
        Mistake(
            {"np.exp(log_p) - wanted": "wanted - np.exp(log_p)"},
            "the gradient has the wrong sign: it is softmax - q",
        ),
    ),
    hints=(
        "np.eye(V)[targets] is 1 at the target of each row and 0 elsewhere.",
        "q = (1 - smoothing) · one_hot + smoothing / V; the gradient is (p - q) / n, as without smoothing.",
        "counts = targets != pad_id; n is counts.sum(), and rows that do not count become 0 with np.where.",
    ),
    needs=("from npformer import log_softmax",),
)
