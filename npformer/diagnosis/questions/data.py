"""The batch by itself: its numbers, answers, copies, padding, special tokens and shift."""

import numpy as np

from npformer.diagnosis.finding import sign
from npformer.diagnosis.interface import is_word, shares_by_shift

FEW = 16  # answers, which may be equal by chance if there are fewer


def numbers(subject):
    """Whether numbers are finite, and near 0 ± 1."""
    rows = subject.all_rows
    parts = {"the input": rows.inputs[0][rows.seen()], "the targets": rows.targets[rows.counted]}
    far = []
    for name, x in parts.items():
        mean = float(x.mean()) if x.size else 0.0
        deviation = float(x.std()) if x.size else 0.0
        if not np.isfinite(mean):
            n = (~np.isfinite(x)).sum()
            yield sign("not finite", f"{name}: {n} of {x.size} numbers are NaN or infinite")
        elif x.dtype.kind == "f" and (deviation > 30 or abs(mean) > 10 * max(1, deviation)):
            far.append(f"{name}: mean {mean:.3g}, standard deviation {deviation:.3g}")
    if far:
        yield sign("scale of the data", "; ".join(far))


def answers(subject):
    """Whether targets differ, and have to be computed."""
    rows = subject.all_rows
    message = why_nothing_to_learn(subject)
    if message:
        yield sign("nothing to learn", message)
    if getattr(subject.architecture, "task", None) == "words":
        yield from words_in_the_input(rows)
    if rows.inputs[0].dtype.kind == "f" and not subject.interface.by_position:
        yield from numbers_in_the_input(rows)


def why_nothing_to_learn(subject):
    """A message if one answer is right for all inputs, or if there is none."""
    rows = subject.all_rows
    counted = rows.targets[rows.counted]
    if len(counted) >= FEW and (counted == counted[:1]).all():
        return f"the targets that count are all {counted[:1]}"
    if not len(counted):
        return "no target counts"
    if rows.inputs[0].ndim > 1 and (~rows.seen()).all(axis=1).mean() > 0.5:
        return "more than half of the rows of the input are nothing but padding"
    if subject.interface.causal is not None and subject.interface.n_answers > 9:
        counts = np.bincount(counted)
        if counts.max() > 0.6 * counted.size:
            return f"{counts.max() / counted.size:.0%} of the targets are {counts.argmax()}"
    return None


def words_in_the_input(rows):
    """Whether words that are to be predicted stand in their places in the input."""
    ids = rows.inputs[0]
    if ids.shape != rows.targets.shape:
        return
    share = (ids == rows.targets)[rows.counted].mean()
    if share > 0.5:  # BERT leaves a tenth of the words to be predicted as they are
        yield sign(
            "answers in the input",
            f"{share:.0%} of the words to be predicted are in their places in the input",
        )


def numbers_in_the_input(rows):
    """Whether what is to be predicted is one of the numbers of the input."""
    n = len(rows.targets)
    x = rows.inputs[0].reshape(len(rows.inputs[0]), -1)
    for answer in rows.targets.reshape(n, -1).T:
        if len(np.unique(answer)) > 7 and (x == answer[:, None]).all(axis=0).any():
            yield sign(
                "answers in the input",
                "a number of each row of the input is what is to be predicted for this row",
            )
            return


def copies(subject):
    """Whether rows are copies of others."""
    first = subject.batch[0]
    n = len(first)
    arrays = [x for x in subject.batch if len(x) == n]
    n_different = len({b"".join(x[i].tobytes() for x in arrays) for i in range(n)})
    # As many rows as there are, drawn with replacement, leave 63% of them: fewer than half are not
    # drawn so.
    if n < 8 or n_different > n / 2:
        return
    if first.dtype.kind in "iu":
        n_possible = len(np.unique(first)) ** int(np.prod(first.shape[1:]))
        if n_possible <= 4 * n:
            return  # there are not many more rows, as in a table of truth
    yield sign("copied rows", f"only {n_different} of the {n} rows are different")


