"""Signs of a mistake while a training runs, and a report of what was seen: ``Trainer.fit(watch=True)``."""

import re

import numpy as np

from npformer import tree
from npformer.checks import warn
from npformer.diagnosis import Findings
from npformer.diagnosis.finding import TABLE, Finding
from npformer.plots import plot_loss

EVERY, RECENT = 50, 40  # steps between two looks at the arrays, which read all of them; steps that are compared


class Watch:
    """A callback of ``fit`` that warns of signs of a mistake, each once, and writes them to the log."""

    def __init__(self, trainer, write):
        self.trainer, self.write, self.steps, self.findings = trainer, write, [], Findings()
        self.before, self.parts = None, dict[str, np.ndarray]()  # (weights, gradient, update) in the last look

    def of(self, batches):
        """The same batches; the first one is examined before its step is made."""
        batches = iter(batches)
        for first in batches:
            self.tell(self.trainer.diagnose(*first, quick=True))
            yield first
            yield from batches

    def __call__(self, trainer, info):
        """Look at a step."""
        self.steps.append(info)
        signs = [*self._signs(info), *(() if self.before is None else self._look(info))]
        is_due = len(self.steps) % EVERY == 1 and trainer.ranks.alone  # a rank has a part of the gradient
        self.before = trainer.flat_params.copy() if is_due else None
        self.tell(Finding(name, seen, *TABLE[name]) for name, seen in signs)

    def tell(self, findings):
        """Warn of what is new."""
        for finding in findings:
            if finding.name not in self.findings.names:
                self.findings.append(finding)
                self.write({"step": self.trainer.n_steps, "finding": finding.name, "seen": finding.seen})
                if self.trainer.ranks.is_first:
                    warn(f"after step {self.trainer.n_steps}: {finding}")

    def _look(self, info):
        """Signs in the size of each part's parameters, gradient and last update."""
        params, self.parts = self.trainer.params, {}
        flats = self.trainer.flat_params, self.trainer.sums.flat, self.trainer.flat_params - self.before
        for (path, x), (_, g), (_, d) in zip(*(tree.leaves(tree.view_as(y, params)) for y in flats), strict=True):
            if x.ndim > 1:  # a bias begins as 0
                name = re.match(r".*?\.\d+|[^.]*", path)[0]  # a layer, or a table
                self.parts[name] = np.hypot(self.parts.get(name, 0), [float(np.linalg.norm(y)) for y in (x, g, d)])
        for name, (size, _, update) in self.parts.items():
            if update > 0.25 * size > 0:
                yield "rate too large", f"step {info.step} changes {name} by {update / size:.2g} of its size"

    def _signs(self, info):
        """Signs in the numbers of the steps."""
        if info.grad_norm == 0:
            yield "no gradient", "the norm of the whole gradient is 0"
        if len(self.steps) % RECENT == 0:
            means = np.mean(np.reshape([each.loss for each in self.steps], (-1, RECENT)), axis=1)
            seen = f"means of {RECENT} losses are {means[0]:.4g} at first, {min(means):.4g}, and {means[-1]:.4g} now"
            if means[-1] > max(1.3 * min(means), 0.7 * means[0]):
                yield "rate too large", seen
            elif len(means) > 4 and self.steps[0].step == 1 and means[-1] > 0.97 * self.steps[0].loss:
                yield "stuck", seen

    def report(self, path=None):
        """The table of what was seen, and the curves of the loss and the rate, if there is a path for a picture."""
        if path is not None:
            plot_loss(self.steps, path)
        lines = ["{:<24}{:>10}{:>10}{:>18}".format("part", "weights", "gradient", "update ÷ weights")]
        lines += [f"{name:<24}{w:>10.3g}{g:>10.2g}{u / max(w, 1e-30):>18.2g}" for name, (w, g, u) in self.parts.items()]
        lines += [f"step {x.step}: loss {x.loss:.4g}, lr {x.lr:.2g}" for x in (self.steps[0], self.steps[-1])]
        return "\n".join([*lines, "", repr(self.findings)])
