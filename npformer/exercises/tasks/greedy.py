"""Greedy decoding."""

from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task
from npformer.exercises.language import random_words, table


def greedy(next_logits, bos, eos, max_len):
    tokens = [bos]
    while len(tokens) <= max_len:
        tokens.append(int(next_logits(tokens).argmax()))
        if tokens[-1] == eos:
            break
    return tokens[1:]


def expected(next_logits, bos, eos, max_len):
    """By recursion."""

    def rest(tokens, n):
        logits = list(next_logits(tokens))
        best = logits.index(max(logits))
        return [best] if best == eos or n == 1 else [best, *rest([*tokens, best], n - 1)]

    return rest([bos], max_len)


def cases(rng):
    seed = int(rng.integers(1000))
    ends = table({(0,): [0.0, 1.0, 3.0, 2.0], (0, 2): [0.0, 2.0, 1.0, 1.5]}, [0.0, 0.0, 0.0, 0.0])
    goes_on = table({}, [0.0, 1.0, 3.0, 2.0])
    return [
        Case("the end as the second token", ends, 0, 1, 5),
        Case("no end", goes_on, 0, 1, 4),
        Case("the end as the first token", table({}, [0.0, 5.0]), 0, 1, 3),
        Case("at most one token", goes_on, 0, 1, 1),
        Case(
            "other ids of begin and end",
            table({(3,): [2.0, 0.0, 1.0, 0.0]}, [0.0, 1.0, 3.0, 0.0], eos=2),
            3,
            2,
            5,
        ),
        *(Case("random logits", random_words(seed + i, 4), 0, 1, 6) for i in range(3)),
    ]


exercise = Task(
    answer=greedy,
    title="greedy decoding",
    page="model/training-and-decoding",
    task="""
        Generate a sequence token by token. next_logits(tokens) takes the list of all tokens so far, which begins with
        bos, and returns the logits of the next token, (V,). Always take the most probable token; stop after eos, or when
        max_len tokens are generated.

        Return the list of the generated tokens: without bos, with eos if it came.""",
    arguments={
        "next_logits": "function of a list of int",
        "bos": "int",
        "eos": "int",
        "max_len": "int, at least 1",
    },
    results={"tokens": "list of int"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake({"return tokens[1:]": "return tokens"}, explanations.BEGIN_IS_KEPT),
        Mistake(
            {"len(tokens) <= max_len": "len(tokens) < max_len"},
            "one token too few: tokens also holds bos",
        ),
        Mistake({"        if tokens[-1] == eos:\n            break\n": ""}, "it goes on after eos"),
        Mistake(
            {"    return tokens[1:]": "    return [token for token in tokens[1:] if token != eos]"},
            "eos belongs to the result",
        ),
        Mistake({"argmax": "argmin"}, "the least probable token is taken"),
        Mistake(
            {"next_logits(tokens)": "next_logits(tokens[-1:])"},
            "the model gets only the last token: the next one depends on all before it",
        ),
        Mistake(
            {"next_logits(tokens)": "next_logits(tokens[1:] or [bos])"},
            "bos is missing in what the model gets",
        ),
    ),
    hints=(
        "Begin with tokens = [bos], and append next_logits(tokens).argmax() in a loop.",
        "Check for eos after the token is appended, then leave the loop.",
    ),
)
