"""The loss: against the outputs, at the start, after a training, and for another number of targets."""

import contextlib
import math
from typing import NamedTuple

import numpy as np

from npformer import reference, tree
from npformer.arrays import beside
from npformer.diagnosis.finding import LIKELY, SURE

N_TOKENS = 2048  # of a batch, about, whose loss is compared with chance
FEW = 32  # targets, which a new model may predict by chance
SEEDS = 11, 12, 13  # of new models with which a trained one is compared


def of_outputs(case):
    """The loss against that computed from the outputs."""
    check_comparable(case)
    expected = cross_entropy(case, case.inputs, case.targets)
    if agree(case.loss, expected):
        return
    seen = f"loss_and_grad gives {case.loss:.4g}, the outputs of the same rows {expected:.4g}"
    if each_row_agrees(case):
        seen = f"{seen}, but each row alone agrees: rows are mixed, or sorted without their targets"
        yield "loss differs", seen
        return
    name, what, loss = min(wrong_losses(case, expected), key=lambda each: abs(each[-1] - case.loss))
    if agree(case.loss, loss, within=2e-4):
        yield name, f"{seen}, and {what} {loss:.4g}", SURE
    else:
        yield "loss differs", seen


def check_comparable(case):
    """Check that the loss can be computed from the outputs."""
    check_known(case)
    if case.interface.n_answers is None:
        raise ValueError("it predicts numbers")
    counted = case.is_counted(case.inputs, case.targets)
    if case.interface.causal is None and counted.sum() != case.n_targets:
        raise ValueError(f"not known which targets count: loss_and_grad counts {case.n_targets} of {counted.size}")


def check_known(case):
    """Check that it is known what the outputs are."""
    if case.interface.compute is None:
        raise ValueError(case.interface.missing)
    if case.interface.n_answers is None and case.targets.dtype.kind != "f":
        raise ValueError("outputs(…) are not known to be logits")


def cross_entropy(case, inputs, targets, counted=None):
    """The mean cross-entropy of the targets that count, computed from the outputs."""
    if counted is None:
        counted = case.is_counted(inputs, targets)
    return reference.cross_entropy(case.outputs(inputs), np.where(counted, targets, -1), ignore_id=-1)[0]


def agree(loss, expected, within=2e-3):
    """Whether two losses are equal but for rounding."""
    return abs(loss - expected) < within * max(1, abs(expected))


def each_row_agrees(case):
    """Whether the loss of each row alone is that of its outputs."""
    n = len(case.targets)
    for i in range(n):
        row = [x[i : i + 1] if len(x) == n else x for x in case.rows]
        if not agree(case.gradient(*row)[0], cross_entropy(case, *case.split(row))):
            return False
    return True


def wrong_losses(case, expected):
    """Losses that are often computed by mistake: the name of the finding, what it is, and its value."""
    counted = case.is_counted(case.inputs, case.targets)
    yield "not the mean", "their sum", expected * counted.sum()
    if case.interface.causal is None:
        return
    *others, ids = case.inputs
    targets = case.targets
    padding = f"with the {(~counted).mean():.0%} of targets that are padding"
    yield "padding counted", padding, cross_entropy(case, case.inputs, targets, np.ones_like(counted))
    yield "targets not shifted", "with the input as targets", cross_entropy(case, case.inputs, ids)
    copied = cross_entropy(case, [*others, targets], targets)
    yield "targets not shifted", "with the targets as the input", copied
    whole = case.rows[case.interface.causal]
    with contextlib.suppress(ValueError):  # it may be too long
        yield "targets not shifted", "with the input as targets", cross_entropy(case, [*others, whole], whole)


def divided(case):
    """The loss and the gradient for another number of targets, and this number."""
    n = case.n_targets
    before = norm(case.grads)

    def ratios():
        loss, grads, _ = case.gradient(n_tokens=2 * n)
        of_gradient = norm(grads) / before if before else 0.5  # of no gradient, nothing can be said
        return loss / case.loss, of_gradient

    first = ratios()
    if norm(case.grads) != before:
        yield "gradients overwritten", "a gradient is another one after the next call"
    elif not np.allclose(first, 0.5, atol=0.01):
        again = ratios()
        if np.allclose(first, again, rtol=1e-4):
            seen = "with twice the n_tokens, the loss is {:.2g} times as large, the gradient {:.2g} times, not 0.5"
            yield "n_tokens ignored", seen.format(*first)
        else:
            seen = "two equal calls give {:.4g} and {:.4g} times the first loss, {:.4g} and {:.4g} times its gradient"
            yield "not repeatable", seen.format(first[0], again[0], first[1], again[1])
    count = case.model.count(*case.rows)
    if count != n or (case.interface.causal is not None and n != case.is_word(case.targets).sum()):
        yield "wrong count", f"count(*batch) is {count}, loss_and_grad counts {n} targets"


