"""Signs of a mistake in a training: questions about its batches, its steps and its arrays."""

from typing import NamedTuple

import numpy as np

from npformer.arrays import digest, on_host
from npformer.diagnosis.finding import sign
from npformer.diagnosis.frequencies import DIVERGENT, Frequencies
from npformer.models.batch import count_of

RECENT = 40  # steps that are compared


# -- batches


def repetition(batches):
    """Whether the first batches differ."""
    if len({digest(batch) for batch in batches}) == 1:
        yield sign("one batch again and again", f"the first {len(batches)} batches are the same")


def other_validation(batches, held_out, pad_id):
    """Whether the entries of the first batches are as frequent in the validation."""
    n_arrays = min(len(batch) for batch in [*batches, *held_out])
    for which in range(n_arrays):
        first = batches[0][which]
        if first.dtype.kind not in DIVERGENT or first.ndim < 2:
            continue
        training = Frequencies(pad_id, [batch[which] for batch in batches])
        validation = Frequencies(pad_id, [on_host(batch[which]) for batch in held_out])
        if times := validation.times_as_surprising(training):
            yield sign(
                "validation differs",
                f"by their frequencies, entries of batch[{which}] are {times:.2g} times "
                f"as surprising in the validation as in the first {len(batches)} batches",
            )


def strangers(trainer, batch):
    """Whether targets are predicted as well from the inputs of other rows as from their own."""
    if count_of(trainer.model, batch) == 0:
        return
    mixed = np.roll(batch[0], 1, axis=0), *batch[1:]
    loss = trainer.mean_loss([batch])
    other = trainer.mean_loss([mixed])
    if other < 1.005 * loss:
        yield sign(
            "rows do not match",
            f"the loss of a batch is {loss:.4g}, with the inputs of other rows {other:.4g}",
        )


def other_targets(recent, earlier):
    """Whether the targets of the last steps are others than those before them."""
    if times := recent.times_as_surprising(earlier):
        yield sign(
            "rows in order",
            f"targets of the last {RECENT} steps are {times:.2g} times "
            "as surprising as those before them, by their frequencies",
        )


# -- steps


def of_step(steps):
    """Signs in the norm of the last gradient, and in the rate."""
    info = steps[-1]
    if info.grad_norm == 0:
        yield sign("no gradient", "the norm of the whole gradient is 0")
    if len(steps) > 1 and info.lr == steps[-2].lr == 0:  # the last of a schedule may be 0
        yield sign(
            "rate too small", f"the rate is 0 since step {info.step - 1}: the schedule is over"
        )


def of_validation(steps, validations, is_repeated):
    """Whether the loss of the validation rises, while that in training falls."""
    begin = steps[0].step
    results = [
        (each["val_loss"], each["step"])
        for each in validations
        if "val_loss" in each and each["step"] >= begin
    ]
    if len(results) < 4 or results[-1][1] != steps[-1].step:
        return
    best, best_step = min(results)
    last, last_step = results[-1]
    loss_before = mean_until(best_step, steps)
    loss = mean_until(last_step, steps)
    is_worse = last > 1.05 * best and min(results[-3:]) > (best, best_step)
    if not is_worse or not loss < loss_before:
        return
    message = (
        f"val_loss is {last:.4g} now, and was {best:.4g} after step {best_step}; "
        f"the loss in training fell from {loss_before:.4g} to {loss:.4g}"
    )
    if is_repeated:
        yield sign("overfitting", message)
    elif last > 1.1 * loss:  # else both may be near what can be reached
        message += ", and no row came twice that could be learned by heart"
        yield sign("validation differs", message)


def mean_until(step, steps):
    """The mean of some losses up to a step."""
    return np.mean([info.loss for info in steps if info.step <= step][-RECENT:])


def of_means(steps):
    """Whether means of the loss fall."""
    means = np.mean(np.reshape([info.loss for info in steps], (-1, RECENT)), axis=1)
    first = means[0]
    last = means[-1]
    least = min(means)
    message = f"means of {RECENT} losses are {first:.4g} at first, {least:.4g}, and {last:.4g} now"
    if last > max(1.3 * least, 0.7 * first):
        yield sign("rate too large", message)
    elif len(means) > 4 and steps[0].step == 1 and last > 0.97 * steps[0].loss:
        yield sign("stuck", message)


# -- arrays


class Norms(NamedTuple):
    """The norms of the parameters of a layer or a table, of their gradient and of one update."""

    weights: float
    gradient: float
    update: float

    @property
    def ratio(self):
        """The update relative to the weights."""
        return self.update / max(self.weights, 1e-30)


def of_updates(info, parts):
    """Whether a step changes a part by much of its size."""
    for name, x in parts.items():
        if x.update > 0.25 * x.weights > 0:
            yield sign(
                "rate too large", f"step {info.step} changes {name} by {x.ratio:.2g} of its size"
            )
