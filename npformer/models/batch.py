"""The batches that a model takes: what they have to be, their number of targets, and the mean of their losses."""

import inspect

from npformer.checks import check_int


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


def mean_loss(trainer, params, batches) -> float:
    """The mean loss per target over all batches, without dropout and label smoothing.

    Each thread of each rank computes some of the batches; the bits do not depend on who computes which.
    """
    model, ops, ranks = trainer.model, trainer.ops, trainer.ranks
    takes = inspect.signature(model.loss_and_grad).parameters
    with_grad = {"with_grad": False} if "with_grad" in takes else {}  # other models compute it always

    def summed(batch):
        n = count_of(model, batch)
        options = {"dropout_key": None, "n_tokens": max(n, 1), "backend": ops}
        loss, *_ = model.loss_and_grad(params, *batch, **options, **with_grad)
        return [float(loss) * n, n]

    sums = ranks.gather_lists(ops.device.run_shards(summed, ranks.my_share(batches)))
    return sum(loss for loss, _ in sums) / max(1, sum(n for _, n in sums))
