"""The checks of what a trainer is given to learn from: batches, tuples of what the model takes."""


def check_batches(batches, name="batches"):
    """Check that there are batches, and that what they hold can be read more than once: to count targets, and again."""
    if not batches:
        raise ValueError(f"{name} is empty, expected one or more tuples such as (src, tgt)")
    for n, batch in enumerate(batches):
        if not isinstance(batch, (tuple, list)):
            raise ValueError(f"{name}[{n}] is a {type(batch).__name__}, expected a tuple such as (src, tgt), or (ids,)")
        for i, x in enumerate(batch):
            if hasattr(x, "__next__"):
                raise TypeError(f"batch[{i}] is a {type(x).__name__}, which can be read only once: expected an array")
