"""Shared parts of the decoding methods: checks of the arguments, and the loop over the tokens."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from npformer import tree
from npformer.arrays import library_of, on_host
from npformer.checks import check_ids, check_int
from npformer.operations.options import LARGEST, check_option


class Request(NamedTuple):
    """What is to be decoded, checked: the sources or prompts, and where each target begins and ends."""

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

    def forbidden(self, length):
        """The ids that may not be the last of so many tokens."""
        padding = () if self.model.pad_id is None else (self.model.pad_id,)
        return padding + (self.eos_ids if length < self.min_len else ())


def forced(request, length):
    """(B,) bool: the rows of which token number ``length`` has to be ``forced_eos_id``, whose probability is then 1."""
    if request.model.forced_eos_id is None:
        return np.zeros(len(request.limits), bool)
    return request.limits == length


def checked(model, src, bos_id, eos_id, max_len, min_len, slide=None):
    """Check what decoding is given, and return it as a ``Request``. ``slide`` is None where there is no such option."""
    if not hasattr(model, "decoder"):
        wanted = "a LanguageModel, or a model from a source to a target such as a Transformer"
        raise TypeError(f"model is a {type(model).__name__}, expected {wanted}, and then its params")
    is_language_model = hasattr(model, "start")
    if slide and not is_language_model:
        raise ValueError(f"slide={slide!r} with a {type(model).__name__}, expected a LanguageModel")
    sources, first_tokens, room = model.start(src, bos_id, slide) if is_language_model else _start(model, src, bos_id)
    if eos_id is None and not is_language_model:
        raise ValueError("eos_id=None, expected the end token of every target in training")
    several = eos_id if isinstance(eos_id, (tuple, list)) else [] if eos_id is None else [eos_id]
    eos_ids = tuple(_token(model, "eos_id", token) for token in several)
    min_len = check_option("min_len", min_len)
    if np.ndim(max_len) == 0:
        limits = np.array(check_int("max_len", max_len), object)  # an int of any size
    else:
        if isinstance(max_len, np.ndarray):
            library_of(max_len, "max_len")
        limits = np.asarray(max_len)
        if limits.shape != room.shape or limits.dtype.kind not in "iu":
            found = f"shape {limits.shape}, dtype {limits.dtype}"
            raise ValueError(f"max_len has {found}: expected an int, or one per source")
    limits = np.broadcast_to(limits, room.shape)
    for limit in np.unique(limits if limits.size else np.asarray(max_len)):
        if limit < 1 or (limit > model.max_len and not (limits.size or slide)):
            raise ValueError(f"max_len={limit}, expected 1 <= max_len <= {model.max_len}, the model's")
        if limit > LARGEST:
            raise ValueError(f"max_len={limit}, expected at most {LARGEST}")
        if limit < min_len:
            raise ValueError(f"min_len={min_len}, expected at most max_len={limit}")
    if (limits > room).any() and not slide:
        i = int((limits > room).argmax())
        n = model.max_len + 1 - room[i]
        why = "the model's"
        if n > 1:
            why = f"as the model's max_len={model.max_len} has to hold the prompt of {n} tokens, too"
        if slide is not None and is_language_model:
            why += "; slide=True goes on"
        raise ValueError(f"max_len={limits[i]}, expected 1 <= max_len <= {room[i]}, {why}")
    return Request(model, sources, first_tokens, eos_ids, limits.astype(np.int64), min_len)


def _start(model, src, bos_id):
    """The checked sources of an encoder and decoder, the begin token of each target, and the room for its tokens."""
    bos_id = _token(model, "bos_id", bos_id)
    check_ids(src, model.src_vocab, "src")
    if src.ndim != 2:
        raise ValueError(f"src has shape {src.shape}, expected (B, S)")
    return src, np.full(len(src), bos_id), np.full(len(src), model.max_len)


def _token(model, name, token):
    token = check_option(name, token)
    if not 0 <= token < model.tgt_vocab:
        raise ValueError(f"{name}={token}, expected 0 <= {name} < {model.tgt_vocab}")
    if token == model.pad_id:
        raise ValueError(f"{name}={token} is the padding's id, which is never attended to: expected another id")
    return token


NOT_FINITE = "the logits are NaN or infinite"
FORBIDDEN = "all logits but those of padding (and of the end token before min_len) are -inf"


def no_token(why, params, t):
    """Return the error if no token can be chosen after the first t."""
    return ValueError(f"token {t + 1} cannot be chosen: {why}; {culprit(params)}")


def culprit(params):
    """Say which parameter holds NaN or inf."""
    if bad := tree.not_finite(params):
        return f"parameter {bad[0]} holds NaN or inf (one of {len(bad)}): expected finite parameters"
    return "no parameter holds NaN or inf"


def generate(request, params, choose, backend, on_step=None, decoder=None):
    """Generate each row token by token until its end token or its limit; return (B, T) tokens, and what fills rows up.

    ``choose(logits, rows, t)`` returns token t of these rows, which are not finished. The logits of tokens that may not
    be chosen are -inf: padding, and the end token before ``min_len``. ``on_step(rows, tokens)`` is told each step.
    """
    model, tokens = request.model, request.first_tokens
    if decoder is not None and not (hasattr(decoder, "begin") and decoder.model is model and decoder.params is params):
        raise ValueError("decoder is not of this model and these params: give model.decoder(params, [], max_rows=1)")
    n_rows = len(tokens)
    if n_rows == 0:
        return np.empty((0, 0), np.int64)
    longest = int(request.limits.max())
    if decoder is None:
        decoder = model.decoder(params, request.sources, max_rows=n_rows, max_len=longest, backend=backend)
    else:
        decoder.begin(request.sources)
    said = []
    rows = parents = np.arange(n_rows)
    for t in range(longest):
        tokens = decoder.step(tokens, parents, partial(_choose, choose, params, request, rows, t))
        said.append(np.full(n_rows, request.filler))
        said[t][rows] = tokens
        if on_step is not None:
            on_step(rows, tokens)
        goes_on = request.limits[rows] > t + 1
        for end in request.eos_ids:
            goes_on &= tokens != end
        parents = np.flatnonzero(goes_on)
        rows, tokens = rows[parents], tokens[parents]
        if not len(rows):
            break
    return np.stack(said, axis=1)


def _choose(choose, params, request, rows, t, logits, part):
    with np.errstate(invalid="ignore"):
        for token in request.forbidden(t + 1):
            logits[:, token] -= np.inf  # NaN and inf become NaN
    if last := np.flatnonzero(forced(request, t + 1)[rows[part]]).tolist():
        logits[last] = -np.inf
        logits[last, request.model.forced_eos_id] = 0
    best = on_host(logits.max(axis=-1))
    if not np.isfinite(best).all():
        raise no_token(FORBIDDEN if (best < np.inf).all() else NOT_FINITE, params, t)
    return choose(logits, rows[part], t)
