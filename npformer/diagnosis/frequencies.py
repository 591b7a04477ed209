"""How often ids or numbers come, and rows again, by which batches are compared."""

import numpy as np

from npformer.arrays import on_host

POWERS = 2.0 ** np.arange(-6, 16)
INTERVALS = np.sort([*-POWERS, *POWERS])  # between these, numbers are counted
N_FREQUENT = 20  # ids that are compared one by one
ENOUGH = 200  # entries, ten for each of them
LARGEST_ID = 1 << 20
# Nats by which entries are more surprising: ids 1.6 times, where 0.1 is usual in another text of
# the same language, and numbers 7 times, where 0.5 is a shift by their standard deviation.
DIVERGENT = {"i": 0.5, "u": 0.5, "f": 2.0}


class Frequencies:
    """How often ids, except for padding, or numbers in some intervals, were in arrays."""

    def __init__(self, pad_id=None, arrays=()):
        self.counts = np.zeros(0, np.int64)
        self.kind = ""  # of the dtype of the arrays
        self.pad_id = pad_id
        for x in arrays:
            self.add(x)

    def add(self, x):
        """Count the entries of an array; negative ids are none."""
        self.kind = x.dtype.kind
        if x.dtype.kind == "f":
            x = np.digitize(x[np.isfinite(x)], INTERVALS)
        elif self.pad_id is not None and x.ndim == 2:
            x = x[x != self.pad_id]
        ids = x[(x >= 0) & (x < LARGEST_ID)].astype(np.int64)
        self.add_counts(np.bincount(ids))

    def add_counts(self, counts):
        """Add how often each id was somewhere else."""
        size = max(len(self.counts), len(counts))
        self.counts = padded(self.counts, size) + padded(counts, size)

    def times_as_surprising(self, expected):
        """How many times as surprising entries are as others, 0 if that is usual.

        It is found by the Kullback-Leibler divergence of frequent ids and of all others together.
        Of fewer than ``ENOUGH`` entries nothing can be said.
        """
        if min(self.counts.sum(), expected.counts.sum()) < ENOUGH:
            return 0.0
        size = max(len(self.counts), len(expected.counts))
        counts = padded(self.counts, size)
        others = padded(expected.counts, size)
        share = counts / counts.sum() + others / others.sum()
        frequent = np.argsort(-share, kind="stable")[:N_FREQUENT]
        p = shares(counts, frequent)
        q = shares(others, frequent)
        divergence = (p * np.log(p / q)).sum()
        return np.exp(divergence) if divergence > DIVERGENT.get(self.kind, np.inf) else 0.0


def padded(counts, size):
    """The counts of more ids, which never came."""
    return np.pad(counts, (0, size - len(counts)))


def shares(counts, frequent):
    """The shares of some ids, and of all others together, each counted once more, as none is 0."""
    of_others = counts.sum() - counts[frequent].sum()
    counts = np.append(counts[frequent], of_others) + 1.0
    return counts / counts.sum()


def long_rows(batch, pad_id):
    """The longer half of the rows of a batch as bytes, without padding.

    Short ones may be equal by chance.
    """
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
