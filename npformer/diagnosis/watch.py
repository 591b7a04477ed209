"""Signs of a mistake while a training runs, and a report of what was seen.

This is what ``Trainer.fit(watch=True)`` calls: ``Watch`` sees batches and steps, the functions
below it are the questions.
"""

import re
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.checks import warn
from npformer.diagnosis import Findings
from npformer.diagnosis.finding import Finding, causes_of
from npformer.diagnosis.frequencies import Frequencies, long_rows
from npformer.diagnosis.pairs import fits_by_shift
from npformer.models.batch import check_batches, mean_loss
from npformer.plots import plot_loss
from npformer.runtime.ranks import checksum

EVERY = 50  # steps between two looks at the arrays, which read all of them
RECENT = 40  # steps that are compared
SAME = 10  # equal batches that are a sign
UNLIKE = 1000  # steps after which the inputs have to help, if pairs of rows do not fit
MATCHED = 2000  # steps after which they have to help in any case
# Nats by which entries are more surprising: ids 1.6 times, where 0.1 is usual in another text of
# the same language, and numbers 7 times, where 0.5 is a shift by their standard deviation.
DIVERGENT = {"i": 0.5, "u": 0.5, "f": 2.0}


class Sizes(NamedTuple):
    """The norms of the parameters of a layer or a table, of their gradient and of one update."""

    weights: float
    gradient: float
    update: float


class Watch:
    """A callback of ``fit`` that warns of signs of a mistake, each once, and logs them."""

    def __init__(self, trainer, write, known=None, held_out=()):
        self.trainer = trainer
        self.write = write
        self.steps = []
        self.findings = Findings(known or ())
        self.examines_first = known is None
        self.held_out = held_out  # batches of the validation
        self.pad_id = getattr(trainer.model, "pad_id", None)
        # of the batches
        self.first = []  # some of them, until they are compared
        self.first_rows = set[bytes]()
        self.is_repeated = False  # whether one of these rows came again
        self.fits = []  # how well rows fit their own targets
        self.earlier = Frequencies()  # of all targets, and of those of the last ``RECENT`` steps
        self.recent = Frequencies(self.pad_id)
        self.divergent = np.inf
        # of the arrays; the buffer is made once, as memory is slow when it is new
        self.is_due = False
        self.before = np.empty_like(trainer.flat_params)
        self.parts = dict[str, Sizes]()  # in the last look
        self.highest = -1.0  # the rate, and update ÷ weights in the look with it
        self.ratios = dict[str, float]()

    # -- batches

    def of(self, batches):
        """The same batches, which are looked at before their steps are made."""
        for n, batch in enumerate(batches, start=1):
            if n <= SAME:
                self._look_at_first(batch, n)
            self._look_at_rows(batch, n)
            self._look_at_pairs(batch, n)
            yield batch

    def _look_at_first(self, batch, n):
        check_batches([batch])  # as its step does, but before it is read here
        if n == 1 and self.examines_first:
            findings = self.trainer.diagnose(*batch, quick=True)
            self.tell((each.name, each.seen, each.sure) for each in findings)
        self.first.append(tuple(map(on_host, batch)))
        if n == SAME:
            self.tell(repetition(self.first))
            self.tell(other_validation(self.first, self.held_out, self.pad_id))
            self.first.clear()

    def _look_at_rows(self, batch, n):
        """Count the targets, and look whether rows of the first batches come again."""
        targets = on_host(batch[min(1, len(batch) - 1)])
        self.recent.add(targets)
        self.divergent = DIVERGENT.get(targets.dtype.kind, np.inf)
        if n <= SAME or (n % SAME == 0 and not self.is_repeated):
            rows = long_rows(batch, self.pad_id)
            self.is_repeated = self.is_repeated or not self.first_rows.isdisjoint(rows)
            if n <= SAME:
                self.first_rows |= rows

    def _look_at_pairs(self, batch, n):
        """Compare inputs with their targets: rows that are alike, and later the loss of others."""
        if len(batch) < 2:
            return
        if n <= UNLIKE and n % SAME == 0:
            x = np.asarray(on_host(batch[0]))
            y = np.asarray(on_host(batch[1]))
            are_ids = x.dtype.kind in "iu" and y.dtype.kind in "iu" and x.ndim == y.ndim == 2
            if are_ids and len(x) == len(y) > 7:
                self.fits.append(fits_by_shift(x, y)[0])
        is_unlike = n == UNLIKE and self.fits and np.mean(self.fits) < 0.5
        if (n % MATCHED == 0 or is_unlike) and len(batch[0]) > 3:
            self.tell(strangers(self.trainer, batch))

    # -- steps

    def __call__(self, trainer, info):
        """Look at a step."""
        self.steps.append(info)
        self.tell(self._signs(info))
        # A rank has a part of the gradient.
        self.is_due = len(self.steps) % EVERY == 1 and trainer.ranks.alone
        if self.is_due:
            self.before[...] = trainer.flat_params

    def _signs(self, info):
        yield from of_step(self.steps)
        yield from of_validation(self.steps, self.trainer.state.validations, self.is_repeated)
        if len(self.steps) % RECENT == 0:
            yield from other_targets(self.recent, self.earlier, self.divergent)
            yield from of_means(self.steps)
            self.earlier.add_counts(self.recent.counts)
            self.recent = Frequencies(self.pad_id)
        if self.is_due:
            self._look_at_arrays(info)
            yield from of_updates(info, self.parts)

    def _look_at_arrays(self, info):
        """Measure parameters, gradient and last update."""
        update = np.subtract(self.trainer.flat_params, self.before, out=self.before)
        self.parts = sizes_of_parts(self.trainer, update)
        if info.lr >= self.highest:
            self.highest = info.lr
            for name, x in self.parts.items():
                self.ratios[name] = x.update / max(x.weights, 1e-30)

    def tell(self, signs):
        """Warn of what is new, and does not follow from what is known."""
        for sign in signs:
            finding = Finding.named(*sign)
            is_new = finding.name not in self.findings.names
            if is_new and finding in causes_of([*self.findings, finding]):
                self.findings.append(finding)
                n_steps = self.trainer.n_steps
                self.write({"step": n_steps, "finding": finding.name, "seen": finding.seen})
                if self.trainer.ranks.is_first:
                    warn(f"after step {n_steps}: {finding}")

    def report(self, path=None):
        """The table of what was seen, and the curves of the loss and the rate in a picture."""
        if not self.steps:
            return "no step was made"
        if path is not None:
            plot_loss(self.steps, path)
        row = "{:<24}{:>10}{:>10}{:>18}".format
        lines = [row("part", "weights", "gradient", "update ÷ weights")]
        for name, x in self.parts.items():
            ratio = self.ratios[name]
            lines.append(row(name, f"{x.weights:.3g}", f"{x.gradient:.2g}", f"{ratio:.2g}"))
        ends = self.steps[0], self.steps[-1]
        lines += [f"step {x.step}: loss {x.loss:.4g}, lr {x.lr:.2g}" for x in ends]
        return "\n".join([*lines, "", repr(self.findings)])


