"""The pairs of a batch: whether targets belong to their inputs."""

from collections import Counter

import numpy as np

from npformer.diagnosis.finding import sign

N_PAIRS = 64  # rows of which the pairs are compared


def partners(subject):
    """Whether targets fit the inputs of other rows better than their own."""
    x = subject.all_rows.inputs[0]
    y = subject.all_rows.targets
    if not subject.interface.ids or len(y) < 16 or y.ndim < 2:
        return
    message = shifted_rows(x, y) or shuffled_rows(x, y, subject.pad_id)
    if message:
        yield sign("rows do not match", message)


def shifted_rows(x, y):
    """A message if targets fit best the inputs that are some rows further, and not their own."""
    if min(x.max(), y.max()) <= 8:  # of so few words, all rows have the same ones
        return None
    fits = fits_by_shift(x, y)
    k = fits.argmax()
    second, most = np.sort(np.abs(fits))[-2:]
    if fits[0] < 3 and most > max(8, 2.5 * second) and fits[k] == most:
        return (
            f"target i fits the tokens of row i+{k} of the input "
            f"by {most:.0f} standard deviations above chance, those of row i by {fits[0]:.1f}: "
            "a row may be missing in one of both"
        )
    return None


def fits_by_shift(x, y):
    """How well rows of ids fit those of others that are k rows after them, by k.

    It is told in standard deviations.
    """
    of_inputs = likeness_of_rows(x[:N_PAIRS])
    of_targets = likeness_of_rows(y[:N_PAIRS])
    shifted = [np.roll(of_targets, k, axis=(0, 1)) for k in range(len(of_inputs))]
    fits = np.array([np.vdot(of_inputs, each) for each in shifted])
    fits -= np.median(fits)
    return fits / (1.5 * np.median(np.abs(fits)) + 0.01)


def likeness_of_rows(ids):
    """What each two rows of ids share, (n, n), of norm 1; 0 for a row and itself."""
    n = len(ids)
    ids = np.unique(ids, return_inverse=True)[1].reshape(n, -1)  # any integers become 0, 1, …
    has = np.zeros((n, ids.max(initial=0) + 1), np.float32)
    has[np.arange(n)[:, None], ids] = 1
    has -= has.mean(axis=0)
    likeness = has @ has.T * (1 - np.eye(n))
    return likeness / (np.linalg.norm(likeness) + 1e-9)


def shuffled_rows(x, y, pad_id):
    """A message if targets have exactly the words of another input, and not of their own."""
    x = x[:N_PAIRS]
    y = y[:N_PAIRS]
    if x.dtype.kind not in "iu" or x.ndim != 2:
        return None
    special = {pad_id}
    for i in np.unique(y):
        counts = (y == i).sum(axis=1)
        if len(set(counts)) == 1:  # as often in all rows, as an end is
            special.add(int(i))
    of_inputs = [words_in(row, special) for row in x]
    of_targets = [words_in(row, special) for row in y]
    often = Counter(of_inputs)
    if max(often.values()) > 2 or len(often) < 0.9 * len(x):  # equal words are nothing special
        return None
    rows = list(zip(of_inputs, of_targets, strict=True))
    share = np.mean([a == b for a, b in rows])
    of_others = np.mean([often[b] > (a == b) for a, b in rows])
    if of_others > 0.5 > 2 * share:
        return (
            f"{of_others:.0%} of the targets have exactly the words of the input of another row, "
            f"{share:.0%} those of their own"
        )
    return None


def words_in(row, special):
    """The words of a row in the order of their ids."""
    return tuple(sorted(i for i in row.tolist() if i not in special))
