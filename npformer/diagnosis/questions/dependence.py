"""What an output depends on, found by a change of the input: masks, positions, padding, rows.

Most of it is exact, as what is masked changes no bit.
"""

import numpy as np

from npformer.arrays import on_host
from npformer.diagnosis.finding import LIKELY, sign
from npformer.diagnosis.interface import is_word
from npformer.errors import UserError

N_PLACES = 8  # places in a row at which a token is changed
N_WORDS = 12  # of which there is a row each
ROUNDING = 1e-5  # of the largest output: a smaller change may be one of the order of a sum


# -- of other calls and other rows


def repeatable(subject):
    """Whether an output is finite, and the same again."""
    y = subject.outputs_of_rows
    if not np.array_equal(y, subject.outputs(subject.inputs), equal_nan=True):
        yield sign("not repeatable", "the outputs for one batch differ between two calls")
    elif not np.isfinite(y).all():
        yield sign("not finite", "outputs are NaN or infinite")


def rows(subject):
    """Whether an output is the same with other rows, and in another place among them."""
    if len(subject.inputs[0]) == 1:
        raise UserError("the batch has one row")
    others = [np.concatenate([np.roll(x[1:], 1, axis=1), x[:1]]) for x in subject.inputs]
    y = subject.outputs_of_rows
    change = np.abs(subject.outputs(others)[-1] - y[0]).max()
    # Sums may be rounded otherwise in another place. The outputs of this row alone may all be near
    # 0, so that their rounding is compared with the largest output of all.
    if change > 1e-4 * np.abs(y).max():
        yield sign(
            "rows leak",
            f"the outputs of a row change by {change:.2g} with the other rows, "
            "or its place among them",
        )


# -- of tokens


def tokens(subject):
    """Which outputs depend on a token."""
    for which in ids_of(subject):
        places, change = influence(subject, which, subject.outputs)
        if which == subject.interface.causal:
            yield from tokens_before(subject, places, change)
            continue
        share = change.reshape(len(places), -1).any(axis=1).mean()
        if share < 0.5:
            yield sign(
                "input ignored",
                f"only {share:.0%} of the tokens of batch[{which}] change an output",
            )


def tokens_before(subject, places, change):
    """Whether each output depends on the tokens up to it, and on no later one."""
    # from the token that is changed to the output
    distance = np.arange(change.shape[1]) - places[:, None]
    before = np.where(distance < 0, change, 0)
    if before.any():
        token, output = np.unravel_index(before.argmax(), before.shape)
        yield sign(
            "later tokens leak",
            f"output {output} changes by {before.max():.2g} with the later token {places[token]}",
        )
    elif not change[distance == 0].all():
        yield sign("input ignored", "outputs do not depend on the newest token")
    elif not change[distance > 0].any():
        yield sign(
            "input ignored",
            "outputs do not depend on any token before the newest one; "
            "if the model is meant to see one token, this is no mistake",
            LIKELY,
        )
    elif subject.is_new:  # heads that are trained may look at a few tokens alone
        yield from holes(places, change)


def holes(places, change):
    """Whether some tokens are seen by fewer of the later outputs than others are.

    Heads that are split by a reshape without a transpose see whole parts of a row alone.
    """
    last = [np.flatnonzero(x[: places[-1] + 1])[-1] for x in change]  # the last output that sees it
    reach = last - places
    last_change = change[np.arange(len(places)), last]
    is_abrupt = last_change > 2e-4 * change.max(axis=1)  # else it has faded
    is_short = reach < 0.75 * np.minimum(reach.max(), places[-1] - places)
    numbers = np.flatnonzero(is_abrupt & is_short)
    if len(numbers):
        k = numbers[0]
        yield sign(
            "input ignored",
            f"token {places[k]} changes no output after {last[k]}, "
            f"but another changes {reach.max()} after it, "
            "as if positions and heads were mixed by a reshape without a transpose",
            LIKELY,
        )


def both_sides(subject):
    """Whether what an encoder computes for a token depends on later tokens, as on those before
    it.
    """
    if not hasattr(subject.architecture, "encode") or 0 not in subject.interface.ids:
        return

    def encode(inputs):
        encoded = inputs[:1] if subject.interface.n_inputs > 1 else inputs  # the source alone
        return subject.architecture.encode(subject.full_params, *encoded, backend=subject.ops)

    if getattr(encode(subject.inputs), "shape", ())[:2] != subject.inputs[0].shape:
        return  # a recurrent encoder has other states, too
    places, change = influence(subject, 0, encode)
    distance = np.arange(change.shape[1]) - places[:, None]
    if change[distance > 0].any() and not change[distance < 0].any():
        yield sign(
            "input ignored",
            "what the encoder computes for a token does not depend on later ones, "
            "as with a causal mask",
            LIKELY,
        )


# -- of positions


def positions_or_tokens(subject):
    """Whether a new model sees the tokens, beside positions that may be much larger."""
    if not subject.is_new:
        return
    for which in ids_of(subject):
        of_tokens, of_positions = variances(subject, which)
        ratio = of_tokens**0.5 / max(of_positions**0.5, 1e-30)
        # It is 2 to 25 in new models of 1 to 12 layers; at 0.3, positions have ten times the
        # variance of tokens.
        if ratio < 0.3:
            yield sign(
                "input ignored",
                f"outputs change {ratio:.2g} times as much with the token of batch[{which}] "
                "as with its position, as if positions were much larger than embeddings",
                LIKELY,
            )


