"""What a loop calls to validate."""

import inspect

from npformer.checks import check_number
from npformer.models.batch import count_of
from npformer.training.batches import check_batches


def evaluation_of(trainer, validate, monitor):
    """The function that a ``Loop`` calls, for what ``Trainer.fit`` is given: a list of batches, a function, or None."""
    if validate is None:
        return None
    if not callable(validate):
        check_batches(validate, "validate")
        if monitor != "val_loss":
            advice = "give validate a function for others"
            raise ValueError(f"monitor={monitor!r} of batches, expected 'val_loss': {advice}")
        return lambda: {"val_loss": mean_loss(trainer, trainer.params, validate)}

    def evaluate():
        found = validate(trainer)
        found = found if isinstance(found, dict) else {"val_loss": found}
        for name in found:
            if not isinstance(name, str) or name == "step":
                expected = "names that are texts other than 'step'"
                raise ValueError(f"validate returned a result {name!r}, expected {expected}")
        return {name: check_number(f"validate: {name}", value) for name, value in found.items()}

    return evaluate


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