def padding(subject):
    """Where padding is, and whether the model knows it."""
    pad_id = subject.pad_id
    if pad_id is not None and pad_id in (subject.decoding.bos_id, subject.decoding.eos_id):
        yield sign("padding inside", f"pad_id={pad_id} is bos_id or eos_id, too")
    x = subject.all_rows.inputs[0]
    mask = subject.all_rows.seen()
    if x.ndim > 2 and not mask.all() and np.ptp(x[mask]) == 0 < np.ptp(x[~mask]):
        yield sign(
            "padding inside",
            "the mask, True for what is seen, hides all numbers of the input that differ",
        )
    for which in subject.interface.ids:
        words = is_word(subject.batch[which], pad_id)
        inside = (words[:, 1:] & ~words[:, :-1]).any(axis=1).mean()
        if inside:
            yield sign(
                "padding inside",
                f"in {inside:.0%} of rows of batch[{which}], pad_id={pad_id} is before a word",
            )
        yield from unknown_padding(subject, which)


def unknown_padding(subject, which):
    """Whether many rows end with several of the same id, and this is no padding for the model."""
    ids = subject.batch[which]
    filler = np.bincount(ids[:, -1]).argmax()
    if filler == subject.pad_id or ids.shape[1] < 4:
        return
    kind = "targets" if which == subject.interface.causal else "tokens"
    if kind == "tokens" and not hasattr(subject.architecture, "pad_id"):
        return  # it may know the padding of its input all the same
    is_filler = ids == filler
    lengths = np.cumprod(is_filler[:, ::-1], axis=1).sum(axis=1)  # of the filler at the end
    is_at_the_ends = lengths.sum() > 0.7 * is_filler.sum()
    often = (lengths > 1).mean()
    if len(set(lengths)) > 2 and is_at_the_ends and often >= 0.25:
        share = lengths.sum() / ids[:, 1:].size
        yield sign(
            "padding counted",
            f"{often:.0%} of the rows end with several {filler}, "
            f"{share:.0%} of all {kind}; pad_id={subject.pad_id}",
        )


def special_tokens(subject):
    """The begin and end tokens, and whether they are those of decoding."""
    if subject.interface.causal != 1 or len(subject.batch[1]) < 4:
        return
    targets = subject.batch[1]
    yield from begin_token(targets, subject.decoding.bos_id)
    yield from end_token(targets, subject.pad_id, subject.decoding)


def begin_token(targets, bos_id):
    """Whether all targets begin with one token, once, with which decoding begins, too."""
    first = targets[0, 0]
    if (targets[:, 0] != first).any():
        some = np.unique(targets[:, 0])[:5].tolist()
        yield sign("begin token", f"targets begin with different tokens, such as {some}")
    elif (targets[:, 1] == first).all():
        yield sign("begin token", f"all targets begin with {first} twice")
    elif bos_id not in (None, first):
        yield sign("begin token", f"all targets begin with {first}, and you decode with {bos_id=}")


def end_token(targets, pad_id, decoding):
    """Whether all targets end with one token, once, with which decoding ends, and not earlier."""
    eos_id = decoding.eos_id
    max_len = decoding.max_len
    n = len(targets)
    lengths = is_word(targets, pad_id).cumsum(axis=1).argmax(axis=1) + 1  # up to the last word
    longest = lengths.max() - 1
    ends = targets[np.arange(n), lengths - 1]
    last = np.bincount(ends).argmax()
    share = (ends == last).mean()
    n_ends = (targets[:, 1:] == last).sum()  # the first token may be the same id
    is_cut = max_len is not None and max_len < longest
    if share < 0.6 or n_ends > 1.1 * n or eos_id not in (None, last) or is_cut:
        yield sign(
            "end token",
            f"{share:.0%} of {n} targets of up to {longest} tokens end with {last}, "
            f"which follows {n_ends} times in them; {eos_id=}, {max_len=}",
        )


def shift(subject):
    """The targets of a text against its tokens."""
    if subject.interface.causal != 0 or len(subject.batch) != 2:
        return
    shares = shares_by_shift(*subject.batch, subject.pad_id)
    best = max(shares, key=shares.__getitem__, default=1)
    if shares and shares[best] > shares[1] + 0.2:
        token = f"token t{best:+d}" if best else "the input token t itself"
        yield sign(
            "targets not shifted",
            f"target t is {token} in {shares[best]:.0%} of all places, not token t+1",
        )
