"""The loop of greedy decoding and of sampling, and the errors when there is no token to choose."""

from functools import partial

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.errors import UserError

NOT_FINITE = "the logits are NaN or infinite"
FORBIDDEN = "all logits but those of padding (and of the end token before min_len) are -inf"


def generate(request, params, choose, backend, on_step=None, decoder=None):
    """Generate each row token by token until its end token or its limit; return the tokens (B, T).

    ``choose(logits, rows, t)`` returns token t of these rows, which are not finished. The logits of
    tokens that may not be chosen are -inf: padding, and the end token before ``min_len``.
    ``on_step(rows, tokens)`` is told each step.
    """
    tokens = request.first_tokens
    n_rows = len(tokens)
    check_decoder(decoder, request.model, params)
    if n_rows == 0:
        return np.empty((0, 0), np.int64)
    longest = int(request.limits.max())
    if decoder is None:
        sizes = {"max_rows": n_rows, "max_len": longest}
        decoder = request.model.decoder(params, request.sources, **sizes, backend=backend)
    else:
        decoder.begin(request.sources)

    def choose_possible(logits, part, rows, t):
        rows = rows[part]
        forbid(logits, request, rows, t + 1)
        check_possible(logits, params, t)
        return choose(logits, rows, t)

    columns = []
    rows = parents = np.arange(n_rows)  # of the targets that are not finished
    for t in range(longest):
        tokens = decoder.step(tokens, parents, partial(choose_possible, rows=rows, t=t))
        column = np.full(n_rows, request.filler)
        column[rows] = tokens
        columns.append(column)
        if on_step is not None:
            on_step(rows, tokens)
        goes_on = request.limits[rows] > t + 1
        for end in request.eos_ids:  # a few: np.isin would take longer than the loop
            goes_on &= tokens != end
        parents = np.flatnonzero(goes_on)
        rows = rows[parents]
        tokens = tokens[parents]
        if not len(rows):
            break
    return np.stack(columns, axis=1)


def check_decoder(decoder, model, params):
    """Raise an error if a decoder is given that is not one of this model and these parameters."""
    if decoder is None:
        return
    if not (hasattr(decoder, "begin") and decoder.model is model and decoder.params is params):
        advice = "give model.decoder(params, [], max_rows=1)"
        raise UserError(f"decoder is not of this model and these params: {advice}")


def forbid(logits, request, rows, length):
    """Make the logits of all ids that may not be the last of so many tokens -inf."""
    with np.errstate(invalid="ignore"):
        for token in request.forbidden(length):
            logits[:, token] -= np.inf  # NaN and inf become NaN: ``check_possible`` sees them
    if request.has_forced_end:
        last = np.flatnonzero(request.limits[rows] == length).tolist()
        # log p = 0: the end token is certain, and each other one impossible.
        logits[last] = -np.inf
        logits[last, request.model.forced_eos_id] = 0


def check_possible(logits, params, t):
    """Raise an error if a row has logits that are no numbers, or no token that may be chosen."""
    best = on_host(logits.max(axis=-1))
    if not np.isfinite(best).all():
        raise no_token(FORBIDDEN if (best < np.inf).all() else NOT_FINITE, params, t)


def no_token(why, params, t):
    """Return the error if no token can be chosen after the first t."""
    return UserError(f"token {t + 1} cannot be chosen: {why}; {culprit(params)}")


def culprit(params):
    """Say which parameter holds NaN or inf."""
    bad = tree.not_finite(params)
    if not bad:
        return "no parameter holds NaN or inf"
    first = f"parameter {bad[0]} holds NaN or inf (one of {len(bad)})"
    return f"{first}: expected finite parameters"
