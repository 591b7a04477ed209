"""The batch by itself: its numbers, padding, special tokens, pairs of rows and shifts."""

from collections import Counter

import numpy as np

from npformer.arrays import on_host
from npformer.diagnosis.subject import shares_by_shift

N_PAIRS = 64  # rows of which the pairs are compared
FEW = 16  # answers, which may be equal by chance if there are fewer
INTERVALS = np.outer([-1, 1], 2.0 ** np.arange(-6, 16)).ravel()  # between these, numbers are counted
INTERVALS.sort()
N_FREQUENT = 20  # ids that are compared one by one
ENOUGH = 200  # entries, ten for each of them
LARGEST_ID = 1 << 20


def numbers(case):
    """Whether numbers are finite, and near 0 ± 1."""
    inputs, targets = case.split(case.batch)
    parts = {"the input": inputs[0][case.is_seen(inputs)], "the targets": targets[case.is_counted(inputs, targets)]}
    far = []
    for name, x in parts.items():
        mean = float(x.mean()) if x.size else 0.0
        deviation = float(x.std()) if x.size else 0.0
        if not np.isfinite(mean):
            yield "not finite", f"{name}: {(~np.isfinite(x)).sum()} of {x.size} numbers are NaN or infinite"
        elif x.dtype.kind == "f" and (deviation > 30 or abs(mean) > 10 * max(1, deviation)):
            far.append(f"{name}: mean {mean:.3g}, standard deviation {deviation:.3g}")
    if far:
        yield "scale of the data", "; ".join(far)


def answers(case):
    """Whether targets differ, and have to be computed."""
    inputs, targets = case.split(case.batch)
    counted = targets[case.is_counted(inputs, targets)]
    if len(counted) >= FEW and (counted == counted[:1]).all():
        yield "nothing to learn", f"the targets that count are all {counted[:1]}"
    elif not len(counted):
        yield "nothing to learn", "no target counts"
    elif inputs[0].ndim > 1 and (~case.is_seen(inputs)).all(axis=1).mean() > 0.5:
        yield "nothing to learn", "more than half of the rows of the input are nothing but padding"
    elif case.interface.causal is not None and case.interface.n_answers > 9:
        often = np.bincount(counted)
        if often.max() > 0.6 * counted.size:
            yield "nothing to learn", f"{often.max() / counted.size:.0%} of the targets are {often.argmax()}"
    yield from answers_in_the_input(case, inputs, targets)


def answers_in_the_input(case, inputs, targets):
    """Whether what is to be predicted stands in the input."""
    if getattr(case.architecture, "task", None) == "words" and inputs[0].shape == targets.shape:
        counted = case.is_counted(inputs, targets)
        share = (inputs[0] == targets)[counted].mean()
        if share > 0.5:  # BERT leaves a tenth of the words to be predicted as they are
            yield "answers in the input", f"{share:.0%} of the words to be predicted are in their places in the input"
    if inputs[0].dtype.kind != "f" or case.interface.by_position:
        return
    x = inputs[0].reshape(len(inputs[0]), -1)
    for answer in targets.reshape(len(targets), -1).T:
        if len(np.unique(answer)) > 7 and (x == answer[:, None]).all(axis=0).any():
            yield "answers in the input", "a number of each row of the input is what is to be predicted for this row"
            return


def copies(case):
    """Whether rows are copies of others."""
    n = len(case.batch[0])
    arrays = [x for x in case.batch if len(x) == n]
    n_different = len({b"".join(x[i].tobytes() for x in arrays) for i in range(n)})
    # As many rows as there are, drawn with replacement, leave 63% of them: fewer than half are not drawn so.
    if n < 8 or n_different > n / 2:
        return
    first = case.batch[0]
    if first.dtype.kind in "iu" and len(np.unique(first)) ** int(np.prod(first.shape[1:])) <= 4 * n:
        return  # there are not many more rows, as in a table of truth
    yield "copied rows", f"only {n_different} of the {n} rows are different"


