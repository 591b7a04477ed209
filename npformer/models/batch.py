"""Batches of a model: checked, counted, and filled up to one of a few shapes."""

import inspect
from collections.abc import Iterator

import numpy as np

from npformer.checks import check_int
from npformer.errors import UserError


def names_of_batch(model):
    """The names of the arrays of a batch."""
    return list(inspect.signature(model.count).parameters)


def check_batches(batches, name="batches"):
    """Check that there are batches, which can be read twice: to count targets, and to compute."""
    if not batches:
        raise UserError(f"{name} is empty, expected one or more tuples such as (src, tgt)")
    for n, batch in enumerate(batches):
        if not isinstance(batch, (tuple, list)):
            expected = "a tuple such as (src, tgt), or (ids,)"
            raise UserError(f"{name}[{n}] is a {type(batch).__name__}, expected {expected}")
        for i, x in enumerate(batch):
            if isinstance(x, Iterator):
                kind = f"a {type(x).__name__}, which can be read only once"
                raise TypeError(f"batch[{i}] is {kind}: expected an array")


def count_of(model, batch):
    """The number of targets of a batch."""
    kind = type(model).__name__
    try:
        n = model.count(*batch)
    except TypeError as error:
        arguments = inspect.signature(model.count)
        try:
            arguments.bind(*batch)
        except TypeError:
            names = ", ".join(arguments.parameters)
            items = "1 item" if len(batch) == 1 else f"{len(batch)} items"
            message = f"a batch has {items}, expected those that {kind} takes: ({names})"
            if len(batch) == 1 and isinstance(batch[0], (tuple, list)):
                message += ": unpack the tuple, as in step(*batch)"
            raise TypeError(message) from error
        raise
    return check_int(f"{kind}.count(…)", n, at_least=0)


def filled_up(model, ids, rounded_up, n_more=0):
    """Ids (B, T + n_more) with more rows and columns, so that B and T are of a small set.

    They stay as they are if no id is the model's padding.
    """
    if model.pad_id is None:
        return ids
    n_rows = rounded_up(len(ids)) - len(ids)
    T = ids.shape[1] - n_more
    n_columns = min(rounded_up(T), model.max_len) - T
    missing = (0, n_rows), (0, n_columns)
    return np.pad(ids.astype(np.int64, copy=False), missing, constant_values=model.pad_id)
