"""Batches of the rows of arrays, in a new order in each epoch."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from npformer.arrays import library_of
from npformer.checks import check_int
from npformer.errors import UserError
from npformer.operations.options import LARGEST, Count, check_fields


def pack(sequences, pad_id, *, begin=None, end=None):
    """Return sequences of ids as the rows of an array (B, longest), where shorter ones are padded.

    ``begin`` and ``end`` are ids to put before and after each sequence.

    >>> pack([[5, 6], [7]], pad_id=0, end=2)
    array([[5, 6, 2],
           [7, 2, 0]])
    """
    first = 0 if begin is None else 1
    longest = max(map(len, sequences), default=0)
    width = first + longest + (0 if end is None else 1)
    ids = np.full((len(sequences), width), pad_id)
    if begin is not None:
        ids[:, 0] = begin
    for row, sequence in zip(ids, sequences, strict=True):
        row[first : first + len(sequence)] = sequence
        if end is not None:
            row[first + len(sequence)] = end
    return ids


@dataclass(frozen=True, repr=False, eq=False)
class Batches:
    """What ``npformer.batches`` returns: batches that can be read again and again."""

    columns: list
    size: Count
    epochs: Count | None
    seed: int
    shuffle: bool
    drop_last: bool
    pad_id: int | None
    first: int = 0  # the number of the first batch that comes

    def __post_init__(self):
        check_fields(self)
        if not self.per_epoch:
            raise UserError(
                f"size={self.size} with {self.n_rows} rows and drop_last=True: "
                "there would be no batch"
            )

    @property
    def n_rows(self) -> int:
        """The number of rows of each array."""
        return len(self.columns[0])

    @property
    def per_epoch(self) -> int:
        """The number of batches of an epoch."""
        n_whole, rest = divmod(self.n_rows, self.size)
        return n_whole if self.drop_last or not rest else n_whole + 1

    def __len__(self) -> int:
        """The number of batches that come."""
        if self.epochs is None:
            raise TypeError("batches(…, epochs=None) never end: they have no length")
        return max(0, self.epochs * self.per_epoch - self.first)

    def __iter__(self) -> Iterator[tuple]:
        epoch, n = divmod(self.first, self.per_epoch)
        while self.epochs is None or epoch < self.epochs:
            order = self._order(epoch)
            for i in range(n, self.per_epoch):
                rows = order[i * self.size : (i + 1) * self.size]
                yield tuple(self._rows(column, rows) for column in self.columns)
            epoch += 1
            n = 0

    def from_step(self, step: int) -> Self:
        """The same without the first ``step``: those after a checkpoint with this ``n_steps``."""
        return replace(self, first=self.first + check_int("step", step, at_least=0))

    def _order(self, epoch):
        if not self.shuffle:
            return np.arange(self.n_rows)
        return np.random.default_rng([self.seed, epoch]).permutation(self.n_rows)

    def _rows(self, column, rows):
        if isinstance(column, list):
            return pack([column[row] for row in rows], self.pad_id)
        return column[rows]

    def __repr__(self):
        n = f"{self.per_epoch} an epoch, without end" if self.epochs is None else len(self)
        return f"<batches of {self.size} of {self.n_rows} rows: {n}>"


def batches(
    *arrays: Any,
    size: int,
    epochs: int | None = 1,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    pad_id: int | None = None,
) -> Batches:
    """Divide the rows of arrays into batches, in a new order in each epoch.

    Parameters
    ----------
    *arrays : arrays, or lists of rows
        Their first axes are of equal length. A batch is a tuple with some rows of each.
    size : int
        Rows of a batch; the last one of an epoch has what is left.
    epochs : int, optional
        How often all rows come; 1 if not given. With None the batches never end.
    seed : int
        Seed of the orders; the same seed gives the same batches.
    shuffle : bool
        If False, each epoch has the rows in the order in which they are given.
    drop_last : bool
        Leave out the last batch of an epoch if it has fewer rows than ``size``.
    pad_id : int, optional
        What rows of different lengths, in a list, are padded with at their ends, up to the longest
        row of a batch.

    Returns
    -------
    Batches
        An iterable, which begins anew each time. It has a length, and ``from_step(n)`` is the same
        without the first n batches, to go on with a training.

    Raises
    ------
    UserError
        If the arrays have different lengths, or there would be no batch.
    TypeError
        If something can be read only once, as a generator.

    Examples
    --------
    >>> x, y = np.arange(10).reshape(5, 2), np.arange(5)
    >>> for rows, labels in batches(x, y, size=2, shuffle=False):
    ...     print(rows.tolist(), labels.tolist())
    [[0, 1], [2, 3]] [0, 1]
    [[4, 5], [6, 7]] [2, 3]
    [[8, 9]] [4]
    >>> three = batches(x, size=2, epochs=3)
    >>> len(three), len(three.from_step(4))
    (9, 5)
    >>> sentences = [[5, 6, 7], [8], [9, 4]]
    >>> next(iter(batches(sentences, size=3, shuffle=False, pad_id=0)))[0].tolist()
    [[5, 6, 7], [8, 0, 0], [9, 4, 0]]
    """
    if pad_id is not None:
        pad_id = check_int("pad_id", pad_id, at_least=-LARGEST, at_most=LARGEST)
    if not arrays:
        raise UserError(
            "batches got no arrays, expected one or more, such as batches(x, y, size=32)"
        )
    columns = [_column(i, x, pad_id) for i, x in enumerate(arrays)]
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise UserError(f"arrays have {lengths} rows, expected the same number in all")
    if lengths[0] == 0:
        raise UserError("arrays have no rows, expected one or more")
    return Batches(columns, size, epochs, seed, shuffle, drop_last, pad_id)


def _column(i, x, pad_id):
    """An array, or a list of rows of ids that are padded."""
    name = f"array {i}"
    kind = f"a {type(x).__name__}"
    expected = "expected an array, or a list"
    if hasattr(x, "__next__"):
        raise TypeError(f"{name} is {kind}, which can be read only once: {expected}")
    if hasattr(x, "shape"):
        library_of(x, name)  # raises for what is no array, such as a table with names
        if not x.shape:
            raise UserError(f"{name} has no axis, expected rows")
        if x.dtype.kind == "O":
            raise TypeError(
                f"{name} has dtype object, expected numbers; "
                "give rows of different lengths in a list"
            )
        return x
    if not isinstance(x, (list, tuple)):
        raise TypeError(f"{name} is {kind}, {expected}")
    if isinstance(x, tuple) and any(np.ndim(part) > 1 for part in x if hasattr(part, "shape")):
        raise TypeError(
            f"{name} is a tuple of arrays, {expected}: unpack it, as in batches(*arrays, size=…)"
        )
    try:
        return np.asarray(x)
    except ValueError as error:  # rows of different lengths, or arrays with different axes
        if pad_id is None:
            raise UserError(
                f"{name} has rows of different lengths, expected pad_id=…, the id to pad them with"
            ) from error
    return [_ids(f"{name}, row {n}", row) for n, row in enumerate(x)]


def _ids(name, row):
    """A row of ids."""
    try:
        ids = np.asarray(row)
    except ValueError as error:
        raise UserError(f"{name} holds lists of different lengths, expected token ids") from error
    if ids.ndim != 1 or ids.dtype.kind not in "iu" and ids.size:
        raise UserError(f"{name} is {ids.dtype} of shape {ids.shape}, expected token ids")
    if ids.size and ids.max() > LARGEST:
        raise UserError(f"{name} has {ids.max()}, expected token ids that int64 can hold")
    return ids
