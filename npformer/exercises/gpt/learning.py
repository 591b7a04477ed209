"""Exercises 10 to 12: the loss, a step of training, and writing."""

import numpy as np

from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, draw, sizes
from npformer.exercises.gpt.page import model, part, taken
from npformer.exercises.transformer import layers
from npformer.exercises.transformer.forward import LOGITS_OVERFLOW


def loss_cases(rng):
    """Also with large logits, and with a target that is certain to be wrong."""
    B, T, V = sizes(rng, 3, low=2, high=6)
    return [
        Case("one character", np.log([[[0.25, 0.25, 0.5]]]), np.array([[2]])),
        Case("two characters", np.log([[[0.25, 0.75], [0.5, 0.5]]]), np.array([[1, 0]])),
        Case("a batch", draw(rng, B, T, V), rng.integers(0, V, (B, T))),
        Case("large logits", 1000 * draw(rng, B, T, V), rng.integers(0, V, (B, T))),
    ]


LOG_OF_0 = "log(softmax) is log(0) for an improbable character: compute x - log Σ exp(x) without the quotient"
MEAN_OF_LOSS = ".sum() / wanted.sum(), ("
MEAN_OF_GRADIENT = "wanted) / wanted.sum()"

CROSS_ENTROPY = part(
    name="cross_entropy",
    cases=loss_cases,
    mistakes=(
        Mistake(
            {"return -(wanted": "return (wanted"},
            "the loss has the wrong sign: -log p of the right character is positive",
        ),
        Mistake(
            {"(np.exp(log_p) - wanted)": "(wanted - np.exp(log_p))"}, explanations.SIGN_OF_GRADIENT
        ),
        Mistake(
            {MEAN_OF_GRADIENT: "wanted)"},
            "the gradient is not divided by the number of characters: the loss is a mean",
        ),
        Mistake(
            {MEAN_OF_LOSS: ".sum(), ("}, "the loss is the mean over the characters, not the sum"
        ),
        Mistake(
            {MEAN_OF_LOSS: ".sum(), (", MEAN_OF_GRADIENT: "wanted)"},
            "the loss is the mean over the characters, not the sum; so is its gradient",
        ),
        Mistake(
            {MEAN_OF_LOSS: ".mean(), ("},
            "this mean divides by B T V: the number of characters is B T, the size of targets",
        ),
        Mistake(
            {MEAN_OF_LOSS: ".sum() / len(wanted), (", MEAN_OF_GRADIENT: "wanted) / len(wanted)"},
            "loss and gradient are divided by B: there are B T characters",
        ),
        Mistake(
            {MEAN_OF_GRADIENT: "wanted) / len(wanted)"},
            "the gradient is divided by B: there are B T characters",
        ),
        Mistake(
            {MEAN_OF_GRADIENT: "wanted) / wanted.size"},
            "the gradient is divided by B T V: there are B T characters",
        ),
        Mistake(
            {"np.exp(log_p) - wanted": "np.exp(log_p)"},
            "the 1 of the right character is not subtracted: p - wanted",
        ),
        Mistake(
            {"np.exp(log_p) - wanted": "log_p - wanted"}, "p is wanted in the gradient, not log p"
        ),
        Mistake(
            {
                "-(wanted * log_p).sum() / wanted.sum()": "-(wanted * log_p)[:, -1].sum() / len(wanted)"
            },
            "this is the loss of the last position: every position predicts a character, and all count",
        ),
        Mistake(
            {"shifted - np.log(np.exp(shifted)": "shifted - np.log2(np.exp(shifted)"},
            "the natural logarithm is wanted, np.log",
        ),
        Mistake(
            {"-(wanted * log_p)": "-(wanted * np.exp(log_p))"},
            "the logarithm of p is missing in the loss",
        ),
        LOGITS_OVERFLOW,
        Mistake(
            {
                "shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))": "np.log(softmax(logits))"
            },
            LOG_OF_0,
        ),
        Mistake(
            {"(wanted * log_p).sum()": "np.log((wanted * np.exp(log_p)).sum(axis=-1)).sum()"},
            LOG_OF_0,
        ),
        Mistake(
            {
                "shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))": "np.log(softmax(logits) + 1e-9)"
            },
            "a small number in the logarithm hides log(0), and is wrong: compute x - log Σ exp(x) without the quotient",
        ),
    ),
    result_names=("loss", "dlogits"),
    float64_from="np.eye(V) is float64; np.eye(V, dtype=logits.dtype) has the dtype of the logits",
    title="the loss, and its gradient",
    page="gradients/cross-entropy",
    task="""
        logits (B, T, V), targets (B, T): the ids of the right characters -> loss: a number, dlogits (B, T, V).

        wanted is 1 for the right id and 0 for all others. With p = softmax(logits), along the last axis, and N = B T,

            loss = -1/N Σ wanted · log p;  dlogits = (p - wanted) / N

        Logits of 1000 must not overflow, nor give log 0: log p = x - log Σ exp(x), after the maximum is subtracted.""",
    hints=(
        "np.eye(V, dtype=logits.dtype)[targets] has a row with a single 1 for each target.",
        "shifted = logits - logits.max(axis=-1, keepdims=True); the logarithm of the sum of its exp is subtracted.",
        "np.exp(log_p) is p; both results are divided by targets.size.",
    ),
    hint_for={"overflow|log[(]|logarithm|nan": 2, "log p|divide|mean": 3},
)

