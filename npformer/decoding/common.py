"""Shared parts of the decoding methods: checks of the arguments, and the loop over the tokens."""

from functools import partial

import numpy as np

from npformer import tree
from npformer.arrays import library_of, on_host
from npformer.checks import check_int
from npformer.operations.options import check_ids, check_option


def check_limits(model, src, bos_id, eos_id, max_len, min_len):
    """Check ids and lengths, and return (bos_id, eos_id, ``max_len`` as an array (B,), min_len)."""
    bos_id, eos_id = check_option("bos_id", bos_id), check_option("eos_id", eos_id)
    for name, token in (("bos_id", bos_id), ("eos_id", eos_id)):
        if not 0 <= token < model.tgt_vocab:
            raise ValueError(f"{name}={token}, expected 0 <= {name} < {model.tgt_vocab}")
        if token == model.pad_id:
            raise ValueError(f"{name}={token} is the padding's id, which is never attended to: expected another id")
    check_ids(src, model.src_vocab, "src")
    if src.ndim != 2:
        raise ValueError(f"src has shape {src.shape}, expected (B, S)")
    min_len = check_option("min_len", min_len)
    if np.ndim(max_len) == 0:
        max_len = check_int("max_len", max_len)
    if isinstance(max_len, np.ndarray):
        library_of(max_len, "max_len")
    limits = np.asarray(max_len)
    if limits.shape not in ((), (len(src),)) or limits.dtype.kind not in "iu":
        raise ValueError(f"max_len has shape {limits.shape}, dtype {limits.dtype}: expected an int, or one per source")
    limits = np.broadcast_to(limits, (len(src),))
    for limit in np.unique(limits if limits.size else np.asarray(max_len)):
        if not 1 <= limit <= model.max_len:
            raise ValueError(f"max_len={limit}, expected 1 <= max_len <= {model.max_len}, the model's")
        if limit < min_len:
            raise ValueError(f"min_len={min_len}, expected at most max_len={limit}")
    return bos_id, eos_id, limits.astype(np.int64), min_len


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


def generate(model, params, src, choose, bos_id, eos_id, limits, min_len, backend):
    """Generate each row token by token until its end token or its limit; return (B, T) tokens, padded after the end.

    ``choose(logits, rows, t)`` returns token t of these rows, which are not finished. The logits of tokens that may not
    be chosen are -inf: padding, and the end token before ``min_len``.
    """
    said = np.full((len(src), max(limits, default=0)), model.pad_id)
    if not len(src):
        return said
    decoder = model.decoder(params, src, max_rows=len(src), max_len=said.shape[1], backend=backend)
    rows = parents = np.arange(len(src))
    tokens = np.full(len(src), bos_id)
    for t in range(said.shape[1]):
        forbidden = [model.pad_id] + [eos_id] * (t + 1 < min_len)
        tokens = decoder.step(tokens, parents, partial(_choose, choose, params, forbidden, rows, t))
        said[rows, t] = tokens
        parents = np.flatnonzero((tokens != eos_id) & (limits[rows] > t + 1))
        rows, tokens = rows[parents], tokens[parents]
        if not len(rows):
            return said[:, : t + 1]
    return said


def _choose(choose, params, forbidden, rows, t, logits, part):
    with np.errstate(invalid="ignore"):
        for token in forbidden:
            logits[:, token] -= np.inf  # NaN and inf become NaN
    best = on_host(logits.max(axis=-1))
    if not np.isfinite(best).all():
        raise no_token(FORBIDDEN if (best < np.inf).all() else NOT_FINITE, params, t)
    return choose(logits, rows[part], t)
