"""Beam search."""

import numpy as np

from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task
from npformer.exercises.language import random_words, table


def beam_search(next_log_p, bos, eos, max_len, beam_size):
    beam, finished = [([bos], 0.0)], []
    for _ in range(max_len):
        extended = [
            ([*tokens, token], total + log_p)
            for tokens, total in beam
            for token, log_p in enumerate(next_log_p(tokens))
        ]
        extended.sort(key=lambda pair: -pair[1])
        best = extended[:beam_size]
        finished += [pair for pair in best if pair[0][-1] == eos]
        beam = [pair for pair in best if pair[0][-1] != eos]
        if not beam:
            break
    tokens, total = max(finished + beam, key=lambda pair: pair[1])
    return tokens[1:], total


def expected(next_log_p, bos, eos, max_len, beam_size):
    """Sequences as keys of a dict, and a heap of their log-probabilities."""
    alive, done = {(bos,): 0.0}, {}
    for _ in range(max_len):
        longer = {}
        for tokens, total in alive.items():
            for token, log_p in enumerate(next_log_p(tokens)):
                longer[(*tokens, token)] = total + float(log_p)
        in_order = sorted(longer.items(), key=lambda item: item[1], reverse=True)
        kept = dict(in_order[:beam_size])
        alive = {tokens: total for tokens, total in kept.items() if tokens[-1] != eos}
        done |= {tokens: total for tokens, total in kept.items() if tokens[-1] == eos}
    done |= alive
    best = max(done, key=done.__getitem__)
    return list(best[1:]), np.float64(done[best])


def cases(rng):
    seed = int(rng.integers(1000))
    p = np.log
    garden_path = table(
        {
            (0,): p([0.02, 0.03, 0.5, 0.45]),
            (0, 2): p([0.25, 0.27, 0.23, 0.25]),
            (0, 3): p([0.02, 0.9, 0.04, 0.04]),
        },
        p([0.1, 0.7, 0.1, 0.1]),
    )
    return [
        Case("a better sentence that begins with a worse word", garden_path, 0, 1, 4, 2),
        Case("a beam of 1, which is greedy", garden_path, 0, 1, 4, 1),
        Case("the end as the most probable token", table({}, p([0.1, 0.8, 0.1])), 0, 1, 3, 2),
        Case("no end", table({}, p([0.3, 0.1, 0.6])), 0, 1, 3, 1),
        Case("other ids of begin and end", random_words(seed, 5, eos=3), 4, 3, 5, 3),
        *(Case("random words", random_words(seed + i, 4), 0, 1, 4, 2 + i % 3) for i in range(6)),
    ]


exercise = Task(
    answer=beam_search,
    title="beam search",
    page="decoding/beam-search",
    task="""
        Keep the beam_size most probable sequences instead of one. next_log_p(tokens) takes the list of all tokens so far,
        which begins with bos, and returns the log-probabilities of the next token, (V,).

        At each step, extend every sequence of the beam by every token, add the log-probabilities, and keep the beam_size
        best of all these. Those that end with eos are finished and leave the beam; the others are extended in the next
        step. Stop after max_len steps, or when the beam is empty. Of the finished sequences and those that are left in
        the beam, return the most probable one: its tokens (without bos, with eos if it has it) and its log-probability.""",
    arguments={
        "next_log_p": "function of a list of int",
        "bos": "int",
        "eos": "int",
        "max_len": "int, at least 1",
        "beam_size": "int, at least 1",
    },
    results={"tokens": "list of int", "log_probability": "number"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {
                "max(finished + beam, key=lambda pair: pair[1])": "max(finished + beam, key=lambda pair: pair[1] / len(pair[0][1:]))"
            },
            "the sequence with the largest log-probability per token is returned: here the sum decides",
        ),
        Mistake(
            {"total + log_p)": "log_p)"},
            "only the last log-probability counts: add those of all tokens",
        ),
        Mistake(
            {"total + log_p)": "total * log_p)"},
            "log-probabilities of a sequence are added, not multiplied",
        ),
        Mistake({"-pair[1]": "pair[1]"}, "the least probable sequences are kept"),
        Mistake(
            {"max(finished + beam, key=lambda pair: pair[1])": "(finished + beam)[0]"},
            "the sequence that finished first is returned; a later one may be more probable",
        ),
        Mistake(
            {"extended[:beam_size]": "extended[:1]"},
            "only one sequence is kept: this is greedy decoding",
        ),
        Mistake({"return tokens[1:], total": "return tokens, total"}, explanations.BEGIN_IS_KEPT),
        Mistake(
            {"beam = [pair for pair in best if pair[0][-1] != eos]": "beam = best"},
            "finished sequences stay in the beam and are extended after eos",
        ),
        Mistake(
            {"return tokens[1:], total": "return tokens[1:], total / len(tokens[1:])"},
            "the log-probability is divided by the length: here it is the sum",
        ),
    ),
    hints=(
        "Keep pairs (tokens, log-probability) in a list, which begins as [([bos], 0.0)].",
        "One list with all extensions of all sequences, sorted by -log-probability, and its first beam_size entries.",
        "Divide these into those that end with eos, which are finished, and the others, which are the next beam.",
    ),
)
