"""What decoding is asked for: the checks of its arguments, and the record of right ones."""

from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import library_of
from npformer.checks import check_ids, check_int, check_no_class, check_two_axes
from npformer.errors import UserError
from npformer.operations.options import LARGEST, check_option


class Request(NamedTuple):
    """What is to be decoded, checked: sources or prompts, and where each target begins and ends."""

    model: Any
    sources: Any  # (B, S) int, or the prompts of a language model
    first_tokens: np.ndarray  # (B,): the begin tokens, or the last tokens of the prompts
    eos_ids: tuple[int, ...]
    limits: np.ndarray  # (B,): the largest numbers of tokens
    min_len: int

    @property
    def filler(self):
        """What follows the end token of a row."""
        pad_id = self.model.pad_id
        return pad_id if pad_id is not None else next(iter(self.eos_ids), 0)

    @property
    def has_forced_end(self):
        """Whether the last token of a row that reaches its limit has to be ``forced_eos_id``.

        The probability of that token is then 1.
        """
        return self.model.forced_eos_id is not None

    def forbidden(self, length):
        """The ids that may not be the last of so many tokens."""
        padding = () if self.model.pad_id is None else (self.model.pad_id,)
        return padding + (self.eos_ids if length < self.min_len else ())


def checked_request(model, src, bos_id, eos_id, max_len, min_len, slide=None):
    """The request with these arguments, or an error that names the wrong one.

    ``slide`` is None where there is no such option.
    """
    check_no_class("model", model)
    if hasattr(model, "merged"):
        what = f"model is a {type(model).__name__}, whose adapters have to be merged first"
        raise TypeError(f"{what}: give model.model, and model.merged(params) as its params")
    if not hasattr(model, "decoder"):
        expected = "a LanguageModel, or a model from a source to a target such as a Transformer"
        kind = type(model).__name__
        raise TypeError(f"model is a {kind}, expected {expected}, and then its params")
    is_language_model = hasattr(model, "start")
    if slide and not is_language_model:
        raise UserError(f"slide={slide!r} with a {type(model).__name__}, expected a LanguageModel")
    start = model.start(src, bos_id, slide) if is_language_model else _start(model, src, bos_id)
    sources, first_tokens, room = start
    if eos_id is None and not is_language_model:
        raise UserError("eos_id=None, expected the end token of every target in training")
    eos_ids = _end_tokens(model, eos_id)
    min_len = check_option("min_len", min_len)
    limits = _limits(model, max_len, min_len, room, slide)
    if not slide:
        has_option = is_language_model and slide is not None
        _check_room(model, limits, room, "; slide=True goes on" if has_option else "")
    return Request(model, sources, first_tokens, eos_ids, limits, min_len)


def _start(model, src, bos_id):
    """The checked sources, the begin token of each target, and the room for its tokens."""
    bos_id = _token(model, "bos_id", bos_id)
    check_ids(src, model.src_vocab, "src")
    check_two_axes("src", src, "expected (B, S)")
    return src, np.full(len(src), bos_id), np.full(len(src), model.max_len)


def _end_tokens(model, eos_id):
    if eos_id is None:
        return ()
    tokens = eos_id if isinstance(eos_id, (tuple, list)) else [eos_id]
    return tuple(_token(model, "eos_id", token) for token in tokens)


def _token(model, name, token):
    token = check_option(name, token)
    if not 0 <= token < model.tgt_vocab:
        raise UserError(f"{name}={token}, expected 0 <= {name} < {model.tgt_vocab}")
    if token == model.pad_id:
        why = "is the padding's id, which is never attended to"
        raise UserError(f"{name}={token} {why}: expected another id")
    return token


def _limits(model, max_len, min_len, room, slide):
    """The largest number of tokens of each row (B,); ``max_len`` is one for all or one for each.

    ``room`` (B,) are the numbers of tokens for which each context has room.
    """
    if np.ndim(max_len) == 0:
        limits = np.array(check_int("max_len", max_len), object)  # an int of any size
    else:
        limits = _limit_of_each(max_len, room.shape)
    # Where there are rows, the room of each is checked below.
    has_no_rows = room.size == 0
    for limit in np.unique(limits):
        is_beyond_model = limit > model.max_len and has_no_rows and not slide
        if limit < 1 or is_beyond_model:
            possible = f"1 <= max_len <= {model.max_len}"
            raise UserError(f"max_len={limit}, expected {possible}, the model's")
        if limit > LARGEST:
            raise UserError(f"max_len={limit}, expected at most {LARGEST}")
        if limit < min_len:
            raise UserError(f"min_len={min_len}, expected at most max_len={limit}")
    return np.broadcast_to(limits, room.shape).astype(np.int64)


def _limit_of_each(max_len, shape):
    if isinstance(max_len, np.ndarray):
        library_of(max_len, "max_len")
    limits = np.asarray(max_len)
    if limits.shape != shape or limits.dtype.kind not in "iu":
        form = f"shape {limits.shape}, dtype {limits.dtype}"
        raise UserError(f"max_len has {form}: expected an int, or one per source")
    return limits


def _check_room(model, limits, room, advice):
    """Raise an error, which ends with the advice, if a row may become longer than its context."""
    too_long = np.flatnonzero(limits > room)
    if not too_long.size:
        return
    i = too_long[0]
    n_prompt = model.max_len + 1 - room[i]
    why = "the model's"
    if n_prompt > 1:
        prompt = f"the prompt of {n_prompt} tokens"
        why = f"as the model's max_len={model.max_len} has to hold {prompt}, too"
    raise UserError(f"max_len={limits[i]}, expected 1 <= max_len <= {room[i]}, {why}{advice}")