def padding(case):
    """Where padding is, and whether the model knows it."""
    if case.pad_id is not None and case.pad_id in case.decoding[:2]:
        yield "padding inside", f"pad_id={case.pad_id} is bos_id or eos_id, too"
    inputs, _ = case.split(case.batch)
    is_seen = case.is_seen(inputs)
    if inputs[0].ndim > 2 and not is_seen.all() and np.ptp(inputs[0][is_seen]) == 0 < np.ptp(inputs[0][~is_seen]):
        yield "padding inside", "the mask, True for what is seen, hides all numbers of the input that differ"
    for which in case.interface.ids:
        ids = case.batch[which]
        words = case.is_word(ids)
        inside = (words[:, 1:] & ~words[:, :-1]).any(axis=1).mean()
        if inside:
            yield "padding inside", f"in {inside:.0%} of rows of batch[{which}], pad_id={case.pad_id} is before a word"
        yield from unknown_padding(case, which)


def unknown_padding(case, which):
    """Whether many rows end with several of the same id, and this is no padding for the model."""
    ids = case.batch[which]
    is_target = which == case.interface.causal
    filler = np.bincount(ids[:, -1]).argmax()
    if filler == case.pad_id or ids.shape[1] < 4:
        return
    if not is_target and not hasattr(case.architecture, "pad_id"):
        return  # it may know the padding of its input all the same
    lengths = np.cumprod((ids == filler)[:, ::-1], axis=1).sum(axis=1)
    is_at_the_ends = lengths.sum() > 0.7 * (ids == filler).sum()
    often = (lengths > 1).mean()
    if len(set(lengths)) > 2 and is_at_the_ends and often >= 0.25:
        share = lengths.sum() / ids[:, 1:].size
        seen = f"{often:.0%} of the rows end with several {filler}, {share:.0%} of all"
        yield "padding counted", f"{seen} {'targets' if is_target else 'tokens'}; pad_id={case.pad_id}"


def special_tokens(case):
    """The begin and end tokens, and whether they are those of decoding."""
    if case.interface.causal != 1 or len(case.batch[1]) < 4:
        return
    targets = case.batch[1]
    bos_id, eos_id, max_len = case.decoding
    first = targets[0, 0]
    if (targets[:, 0] != first).any():
        yield "begin token", f"targets begin with different tokens, such as {np.unique(targets[:, 0])[:5].tolist()}"
    elif (targets[:, 1] == first).all():
        yield "begin token", f"all targets begin with {first} twice"
    elif bos_id not in (None, first):
        yield "begin token", f"all targets begin with {first}, and you decode with {bos_id=}"
    lengths = case.is_word(targets).cumsum(axis=1).argmax(axis=1) + 1  # up to the last word
    ends = targets[np.arange(len(targets)), lengths - 1]
    last = np.bincount(ends).argmax()
    share = (ends == last).mean()
    n_ends = (targets[:, 1:] == last).sum()  # the first token may be the same id
    is_cut = max_len is not None and max_len < lengths.max() - 1
    if share < 0.6 or n_ends > 1.1 * len(targets) or eos_id not in (None, last) or is_cut:
        seen = f"{share:.0%} of {len(targets)} targets of up to {lengths.max() - 1} tokens end with {last}"
        yield "end token", f"{seen}, which follows {n_ends} times in them; {eos_id=}, {max_len=}"


def partners(case):
    """Whether targets fit the inputs of other rows better than their own."""
    inputs, targets = case.split(case.batch)
    if not case.interface.ids or len(targets) < 16 or targets.ndim < 2:
        return
    if min(inputs[0].max(), targets.max()) > 8:
        fits = fits_by_shift(inputs[0], targets)
        k = fits.argmax()
        second, most = np.sort(np.abs(fits))[-2:]
        if fits[0] < 3 and most > max(8, 2.5 * second) and fits[k] == most:
            seen = f"{most:.0f} standard deviations above chance, those of row i by {fits[0]:.1f}"
            seen = f"target i fits the tokens of row i+{k} of the input by {seen}: a row may be missing in one of both"
            yield "rows do not match", seen
            return
    shares = words_of_others(inputs[0], targets, case.pad_id)
    if shares is not None:
        seen = f"{shares[1]:.0%} of the targets have exactly the words of the input of another row"
        yield "rows do not match", f"{seen}, {shares[0]:.0%} those of their own"