# -- questions about batches


def repetition(batches):
    """Whether the first batches differ."""
    if len({checksum(batch) for batch in batches}) == 1:
        message = f"the first {len(batches)} batches are the same"
        yield "one batch again and again", message


def other_validation(batches, held_out, pad_id):
    """Whether the entries of the first batches are as frequent in the validation."""
    n_arrays = min(len(batch) for batch in [*batches, *held_out])
    for which in range(n_arrays):
        kind = batches[0][which].dtype.kind
        if kind not in DIVERGENT or batches[0][which].ndim < 2:
            continue
        training = Frequencies(pad_id, [batch[which] for batch in batches])
        validation = Frequencies(pad_id, [on_host(batch[which]) for batch in held_out])
        divergence = validation.divergence(training)
        if divergence > DIVERGENT[kind]:
            message = f"by their frequencies, entries of batch[{which}] are"
            message += f" {np.exp(divergence):.2g} times as surprising in the validation as in the"
            yield "validation differs", f"{message} first {SAME} batches"


def strangers(trainer, batch):
    """Whether targets are predicted as well from the inputs of other rows as from their own."""
    mixed = np.roll(batch[0], 1, axis=0), *batch[1:]
    loss = mean_loss(trainer, trainer.params, [batch])
    other = mean_loss(trainer, trainer.params, [mixed])
    if other < 1.005 * loss:
        message = f"the loss of a batch is {loss:.4g}, with the inputs of other rows {other:.4g}"
        yield "rows do not match", message


def other_targets(recent, earlier, divergent):
    """Whether the targets of the last steps are others than those before them."""
    divergence = recent.divergence(earlier)
    if divergence > divergent:
        message = f"targets of the last {RECENT} steps are {np.exp(divergence):.2g} times as"
        message += " surprising as those before them, by their frequencies"
        yield "rows in order", message


# -- questions about steps


def of_step(steps):
    """Signs in the norm of the last gradient, and in the rate."""
    info = steps[-1]
    if info.grad_norm == 0:
        yield "no gradient", "the norm of the whole gradient is 0"
    if len(steps) > 1 and info.lr == steps[-2].lr == 0:  # the last of a schedule may be 0
        message = f"the rate is 0 since step {info.step - 1}: the schedule is over"
        yield "rate too small", message


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
    message = f"val_loss is {last:.4g} now, and was {best:.4g} after step {best_step}"
    message += f"; the loss in training fell from {loss_before:.4g} to {loss:.4g}"
    if is_repeated:
        yield "overfitting", message
    elif last > 1.1 * loss:  # else both may be near what can be reached
        message += ", and no row came twice that could be learned by heart"
        yield "validation differs", message


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
        yield "rate too large", message
    elif len(means) > 4 and steps[0].step == 1 and last > 0.97 * steps[0].loss:
        yield "stuck", message


def of_updates(info, parts):
    """Whether a step changes a part by much of its size."""
    for name, x in parts.items():
        if x.update > 0.25 * x.weights > 0:
            ratio = f"{x.update / x.weights:.2g}"
            message = f"step {info.step} changes {name} by {ratio} of its size"
            yield "rate too large", message


def sizes_of_parts(trainer, update):
    """The ``Sizes`` of each layer and each table, but for biases, which begin as 0."""
    parts = dict[str, Sizes]()
    flats = trainer.flat_params, trainer.state.flat_grads, update
    trees = [tree.leaves(tree.view_as(flat, trainer.params)) for flat in flats]
    for leaves in zip(*trees, strict=True):
        path, x = leaves[0]
        if x.ndim < 2:
            continue
        name = re.match(r".*?\.\d+|[^.]*", path)[0]  # a layer, or a table
        norms = [float(trainer.ops.global_norm(y)) for _, y in leaves]
        parts[name] = Sizes(*np.hypot(parts.get(name, 0), norms))
    return parts
