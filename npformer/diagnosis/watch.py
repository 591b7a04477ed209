"""Signs of a mistake while a training runs, and a report of what was seen: ``Trainer.fit(watch=True)``."""

import re

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.checks import warn
from npformer.diagnosis import Findings
from npformer.diagnosis.data import Frequencies, fits_by_shift, long_rows
from npformer.diagnosis.finding import Finding, causes_of
from npformer.models.batch import check_batches, mean_loss
from npformer.plots import plot_loss
from npformer.runtime.ranks import checksum

EVERY, RECENT = 50, 40  # steps between two looks at the arrays, which read all of them; steps that are compared
SAME, UNLIKE, MATCHED = 10, 1000, 2000  # equal batches that are a sign; steps after which the inputs have to help
# Nats by which entries are more surprising: ids 1.6 times, where 0.1 is usual in another text of the same language, and
# numbers 7 times, where 0.5 is a shift by their standard deviation.
DIVERGENT = {"i": 0.5, "u": 0.5, "f": 2.0}


class Watch:
    """A callback of ``fit`` that warns of signs of a mistake, each once, and writes them to the log."""

    def __init__(self, trainer, write, known=None, held_out=()):
        self.trainer, self.write, self.steps, self.findings = trainer, write, [], Findings(known or ())
        self.examines_first = known is None
        self.is_due, self.before = False, np.empty_like(trainer.flat_params)  # once, as memory is slow when it is new
        self.parts = dict[str, np.ndarray]()  # (weights, gradient, update) in the last look
        self.highest, self.ratios = -1.0, dict[str, float]()  # the rate, and update ÷ weights in the look with it
        self.pad_id = getattr(trainer.model, "pad_id", None)
        self.held_out = held_out  # batches of the validation
        self.first_rows = set[bytes]()  # of the first batches
        self.is_repeated = False  # whether one of them came again
        self.earlier, self.recent = Frequencies(), Frequencies(self.pad_id)  # of targets; of the last ``RECENT`` steps
        self.usual = np.inf  # divergence between the two

    def of(self, batches):
        """The same batches, which are looked at before their steps are made."""
        first, fits = [], []
        for n, batch in enumerate(batches, start=1):
            if n <= SAME:
                check_batches([batch])  # as its step does, but before it is read here
                if n == 1 and self.examines_first:
                    self.tell(self.trainer.diagnose(*batch, quick=True))
                first.append(tuple(map(on_host, batch)))
            if n == SAME:
                self.tell(self._compare_first(first))
                first.clear()
            self._look_at_rows(batch, n)
            if n <= UNLIKE and n % SAME == 0 and len(batch) > 1:
                x, y = (np.asarray(on_host(each)) for each in batch[:2])
                if {x.dtype.kind, y.dtype.kind} <= {*"iu"} and x.ndim == y.ndim == 2 and len(x) == len(y) > 7:
                    fits.append(fits_by_shift(x, y)[0])
            is_unlike = n == UNLIKE and fits and np.mean(fits) < 0.5
            if (n % MATCHED == 0 or is_unlike) and len(batch) > 1 and len(batch[0]) > 3:
                self.tell(self._compare_pairs(batch))
            yield batch

    def _compare_first(self, batches):
        """Whether the first batches differ, and have the ids of the validation as often."""
        if len({checksum(batch) for batch in batches}) == 1:
            yield Finding.named("one batch again and again", f"the first {len(batches)} batches are the same")
        for which in range(min(map(len, [*batches, *self.held_out]))):
            kind = batches[0][which].dtype.kind
            if kind not in DIVERGENT or batches[0][which].ndim < 2:
                continue
            training, validation = Frequencies(self.pad_id), Frequencies(self.pad_id)
            for batch in batches:
                training.add(batch[which])
            for batch in self.held_out:
                validation.add(on_host(batch[which]))
            divergence = validation.divergence(training)
            if divergence > DIVERGENT[kind]:
                times = f"{np.exp(divergence):.2g} times as surprising"
                seen = f"by their frequencies, entries of batch[{which}] are {times}"
                yield Finding.named("validation differs", f"{seen} in the validation as in the first {SAME} batches")

    def _look_at_rows(self, batch, n):
        """Count the targets, and look whether rows of the first batches come again."""
        targets = on_host(batch[min(1, len(batch) - 1)])
        self.recent.add(targets)
        self.usual = DIVERGENT.get(targets.dtype.kind, np.inf)
        if n <= SAME or (n % SAME == 0 and not self.is_repeated):
            rows = long_rows(batch, self.pad_id)
            self.is_repeated = self.is_repeated or not self.first_rows.isdisjoint(rows)
            if n <= SAME:
                self.first_rows |= rows

    def _compare_pairs(self, batch):
        """Whether targets are predicted better from their own inputs than from those of other rows."""
        mixed = np.roll(batch[0], 1, axis=0), *batch[1:]
        own, other = (mean_loss(self.trainer, self.trainer.params, [each]) for each in (batch, mixed))
        if other < 1.005 * own:
            seen = f"the loss of a batch is {own:.4g}, with the inputs of other rows {other:.4g}"
            yield Finding.named("rows do not match", seen)

    def __call__(self, trainer, info):
        """Look at a step."""
        self.steps.append(info)
        signs = [*self._signs(info), *(self._look(info) if self.is_due else ())]
        self.is_due = len(self.steps) % EVERY == 1 and trainer.ranks.alone  # a rank has a part of the gradient
        if self.is_due:
            self.before[...] = trainer.flat_params
        self.tell(Finding.named(*sign) for sign in signs)

    def tell(self, findings):
        """Warn of what is new, and does not follow from what is known."""
        for finding in findings:
            is_new = finding.name not in self.findings.names
            if is_new and finding in causes_of([*self.findings, finding]):
                self.findings.append(finding)
                self.write({"step": self.trainer.n_steps, "finding": finding.name, "seen": finding.seen})
                if self.trainer.ranks.is_first:
                    warn(f"after step {self.trainer.n_steps}: {finding}")

    def _look(self, info):
        """Signs in the size of each part's parameters, gradient and last update."""
        params, self.parts = self.trainer.params, {}
        moved = np.subtract(self.trainer.flat_params, self.before, out=self.before)
        flats = self.trainer.flat_params, self.trainer.state.flat_grads, moved
        for (path, x), (_, g), (_, d) in zip(*(tree.leaves(tree.view_as(y, params)) for y in flats), strict=True):
            if x.ndim > 1:  # a bias begins as 0
                name = re.match(r".*?\.\d+|[^.]*", path)[0]  # a layer, or a table
                norms = [float(self.trainer.ops.global_norm(y)) for y in (x, g, d)]
                self.parts[name] = np.hypot(self.parts.get(name, 0), norms)
        if info.lr >= self.highest:
            self.highest, self.ratios = info.lr, {name: d / max(x, 1e-30) for name, (x, _, d) in self.parts.items()}
        for name, (size, _, update) in self.parts.items():
            if update > 0.25 * size > 0:
                yield "rate too large", f"step {info.step} changes {name} by {update / size:.2g} of its size"

    def _signs(self, info):
        """Signs in the numbers of the steps."""
        if info.grad_norm == 0:
            yield "no gradient", "the norm of the whole gradient is 0"
        if info.lr == 0 and any(each.lr == 0 for each in self.steps[-2:-1]):  # the last of a schedule may be 0
            yield "rate too small", f"the rate is 0 since step {info.step - 1}: the schedule is over"
        own = [each for each in self.trainer.state.validations if each["step"] >= self.steps[0].step]
        results = [(each["val_loss"], each["step"]) for each in own if "val_loss" in each]
        if len(results) > 3 and results[-1][1] == info.step and results[-1][0] > 1.05 * (best := min(results))[0]:
            losses = [np.mean([x.loss for x in self.steps if x.step <= n][-RECENT:]) for n in (best[1], info.step)]
            if min(results[-3:]) > best and losses[1] < losses[0]:
                seen = f"val_loss is {results[-1][0]:.4g} now, and was {best[0]:.4g} after step {best[1]}"
                seen += f"; the loss in training fell from {losses[0]:.4g} to {losses[1]:.4g}"
                if self.is_repeated:
                    yield "overfitting", seen
                elif results[-1][0] > 1.1 * losses[1]:  # else both may be near what can be reached
                    yield "validation differs", f"{seen}, and no row came twice that could be learned by heart"
        if len(self.steps) % RECENT == 0:
            means = np.mean(np.reshape([each.loss for each in self.steps], (-1, RECENT)), axis=1)
            seen = f"means of {RECENT} losses are {means[0]:.4g} at first, {min(means):.4g}, and {means[-1]:.4g} now"
            divergence = self.recent.divergence(self.earlier)
            self.earlier.add_all(self.recent)
            self.recent = Frequencies(self.pad_id)
            if divergence > self.usual:
                times = f"{np.exp(divergence):.2g} times as surprising as those before them"
                yield "rows in order", f"targets of the last {RECENT} steps are {times}, by their frequencies"
            elif means[-1] > max(1.3 * min(means), 0.7 * means[0]):
                yield "rate too large", seen
            elif len(means) > 4 and self.steps[0].step == 1 and means[-1] > 0.97 * self.steps[0].loss:
                yield "stuck", seen

    def report(self, path=None):
        """The table of what was seen, and the curves of the loss and the rate, if there is a path for a picture."""
        if not self.steps:
            return "no step was made"
        if path is not None:
            plot_loss(self.steps, path)
        lines = ["{:<24}{:>10}{:>10}{:>18}".format("part", "weights", "gradient", "update ÷ weights")]
        lines += [f"{name:<24}{w:>10.3g}{g:>10.2g}{self.ratios[name]:>18.2g}" for name, (w, g, _) in self.parts.items()]
        lines += [f"step {x.step}: loss {x.loss:.4g}, lr {x.lr:.2g}" for x in (self.steps[0], self.steps[-1])]
        return "\n".join([*lines, "", repr(self.findings)])