def at_the_start(case):
    """Whether loss and gradient are finite, and the loss of a new model is near that of equal answers."""
    if not np.isfinite(case.loss):
        yield "not finite", f"the loss is {case.loss}"
    elif tree.not_finite(case.grads):
        yield "not finite", f"the gradient holds NaN or infinity, the loss is {case.loss:.4g}"
    elif case.is_new and (case.interface.n_answers or 0) > 1:
        usual = np.log(case.interface.n_answers)
        least, most = usual_losses(case)
        if not least < case.loss < most:
            seen = f"the first loss is {case.loss:.3g}, ln {case.interface.n_answers} = {usual:.3g}"
            yield "start far from ln V", seen


def usual_losses(case):
    """The smallest and the largest loss that is usual for a new model."""
    most = np.log(case.interface.n_answers) + 3  # outputs of variance 1 to 2 add half of it
    if getattr(case.architecture, "tie_embeddings", False):  # the output of the token itself is up to √D
        most += case.architecture.d_model**0.5
    if case.n_targets < FEW:
        return 0.0, most
    counted = case.targets[case.is_counted(case.inputs, case.targets)]
    chance = loss_by_chance(counted, case.interface.n_answers)
    return 0.4 * min(chance, np.log(case.interface.n_answers)), most


def dropout(case):
    """The rate of dropout, and what a key does to the loss."""
    rates = {name: getattr(case.architecture, name, None) or 0 for name in ("dropout", "inner_dropout")}
    for name, rate in rates.items():
        if rate > 0.5:
            yield "dropout", f"{name}={rate:g}"
    rate = rates["dropout"]
    if rate and len({case.loss, *(case.loss_of(dropout_key=key) for key in (1, 2))}) < 3:
        yield "dropout has no effect", f"dropout={rate:g}, but losses with other keys, or none, are equal"


class Surprise(NamedTuple):
    """A loss, and that which the outputs themselves say is to be expected; ``answers`` are their mean."""

    loss: float
    expected: float
    answers: np.ndarray

    @property
    def excess(self):
        """How much larger the loss is than expected: about 0 after a training, 0.5 to 2.5 before it."""
        return self.loss - self.expected


def after_training(case):
    """Whether a trained model predicts its targets better than who knows their frequencies alone."""
    check_known(case)
    if not is_trained(case):
        return
    first = case.batch[0]
    length = first.shape[1] if first.ndim > 1 else 1
    n_rows = max(8, N_TOKENS // length)
    inputs, targets = case.split([x[:n_rows] if len(x) == len(first) else x for x in case.batch])
    counted = case.is_counted(inputs, targets)
    chance = loss_by_chance(targets[counted], case.interface.n_answers)
    own = surprise(case, inputs, targets, counted, case.full_params)
    # What a new model says is as wrong as it is at random. A trained one that is surer, and no better than chance,
    # has learned something else.
    if own.loss < 1.1 * chance or own.excess < excess_of_new(case, inputs, targets, counted):
        return
    seen = f"the loss of the batch is {own.loss:.3g}; the frequencies of the targets alone give {chance:.3g}"
    if case.interface.n_answers:
        seen += f", and the model expects {own.expected:.2g}"
    if case.trainer is None or case.trainer.n_steps > 0:
        yield "worse than chance", seen
    elif case.interface.n_answers:  # it goes on with another task, which may have the same words
        wrong = -np.log(own.answers[targets[counted]] + 1e-12).mean()
        if wrong > 1.1 * chance:
            yield "worse than chance", f"{seen}; if the task is new to the model, this is no mistake", LIKELY


def is_trained(case):
    """Whether biases and gains are 2% from where they begin, as after tens of steps, and nothing is as it was drawn."""
    if case.has_new_adapters:
        return False
    return len(case.movement) > 0 and case.movement.min() > 0 and np.median(case.movement) > 0.02


def loss_by_chance(targets, n_answers):
    """The mean loss of who knows the other targets of a batch, but no input: a cross-entropy, or a squared error."""
    if n_answers is None:
        n = len(targets)
        return float(targets.var(axis=0).mean()) * (n / max(n - 1, 1)) ** 2
    counts = np.bincount(targets, minlength=n_answers)
    return float(np.log((targets.size - 1 + n_answers) / counts[targets]).mean())  # each answer is counted once more


def excess_of_new(case, inputs, targets, counted):
    """The largest excess of the loss of new models."""
    most = -np.inf
    for seed in SEEDS:
        params = tree.map_leaves(beside, case.architecture.init(seed), case.full_params)
        most = max(most, surprise(case, inputs, targets, counted, params).excess)
    return most


def surprise(case, inputs, targets, counted, params):
    """The ``Surprise`` of the outputs that parameters lead to."""
    y = case.outputs(inputs, params)[counted]
    targets = targets[counted]
    if case.interface.n_answers is None:
        return Surprise(float(((y - targets) ** 2).mean()), 0.0, y.mean(axis=0))
    log_p = reference.log_softmax(y)
    p = np.exp(log_p)
    loss = -log_p[np.arange(len(targets)), targets].mean()
    return Surprise(float(loss), float(-(p * log_p).sum(axis=-1).mean()), p.mean(axis=0))


def norm(grads):
    """The norm of a gradient, given by path."""
    return math.hypot(*map(reference.global_norm, grads.values()))