def words_of_others(x, y, pad_id):
    """The shares of targets with exactly the words of their own input, and of another, if the latter is unexpected."""
    x, y = x[:N_PAIRS], y[:N_PAIRS]
    if x.dtype.kind not in "iu" or x.ndim != 2:
        return None
    special = {int(i) for i in np.unique(y) if len({*(y == i).sum(axis=1)}) == 1}  # as often in all rows, as an end
    special.add(pad_id)
    of_inputs, of_targets = ([words_in(row, special) for row in each] for each in (x, y))
    often = Counter(of_inputs)
    if max(often.values()) > 2 or len(often) < 0.9 * len(x):  # equal words are nothing special
        return None
    own = np.mean([a == b for a, b in zip(of_inputs, of_targets, strict=True)])
    of_others = np.mean([often[b] > (a == b) for a, b in zip(of_inputs, of_targets, strict=True)])
    return (own, of_others) if of_others > 0.5 > 2 * own else None


def words_in(row, special):
    """The words of a row in the order of their ids."""
    return tuple(sorted(i for i in row.tolist() if i not in special))


def fits_by_shift(x, y):
    """How well rows of ids fit the rows of others that are k rows after them, by k, in standard deviations."""
    alike = [likeness_of_rows(ids[:N_PAIRS]) for ids in (x, y)]
    n = len(alike[0])
    fits = np.array([np.vdot(alike[0], np.roll(alike[1], k, axis=(0, 1))) for k in range(n)])
    fits -= np.median(fits)
    return fits / (1.5 * np.median(np.abs(fits)) + 0.01)


def likeness_of_rows(ids):
    """What each two rows of ids share, (n, n), of norm 1; 0 for a row and itself."""
    ids = np.unique(ids, return_inverse=True)[1].reshape(len(ids), -1)
    has = np.zeros((len(ids), ids.max(initial=0) + 1), np.float32)
    has[np.arange(len(ids))[:, None], ids] = 1
    has -= has.mean(axis=0)
    likeness = has @ has.T * (1 - np.eye(len(ids)))
    return likeness / (np.linalg.norm(likeness) + 1e-9)


def shift(case):
    """The targets of a text against its tokens."""
    if case.interface.causal != 0 or len(case.batch) != 2:
        return
    shares = shares_by_shift(*case.batch, case.pad_id)
    best = max(shares, key=shares.__getitem__, default=1)
    if shares and shares[best] > shares[1] + 0.2:
        token = f"token t{best:+d}" if best else "the input token t itself"
        yield "targets not shifted", f"target t is {token} in {shares[best]:.0%} of all places, not token t+1"


class Frequencies:
    """How often ids, but for padding, or numbers in some intervals, were in arrays."""

    def __init__(self, pad_id=None):
        self.counts = np.zeros(0, np.int64)
        self.pad_id = pad_id

    def add(self, x):
        """Count the entries of an array; negative ids are none."""
        if x.dtype.kind == "f":
            x = np.digitize(x[np.isfinite(x)], INTERVALS)
        elif self.pad_id is not None and x.ndim == 2:
            x = x[x != self.pad_id]
        ids = x[(x >= 0) & (x < LARGEST_ID)].astype(np.int64)
        self._add_counts(np.bincount(ids))

    def add_all(self, other):
        """Count what another has counted."""
        self._add_counts(other.counts)

    def divergence(self, expected):
        """The Kullback-Leibler divergence from others, in nats, of frequent ids and of all others together.

        It is 0 of fewer than ``ENOUGH`` entries, of which nothing can be said.
        """
        if min(self.counts.sum(), expected.counts.sum()) < ENOUGH:
            return 0.0
        size = max(len(self.counts), len(expected.counts))
        own, other = (np.pad(each.counts, (0, size - len(each.counts))) for each in (self, expected))
        frequent = np.argsort(-(own / own.sum() + other / other.sum()), kind="stable")[:N_FREQUENT]
        p, q = (np.append(x[frequent], x.sum() - x[frequent].sum()) + 1.0 for x in (own, other))
        p /= p.sum()
        q /= q.sum()
        return float((p * np.log(p / q)).sum())

    def _add_counts(self, counts):
        size = max(len(self.counts), len(counts))
        self.counts = np.pad(self.counts, (0, size - len(self.counts))) + np.pad(counts, (0, size - len(counts)))


def long_rows(batch, pad_id):
    """The longer half of the rows of a batch as bytes, without padding; short ones may be equal by chance."""
    rows = [b""] * len(batch[0])
    for x in batch:
        x = on_host(x)
        if len(x) != len(rows):
            continue
        for i, row in enumerate(x):
            words = row[row != pad_id] if row.ndim and row.dtype.kind in "iu" else row
            rows[i] += words.tobytes() + b";"
    median = sorted(map(len, rows))[len(rows) // 2]
    return {row for row in rows if len(row) >= median}