ADAM_STEP = taken(layers.ADAM_STEP)


class Draws(np.random.Generator):
    """Random numbers that are the same again for each call of a function."""

    def __init__(self, seed):
        super().__init__(np.random.PCG64(seed))
        self.seed = seed

    def __repr__(self):
        return f"np.random.default_rng({self.seed})"

    def fresh(self):
        """The same numbers from the beginning."""
        return Draws(self.seed)


def write_cases(rng):
    """With a text that is shorter than the context, and one that is longer."""

    def case(what, n_read, n_more, temperature, context, vocab=7):
        params = model(rng, 8, vocab=vocab)
        ids = rng.integers(0, vocab, n_read)
        return Case(
            what, params, ids, 2, n_more, Draws(int(rng.integers(1000))), temperature, context
        )

    return [
        case("one character after another", 1, 1, 1.0, 4, vocab=3),
        case("a text that is shorter than the context", 3, 20, 0.8, 64),
        case("a text that is longer than the context", 9, 20, 1.0, 4),
        case("a high temperature", 5, 20, 3.0, 8),
        case("a low temperature", 5, 20, 0.1, 8),
    ]


NEWEST = "logits[0, -1]"
DIVIDED = "softmax(logits[0, -1] / temperature)"
APPEND = "ids = np.append(ids, rng.choice(len(p), p=p))"

WRITE = part(
    name="write",
    cases=write_cases,
    mistakes=(
        Mistake(
            {"/ temperature": "* temperature"},
            "the logits are divided by the temperature, not multiplied",
        ),
        Mistake(
            {" / temperature": ""}, "the temperature is not used: the logits are divided by it"
        ),
        Mistake(
            {DIVIDED: "softmax(logits[0, -1]) / temperature"},
            "the temperature divides the logits, before softmax, not p",
        ),
        Mistake(
            {NEWEST: "logits[0, 0]"},
            "this is what follows the first character: the newest position is the last, -1, of one passage, ids[None, …]",
        ),
        Mistake(
            {"rng.choice(len(p), p=p)": "p.argmax()"},
            "this takes the most probable character: draw one, with rng.choice",
        ),
        Mistake(
            {", p=p": ""},
            "every character is drawn with the same probability: rng.choice needs p=p",
        ),
        Mistake(
            {"ids[None, -context:]": "ids[None]"},
            "the model reads the whole text: it reads the last characters alone, as many as context says",
        ),
        Mistake(
            {"-context:": "-1:"},
            "this is the newest character alone: the model reads those before it, too, as many as context says",
        ),
        Mistake({"-context:": "-context - 1:"}, "this is one character more than context says"),
        Mistake(
            {APPEND: APPEND.replace("append(ids", "append(ids[1:]")},
            "the oldest character is dropped: only what the model reads is cut, not the text",
        ),
        Mistake(
            {"-context:": ":context"},
            "this is the beginning of the text: the model reads its end, ids[-context:]",
        ),
        Mistake(
            {"    return ids": "    return ids[-n_more:]"},
            "the text that was given is missing: the result begins with it",
        ),
        Mistake(
            {"range(n_more)": "range(n_more - len(ids))"},
            "n_more characters are added, however long the given text is",
        ),
        Mistake({"range(n_more)": "range(n_more - 1)"}, "there is one character too few"),
        Mistake(
            {APPEND: "ids = np.append(rng.choice(len(p), p=p), ids)"},
            "a new character is put at the end of the text",
        ),
        Mistake(
            {"ids[None, -context:]": "ids[-context:]"},
            "gpt reads a batch of passages: ids[None, …] is a batch of one",
        ),
    ),
    result_names=("ids",),
    title="draw one character after another",
    page="decoding/sampling",
    task="""
        params and n_heads: those of gpt, ids (T,): a text, n_more: a number, rng: a generator of random numbers,
        temperature: a number above 0, context: how many characters the model reads at most -> ids (T + n_more,).

        n_more times: give the last characters of ids to gpt, as a batch of one passage, at most context of them; take
        the logits of the newest position, divide them by the temperature, and make probabilities p of them with
        softmax; draw an id with rng.choice(len(p), p=p), once; append it to ids.""",
    hints=(
        "gpt returns two results, of which only the logits (1, T, V) are of use here: logits, _ = gpt(…).",
        "ids[-context:] is the end of the text, also if it is shorter; [None] makes a batch of it: ids[None, -context:].",
        "logits[0, -1] are the logits of the newest position; np.append(ids, the new one) makes a new array.",
    ),
    hint_for={"context": 2, "newest": 3, "reads": 2, "put at the end|was given": 3},
)

EXERCISES = (CROSS_ENTROPY, ADAM_STEP, WRITE)
