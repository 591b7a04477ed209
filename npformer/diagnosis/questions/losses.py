"""The loss: against the outputs, for other numbers of targets, at the start, after a training."""

import contextlib
import math
from typing import NamedTuple

import numpy as np

from npformer import reference, tree
from npformer.arrays import beside
from npformer.diagnosis.finding import LIKELY, SURE, sign
from npformer.diagnosis.interface import is_word
from npformer.errors import UserError

TOKENS_COMPARED = 2048  # of a batch, about, whose loss is compared with chance
FEW = 32  # targets, which a new model may predict by chance
SEEDS = 11, 12, 13  # of new models with which a trained one is compared


# -- the loss against the outputs


def of_outputs(subject):
    """The loss against that computed from the outputs."""
    check_comparable(subject)
    loss = subject.computed.loss
    expected = loss_of_outputs(subject, subject.rows)
    if agree(loss, expected):
        return
    message = f"loss_and_grad gives {loss:.4g}, the outputs of the same rows {expected:.4g}"
    if each_row_agrees(subject):
        yield sign(
            "loss differs",
            f"{message}, but each row alone agrees: "
            "rows are mixed, or sorted without their targets",
        )
        return
    nearest = min(wrong_losses(subject, expected), key=lambda wrong: abs(wrong.loss - loss))
    if agree(loss, nearest.loss, within=2e-4):
        yield sign(nearest.name, f"{message}, and {nearest.what} {nearest.loss:.4g}", SURE)
    else:
        yield sign("loss differs", message)


def check_comparable(subject):
    """Check that the loss can be computed from the outputs."""
    check_known(subject)
    if subject.interface.n_answers is None:
        raise UserError("it predicts numbers")
    counted = subject.rows.counted
    n_targets = subject.computed.n_targets
    if subject.interface.causal is None and counted.sum() != n_targets:
        raise UserError(
            f"not known which targets count: loss_and_grad counts {n_targets} of {counted.size}"
        )


def check_known(subject):
    """Check that it is known what the outputs are."""
    subject.check_outputs()
    if subject.interface.n_answers is None and subject.rows.targets.dtype.kind != "f":
        raise UserError("outputs(…) are not known to be logits")


def loss_of_outputs(subject, rows, counted=None):
    """The mean cross-entropy of the targets that count, computed from the outputs."""
    if counted is None:
        counted = rows.counted
    targets = np.where(counted, rows.targets, -1)
    return reference.cross_entropy(subject.outputs(rows.inputs), targets, ignore_id=-1)[0]


def agree(loss, expected, within=2e-3):
    """Whether two losses are equal except for rounding."""
    return abs(loss - expected) < within * max(1, abs(expected))


def each_row_agrees(subject):
    """Whether the loss of each row alone is that of its outputs."""
    n = len(subject.rows.targets)
    for i in range(n):
        row = [x[i : i + 1] if len(x) == n else x for x in subject.sample]
        if not agree(subject.gradient(*row).loss, loss_of_outputs(subject, subject.rows_of(row))):
            return False
    return True


class Wrong(NamedTuple):
    """A loss that is computed by mistake, and the name of the mistake."""

    name: str
    what: str
    loss: float


def wrong_losses(subject, expected):
    """Losses that are often computed by mistake."""
    rows = subject.rows
    counted = rows.counted
    yield Wrong("not the mean", "their sum", expected * counted.sum())
    if subject.interface.causal is None:
        return
    all_counted = loss_of_outputs(subject, rows, np.ones_like(counted))
    what = f"with the {(~counted).mean():.0%} of targets that are padding"
    yield Wrong("padding counted", what, all_counted)

    def not_shifted(what, ids, targets):
        loss = loss_of_outputs(subject, rows._replace(inputs=[*others, ids], targets=targets))
        return Wrong("targets not shifted", what, loss)

    *others, ids = rows.inputs
    whole = subject.sample[subject.interface.causal]
    yield not_shifted("with the input as targets", ids, ids)
    yield not_shifted("with the targets as the input", rows.targets, rows.targets)
    with contextlib.suppress(ValueError):  # it may be too long
        yield not_shifted("with the input as targets", whole, whole)


