"""Small languages, as stand-ins for a model in the exercises about decoding."""

import numpy as np


class Table:
    """A function from the tokens so far to the numbers of the next token, from a table or random.

    Parameters
    ----------
    rows : dict
        The numbers that follow some tuples of tokens.
    else_ : list
        The numbers that follow all other tokens.
    seed, n_words : int
        For numbers that are random, but always the same after the same tokens.
    log : bool
        Return log-probabilities.
    eos : int
        The end token: a sequence that contains it has no next token, so asking for it is an error.
    """

    def __init__(self, rows, else_=None, seed=0, n_words=0, log=False, eos=1):
        self.rows, self.else_, self.seed, self.n_words, self.log, self.eos = rows, else_, seed, n_words, log, eos

    def __call__(self, tokens):
        """The numbers of the next token."""
        tokens = tuple(int(token) for token in tokens)
        if self.eos in tokens:
            raise ValueError(f"the next token after {list(tokens)} was asked for, but {self.eos} is the end")
        if tokens in self.rows:
            numbers = np.array(self.rows[tokens])
        elif self.else_ is not None:
            numbers = np.array(self.else_)
        elif self.n_words:
            numbers = np.random.default_rng([self.seed, *(token % 97 for token in tokens)]).normal(size=self.n_words)
        else:
            numbers = np.zeros(len(next(iter(self.rows.values()))))
        return numbers - np.log(np.exp(numbers).sum()) if self.log else numbers
