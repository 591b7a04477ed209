"""What a model takes as a batch."""

import inspect

from npformer.checks import check_int


def count_of(model, batch):
    """The number of targets of a batch."""
    try:
        n = model.count(*batch)
    except TypeError as error:
        arguments = inspect.signature(model.count)
        try:
            arguments.bind(*batch)
        except TypeError:
            wanted = ", ".join(arguments.parameters)
            is_tuple = len(batch) == 1 and isinstance(batch[0], (tuple, list))
            advice = ": unpack the tuple, as in step(*batch)" if is_tuple else ""
            message = f"a batch has {len(batch)} items, expected those that {type(model).__name__} takes: ({wanted})"
            raise TypeError(f"{message}{advice}") from error
        raise
    return check_int(f"{type(model).__name__}.count(…)", n, at_least=0)
