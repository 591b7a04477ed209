"""What all ways of decoding share: the door, the threads, and rows that end one after the other."""

import numpy as np

from npformer.backends import get_backend
from npformer.reference.checks import check_ids, check_int
from npformer.threads import in_parallel, kernel_threads, n_threads

ROWS_WORTH_A_THREAD = 8  # with fewer, the threads of one matrix product are faster than two halves of the batch


def check_limits(model, src, bos_id, eos_id, max_len, min_len):
    """Ids and lengths, or an error; ``max_len`` as an array (B,)."""
    for name, token in (("bos_id", bos_id), ("eos_id", eos_id)):
        check_int(name, token)
        if not 0 <= token < model.tgt_vocab:
            raise ValueError(f"{name}={token}, expected 0 <= {name} < {model.tgt_vocab}")
        if token == model.pad_id:
            raise ValueError(f"{name}={token} is the padding's id: expected another, as padding is never attended to")
    check_ids(src, model.src_vocab, "src")
    if src.ndim != 2:
        raise ValueError(f"src has shape {src.shape}, expected (B, S)")
    check_int("min_len", min_len, at_least=0)
    if np.ndim(max_len) == 0:
        check_int("max_len", max_len)
    limits = np.asarray(max_len)
    if limits.shape not in ((), (len(src),)) or limits.dtype.kind not in "iu":
        raise ValueError(f"max_len has shape {limits.shape}, dtype {limits.dtype}: expected an int, or one a source")
    limits = np.broadcast_to(limits, (len(src),))
    for limit in np.unique(limits if limits.size else np.asarray(max_len)):
        if not 1 <= limit <= model.max_len:
            raise ValueError(f"max_len={limit}, expected 1 <= max_len <= {model.max_len}, the model's")
        if limit < min_len:
            raise ValueError(f"min_len={min_len}, expected at most max_len={limit}")
    return limits


def in_threads(decode, model, params, src, limits, backend, rows_a_source=1):
    """``decode(ops, src, limits, first)`` for parts of the batch, a thread each if there are enough; results joined.

    ``first`` is the number of the part's first row in the batch.
    """
    ops = get_backend(backend, params)
    n_rows = len(src) * rows_a_source
    if not n_rows:
        return []
    if n_rows <= ROWS_WORTH_A_THREAD:
        with kernel_threads():
            return decode(ops, src, limits, 0)
    n = min(n_threads(), n_rows // ROWS_WORTH_A_THREAD, len(src))
    parts = np.array_split(np.arange(len(src)), n)
    results = in_parallel(lambda part: decode(ops, src[part], limits[part], int(part[0])), parts)
    return [result for part in results for result in part]


def forbid(logits, ids):
    """Logits with which some tokens are never chosen."""
    logits[:, ids] = -np.inf
    return logits


def generate(decoder, choose, bos_id, eos_id, limits):
    """Token after token for each row until its end token or its limit; rows that have ended are dropped.

    Parameters
    ----------
    decoder
        With ``step``.
    choose : callable
        ``choose(logits, rows, t)`` -> token t of each row that is still going on.
    limits : (B,) int

    Returns
    -------
    list of lists of int
    """
    said = [[] for _ in limits]
    rows = parents = np.arange(len(limits))
    tokens = np.full(len(rows), bos_id)
    for t in range(max(limits, default=0)):
        tokens = choose(decoder.step(tokens, parents), rows, t)
        for row, token in zip(rows, tokens, strict=True):
            said[row].append(int(token))
        parents = np.flatnonzero((tokens != eos_id) & (limits[rows] > t + 1))
        rows, tokens = rows[parents], tokens[parents]
        if not len(rows):
            break
    return said


def as_array(said, pad_id):
    """Rows of different length as (B, T), padding after their ends."""
    ids = np.full((len(said), max(map(len, said), default=0)), pad_id)
    for row, tokens in zip(ids, said, strict=True):
        row[: len(tokens)] = tokens
    return ids
