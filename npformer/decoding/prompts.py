"""The beginnings of texts that a language model continues, which may have different lengths."""

from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import Array, on_host
from npformer.checks import check_flag, check_ids, check_two_axes
from npformer.errors import UserError


class Prompts(NamedTuple):
    """Prompts side by side.

    Attributes
    ----------
    ids : (B, T) int
        Anything after the end of a prompt.
    lengths : (B,) int
    slide : bool
        Whether a text goes on when its context is full, as ``greedy_decode`` says.

    Examples
    --------
    >>> from npformer import LanguageModel
    >>> model = LanguageModel(vocab=11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> Prompts.of([[5, 6, 7], [3, 4]], model)
    Prompts(ids=array([[5, 6, 7],
           [3, 4, 0]]), lengths=array([3, 2]), slide=False)
    """

    ids: Array
    lengths: Array
    slide: bool = False

    @classmethod
    def of(cls, prompts: Any, model: Any, slide: bool | None = None) -> "Prompts":
        """The prompts of an array (B, T) with padding at the end of rows, or of a list of ids.

        With ``slide`` they may be longer than the context. It is None where there is no such
        option.
        """
        if isinstance(prompts, cls):
            return prompts
        if slide is not None:
            slide = check_flag("slide", slide)
        is_list = isinstance(prompts, (list, tuple))
        for text in prompts if is_list else [prompts]:
            if isinstance(text, str):
                raise TypeError(
                    f"prompts has the text {text!r:.40}, expected token ids: encode it first"
                )
        if is_list:
            ids, lengths = _in_list(prompts, model)
        else:
            ids, lengths = _in_array(prompts, model)
        _check_lengths(lengths, model, slide)
        return cls(ids, lengths, bool(slide))

    def latest(self, n: int) -> "Prompts":
        """The last n tokens of each prompt, all of those that have no more."""
        first = np.maximum(self.lengths - n, 0)
        if not first.any():
            return self
        columns = np.minimum(first[:, None] + np.arange(n), self.ids.shape[1] - 1)
        ids = np.take_along_axis(self.ids, columns, axis=1)
        return self._replace(ids=ids, lengths=self.lengths - first)

    @property
    def last_tokens(self) -> Array:
        """The last token of each prompt (B,)."""
        return self.ids[np.arange(len(self.ids)), self.lengths - 1]


def _check_lengths(lengths, model, slide):
    """Check that no prompt is empty, and, unless texts slide, that the context holds each."""
    for i, n in enumerate(lengths):
        if n == 0:
            advice = "begin it with a token that begins texts"
            raise UserError(f"prompt {i} is empty, expected one or more tokens: {advice}")
        if n > model.max_len and not slide:
            limit = f"at most max_len={model.max_len} of the model"
            limit += f": give its last {model.max_len}"
            if slide is not None:
                limit += ", or slide=True"
            raise UserError(f"prompt {i} has {n} tokens, expected {limit}")


def _in_list(texts, model):
    """The ids of a list of prompts side by side (B, T), and their lengths."""
    rows = [np.asarray(text) if np.size(text) else np.zeros(0, int) for text in texts]
    lengths = np.array([row.size for row in rows], int)
    ids = np.zeros((len(rows), max(lengths, default=0)), int)
    for i, row in enumerate(rows):
        if row.ndim != 1:
            raise UserError(f"prompt {i} has shape {row.shape}, expected a sequence of token ids")
        check_ids(row, model.vocab, f"prompts[{i}]")
        if (row == model.pad_id).any():
            padding = f"padding, id {model.pad_id}"
            raise UserError(f"prompts[{i}] has {padding}, expected none in a list of prompts")
        ids[i, : len(row)] = row
    return ids, lengths


def _in_array(ids, model):
    """The ids of an array of prompts (B, T), and their lengths without padding."""
    check_ids(ids, model.vocab, "prompts")
    check_two_axes("prompts", ids, "expected (B, T), or a list of sequences of ids")
    ids = on_host(ids)
    is_word = np.ones(ids.shape, bool) if model.pad_id is None else ids != model.pad_id
    if (is_word[:, 1:] > is_word[:, :-1]).any():
        raise UserError(
            "prompts has padding before a token, expected it after the last one of each row"
        )
    return ids, is_word.sum(axis=1)