# -- other numbers of targets, and dropout


class Ratios(NamedTuple):
    """What is computed for twice the number of targets, relative to that for their number."""

    loss: float
    gradient: float


def divided(subject):
    """The loss and the gradient for another number of targets, and this number."""
    before = norm(subject.computed.grads)
    first = ratios_of_twice(subject, before)
    if norm(subject.computed.grads) != before:
        yield sign("gradients overwritten", "a gradient is another one after the next call")
    elif not np.allclose(first, 0.5, atol=0.01):
        again = ratios_of_twice(subject, before)
        if np.allclose(first, again, rtol=1e-4):
            yield sign(
                "n_tokens ignored",
                f"with twice the n_tokens, the loss is {first.loss:.2g} times as large, "
                f"the gradient {first.gradient:.2g} times, not 0.5",
            )
        else:
            yield sign(
                "not repeatable",
                f"two equal calls give {first.loss:.4g} and {again.loss:.4g} times the first "
                f"loss, {first.gradient:.4g} and {again.gradient:.4g} times its gradient",
            )
    yield from of_counts(subject)


def ratios_of_twice(subject, norm_before):
    """The ``Ratios`` of another call."""
    twice = subject.gradient(n_tokens=2 * subject.computed.n_targets)
    of_gradient = 0.5  # of no gradient, nothing can be said
    if norm_before:
        of_gradient = norm(twice.grads) / norm_before
    return Ratios(twice.loss / subject.computed.loss, of_gradient)


def of_counts(subject):
    """Whether the numbers of targets agree."""
    n = subject.computed.n_targets
    n_before = subject.model.count(*subject.sample)
    message = f"count(*batch) is {n_before}, loss_and_grad counts {n} targets"
    if n_before != n:
        yield sign("wrong count", message)
    elif subject.interface.causal is not None:
        n_words = is_word(subject.rows.targets, subject.pad_id).sum()
        if n != n_words:
            yield sign("wrong count", f"{message}, but {n_words} of them are words")


def of_dropout(subject):
    """The rate of dropout, and what a key does to the loss."""
    for name in ("dropout", "inner_dropout"):
        rate = getattr(subject.architecture, name, None) or 0
        if rate > 0.5:
            yield sign("dropout", f"{name}={rate:g}")
    rate = getattr(subject.architecture, "dropout", None)
    if rate:
        losses = {
            subject.computed.loss,
            subject.loss_of(dropout_key=1),
            subject.loss_of(dropout_key=2),
        }
        if len(losses) < 3:
            yield sign(
                "dropout has no effect",
                f"dropout={rate:g}, but losses with other keys, or none, are equal",
            )


# -- at the start


def at_the_start(subject):
    """Whether loss and gradient are finite, and the loss of a new model is near that of equal
    answers.
    """
    loss = subject.computed.loss
    grads = subject.computed.grads
    n_answers = subject.interface.n_answers
    if not np.isfinite(loss):
        yield sign("not finite", f"the loss is {loss}")
    elif tree.not_finite(grads):
        yield sign("not finite", f"the gradient holds NaN or infinity, the loss is {loss:.4g}")
    elif subject.is_new and (n_answers or 0) > 1:
        least, most = usual_losses(subject)
        if not least < loss < most:
            yield sign(
                "start far from ln V",
                f"the first loss is {loss:.3g}, ln {n_answers} = {np.log(n_answers):.3g}",
            )


def usual_losses(subject):
    """The smallest and the largest loss that is usual for a new model."""
    equal = np.log(subject.interface.n_answers)
    most = equal + 3  # outputs of variance 1 to 2 add half of it
    if getattr(subject.architecture, "tie_embeddings", False):
        most += subject.architecture.d_model**0.5  # the output of the token itself is up to √D
    if subject.computed.n_targets < FEW:
        return 0.0, most
    counted = subject.rows.targets[subject.rows.counted]
    chance = loss_by_chance(counted, subject.interface.n_answers)
    return 0.4 * min(chance, equal), most


