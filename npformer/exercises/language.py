"""Small languages, as stand-ins for a model in the exercises about decoding.

Each function returns another one, from the tokens so far to the numbers of the next token. A
sequence that contains the end token has no next token, so asking for it is an error.
"""

import numpy as np

from npformer.errors import UserError


def table(rows, others, eos=1):
    """The numbers that follow some tuples of tokens, and those that follow all others."""
    return lambda tokens: np.array(rows.get(unfinished(tokens, eos), others))


def random_words(seed, n_words, eos=1):
    """Log-probabilities that are random, but always the same after the same tokens."""

    def log_p(tokens):
        numbers = [token % 97 for token in unfinished(tokens, eos)]
        x = np.random.default_rng([seed, *numbers]).normal(size=n_words)
        return x - np.log(np.exp(x).sum())

    return log_p


def unfinished(tokens, eos):
    """The tokens as a tuple of int, without the end token."""
    tokens = tuple(int(token) for token in tokens)
    if eos in tokens:
        raise UserError(f"the next token after {list(tokens)} was asked for, but {eos} is the end")
    return tokens