def variances(subject, which):
    """The variance of outputs between tokens, and between positions, in rows of one token each."""
    inputs, places = longest_row(subject, which)
    y = outputs_of_one_token(subject, inputs, which, len(places))
    of_tokens = y.var(axis=0).mean()
    if subject.interface.is_by_position_of(which):
        return of_tokens, y.var(axis=1).mean()
    # A mean over equal tokens depends on their number by their positions alone.
    shorter = outputs_of_one_token(subject, inputs, which, 1)
    return of_tokens, ((y - shorter) ** 2).mean() / 2


def outputs_of_one_token(subject, inputs, which, length):
    """The outputs of rows in which one token, another in each row, stands in all places."""
    words = words_of(subject, which)[:N_WORDS, None]
    width = inputs[which].shape[1]
    repeated = [np.repeat(x, len(words), axis=0) for x in inputs]
    for i, x in enumerate(repeated):
        if x.ndim > 1 and x.shape[1] == width:  # such as a mask of the same tokens
            repeated[i] = x[:, :length]
    repeated[which] = np.repeat(words, length, axis=1)
    return subject.outputs(repeated)


def order(subject):
    """Whether the order of tokens matters."""
    if getattr(subject.architecture, "positions", None) == "none":
        raise UserError('positions="none" is a choice, with which an encoder sees no order')
    for which in ids_of(subject):
        inputs, places = longest_row(subject, which)
        ids = inputs[which].copy()
        ids[0, places[:-1]] = ids[0, places[:-1]][::-1]  # all but the last in the other order
        is_other = (ids != inputs[which]).any()
        others = with_input(inputs, which, ids)
        change = difference(subject.outputs, inputs, others, rounding=1e-4)[0]
        if subject.interface.is_by_position_of(which):
            change = change[places[-1]]  # others have other tokens before them
        if len(places) > 2 and is_other and not np.any(change):
            yield sign(
                "no positions", f"tokens of batch[{which}] in the other order give the same output"
            )


# -- of padding


def padding(subject):
    """Whether more padding changes outputs."""
    subject.check_outputs()
    if subject.pad_id is None:
        raise UserError("the model has no pad_id")
    if len(subject.inputs) > len(ids_of(subject)):
        raise UserError("a batch has more than ids, such as a mask that says what is padding")
    y = subject.outputs_of_rows
    real = slice(None)
    if subject.interface.by_position:
        real = is_word(subject.inputs[-1], subject.pad_id)
    for which, ids in enumerate(subject.inputs):
        longer = np.pad(ids, ((0, 0), (0, 3)), constant_values=subject.pad_id)
        padded = subject.outputs(with_input(subject.inputs, which, longer))
        if subject.interface.by_position:
            padded = padded[:, : y.shape[1]]
        change = np.abs(padded - y)[real].max()
        if not change <= 1e-3 * np.abs(y[real]).max():
            yield sign(
                "padding leaks",
                f"outputs change by {change:.2g} with more padding in batch[{which}]",
            )


# -- experiments


def ids_of(subject):
    """The numbers of the inputs that are ids."""
    subject.check_outputs()
    if not subject.interface.ids:
        raise UserError("no input is an array of ids (B, T)")
    return subject.interface.ids


def longest_row(subject, which):
    """The row with most words in an input, as inputs of one row, and where its words are."""
    words = subject.rows.seen(which)
    row = int(words.sum(axis=1).argmax())
    places = np.flatnonzero(words[row])
    if min(len(places), len(words_of(subject, which))) < 2:
        raise UserError(f"batch[{which}] has fewer than two tokens in a row")
    return [x[row : row + 1] for x in subject.inputs], places


def words_of(subject, which):
    """The words that are in the batch."""
    ids = np.unique(subject.batch[which])
    return ids[is_word(ids[:, None], subject.pad_id)[:, 0]]


def with_input(inputs, which, x):
    """The same inputs except for one."""
    return [*inputs[:which], x, *inputs[which + 1 :]]


def with_other_token(subject, inputs, which, place):
    """The same row with another token in one place of an input."""
    ids = inputs[which].copy()
    words = words_of(subject, which)
    others = words[words != ids[0, place]]
    ids[0, place] = np.random.default_rng(place).choice(others)
    return with_input(inputs, which, ids)


def influence(subject, which, compute):
    """Some places (n,) in the longest row, and what changes by them in each result (n, …) of
    ``compute(inputs)``.
    """
    inputs, places = longest_row(subject, which)
    places = np.unique(places[np.linspace(0, len(places) - 1, N_PLACES).astype(int)])
    same = [np.repeat(x, len(places), axis=0) for x in inputs]
    changed = [with_other_token(subject, inputs, which, place) for place in places]
    others = [np.concatenate(arrays) for arrays in zip(*changed, strict=True)]
    return places, difference(compute, same, others)


def difference(compute, inputs, others, rounding=ROUNDING):
    """The largest change of each result, 0 where it is not above rounding."""
    y = on_host(compute(inputs))
    change = np.abs(on_host(compute(others)) - y).max(axis=-1)
    return np.where(change > rounding * np.abs(y).max(), change, 0)