# -- after a training


class Surprise(NamedTuple):
    """A loss, and that which the outputs themselves say is to be expected."""

    loss: float
    expected: float
    answers: np.ndarray  # the mean of the outputs

    @property
    def excess(self):
        """How much larger the loss is than expected: 0 after a training, 0.5 to 2.5 before it."""
        return self.loss - self.expected


def after_training(subject):
    """Whether a trained model predicts its targets better than who knows their frequencies
    alone.
    """
    check_known(subject)
    if not is_trained(subject):
        return
    n_answers = subject.interface.n_answers
    rows = many_rows(subject)
    targets = rows.targets[rows.counted]
    chance = loss_by_chance(targets, n_answers)
    batch = surprise(subject, rows, subject.full_params)
    # What a new model says is as wrong as it is at random. A trained one that is surer, and no
    # better than chance, has learned something else.
    if batch.loss < 1.1 * chance or batch.excess < excess_of_new(subject, rows):
        return
    message = (
        f"the loss of the batch is {batch.loss:.3g}; "
        f"the frequencies of the targets alone give {chance:.3g}"
    )
    if n_answers:
        message += f", and the model expects {batch.expected:.2g}"
    is_new_training = subject.trainer is not None and subject.trainer.n_steps == 0
    if not is_new_training and not subject.has_new_adapters:
        yield sign("worse than chance", message)
    elif n_answers:  # it goes on with another task, which may have the same words
        wrong = -np.log(batch.answers[targets] + 1e-12).mean()
        if wrong > 1.1 * chance:
            message += "; if the task is new to the model, this is no mistake"
            yield sign("worse than chance", message, LIKELY)


def is_trained(subject):
    """Whether biases and gains are 2% from where they begin, as they are after tens of steps."""
    movement = subject.movement
    return len(movement) > 0 and movement.min() > 0 and np.median(movement) > 0.02


def many_rows(subject):
    """As many of the first rows of the batch as have about ``TOKENS_COMPARED`` tokens."""
    first = subject.batch[0]
    length = first.shape[1] if first.ndim > 1 else 1
    n = max(8, TOKENS_COMPARED // length)
    return subject.rows_of([x[:n] if len(x) == len(first) else x for x in subject.batch])


def loss_by_chance(targets, n_answers):
    """The mean loss of who knows the other targets of a batch, but no input.

    It is a cross-entropy, or a squared error.
    """
    n = len(targets)
    if n_answers is None:
        return float(targets.var(axis=0).mean()) * (n / max(n - 1, 1)) ** 2
    counts = np.bincount(targets, minlength=n_answers)  # each answer is counted once more
    return float(np.log((n - 1 + n_answers) / counts[targets]).mean())


def excess_of_new(subject, rows):
    """The largest excess of the loss of new models."""
    drawn = (subject.architecture.init(seed) for seed in SEEDS)  # one after another: they are large
    news = (tree.map_leaves(beside, params, subject.full_params) for params in drawn)
    return max(surprise(subject, rows, params).excess for params in news)


def surprise(subject, rows, params):
    """The ``Surprise`` of the outputs that parameters lead to."""
    counted = rows.counted
    y = subject.outputs(rows.inputs, params)[counted]
    targets = rows.targets[counted]
    if subject.interface.n_answers is None:
        return Surprise(float(((y - targets) ** 2).mean()), 0.0, y.mean(axis=0))
    log_p = reference.log_softmax(y)
    p = np.exp(log_p)
    loss = -log_p[np.arange(len(targets)), targets].mean()
    expected = -(p * log_p).sum(axis=-1).mean()
    return Surprise(float(loss), float(expected), p.mean(axis=0))


def norm(grads):
    """The norm of a gradient, given by path."""
    return math.hypot(*map(reference.global_norm, grads.values()))
