"""Signs of a mistake while a training runs, and a report: ``Trainer.fit(watch=True)``."""

import re

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.checks import warn
from npformer.diagnosis import Findings, signs
from npformer.diagnosis.finding import causes_of
from npformer.diagnosis.frequencies import Frequencies, long_rows
from npformer.diagnosis.questions.pairs import fits_by_shift
from npformer.models.batch import check_batches
from npformer.plots import plot_loss

EVERY = 50  # steps between two looks at the arrays, which read all of them
SAME = 10  # equal batches that are a sign
UNLIKE = 1000  # steps after which the inputs have to help, if pairs of rows do not fit
MATCHED = 2000  # steps after which they have to help in any case


class Watched:
    """What was seen of a training. A trainer keeps it, so it refers to no trainer and no arrays."""

    def __init__(self, known):
        self.findings = Findings(known)
        self.steps = []
        self.parts = dict[str, signs.Norms]()  # in the last look at the arrays
        self.highest = -1.0  # the rate, and the parts in the look with it
        self.at_highest = self.parts

    def add_norms(self, parts, lr):
        """Note the norms of a look at the arrays, and the rate of its step."""
        self.parts = parts
        if lr >= self.highest:
            self.highest = lr
            self.at_highest = parts

    def report(self, path=None):
        """The table of what was seen, and the curves of the loss and the rate in a picture."""
        if not self.steps:
            return "no step was made"
        if path is not None:
            plot_loss(self.steps, path)
        lines = self._table()
        ends = self.steps[0], self.steps[-1]
        lines += [f"step {x.step}: loss {x.loss:.4g}, lr {x.lr:.2g}" for x in ends]
        return "\n".join([*lines, "", repr(self.findings)])

    def _table(self):
        """The lines of a table of the parts."""
        row = "{:<24}{:>10}{:>10}{:>18}".format
        lines = [row("part", "weights", "gradient", "update ÷ weights")]
        for name, x in self.parts.items():
            ratio = f"{self.at_highest[name].ratio:.2g}"
            lines.append(row(name, f"{x.weights:.3g}", f"{x.gradient:.2g}", ratio))
        return lines


class Watch:
    """A callback of ``fit`` that warns of signs of a mistake, each once, and logs them.

    ``write`` appends a record to the log, ``known`` is what ``diagnose`` has found in the first
    batch, which is examined otherwise, and ``held_out`` are the batches of the validation.
    """

    def __init__(self, trainer, write, known=None, held_out=()):
        self.trainer = trainer
        self.write = write
        self.watched = Watched(known or ())
        self.examines_first = known is None
        self.batches = SeenBatches(trainer, held_out)
        self.params_before = np.empty_like(trainer.flat_params)  # once, as new memory is slow

    def of(self, batches):
        """The same batches, which are looked at before their steps are made."""
        for n, batch in enumerate(batches, start=1):
            check_batches([batch])  # as its step does, but before it is read here
            if n == 1 and self.examines_first:
                self.tell(self.trainer.diagnose(*batch, quick=True))
            self.tell(self.batches.look(batch, n))
            yield batch

    def __call__(self, trainer, info):
        """Look at a step."""
        steps = self.watched.steps
        steps.append(info)
        n = len(steps)
        self.tell(signs.of_step(steps))
        validations = trainer.state.validations
        self.tell(signs.of_validation(steps, validations, self.batches.is_repeated))
        if n % signs.RECENT == 0:
            self.tell(self.batches.compare_targets())
            self.tell(signs.of_means(steps))
        if trainer.ranks.is_alone:  # else a rank has a part of the gradient
            if n % EVERY == 1:
                self.params_before[...] = trainer.flat_params
            if n % EVERY == 2:  # the step after that
                update = np.subtract(
                    trainer.flat_params, self.params_before, out=self.params_before
                )
                parts = norms_of_parts(trainer, update)
                self.watched.add_norms(parts, info.lr)
                self.tell(signs.of_updates(info, parts))

    def tell(self, findings):
        """Warn of what is new, and does not follow from what is known."""
        known = self.watched.findings
        for finding in findings:
            is_new = finding.name not in known.names
            if is_new and finding in causes_of([*known, finding]):
                known.append(finding)
                n_steps = self.trainer.n_steps
                self.write({"step": n_steps, "finding": finding.name, "seen": finding.seen})
                if self.trainer.ranks.is_first:
                    warn(f"after step {n_steps}: {finding}")


class SeenBatches:
    """What was seen of the batches: the first ones, their rows, pairs, and all targets."""

    def __init__(self, trainer, held_out):
        self.trainer = trainer
        self.held_out = held_out  # batches of the validation
        self.pad_id = getattr(trainer.model, "pad_id", None)
        self.first = []  # until they are compared
        self.first_rows = set[bytes]()
        self.is_repeated = False  # whether one of these rows came again
        self.fits = []  # how well targets fit their own inputs
        self.earlier = Frequencies()  # of targets
        self.recent = Frequencies(self.pad_id)

    def look(self, batch, n):
        """Signs in the batch of step n."""
        if n <= SAME:
            self.first.append(tuple(map(on_host, batch)))
        if n == SAME:
            yield from signs.repetition(self.first)
            yield from signs.other_validation(self.first, self.held_out, self.pad_id)
            self.first.clear()
        self.recent.add(on_host(batch[min(1, len(batch) - 1)]))
        self._look_at_rows(batch, n)
        if len(batch) > 1:
            yield from self._look_at_pairs(batch, n)

    def compare_targets(self):
        """Signs in the targets since the last call."""
        yield from signs.other_targets(self.recent, self.earlier)
        self.earlier.add_counts(self.recent.counts)
        self.recent = Frequencies(self.pad_id)

    def _look_at_rows(self, batch, n):
        """Look whether rows of the first batches come again."""
        if n <= SAME or (n % SAME == 0 and not self.is_repeated):
            rows = long_rows(batch, self.pad_id)
            self.is_repeated = self.is_repeated or not self.first_rows.isdisjoint(rows)
            if n <= SAME:
                self.first_rows |= rows

    def _look_at_pairs(self, batch, n):
        """Compare inputs with their targets: rows that are alike, and later the loss of others."""
        if n <= UNLIKE and n % SAME == 0:
            x = np.asarray(on_host(batch[0]))
            y = np.asarray(on_host(batch[1]))
            are_ids = x.dtype.kind in "iu" and y.dtype.kind in "iu" and x.ndim == y.ndim == 2
            if are_ids and len(x) == len(y) > 7:
                self.fits.append(fits_by_shift(x, y)[0])
        is_unlike = n == UNLIKE and self.fits and np.mean(self.fits) < 0.5
        if (n % MATCHED == 0 or is_unlike) and len(batch[0]) > 3:
            yield from signs.strangers(self.trainer, batch)


def norms_of_parts(trainer, update):
    """The ``Norms`` of each layer and each table, except for biases, which begin as 0."""
    parts = dict[str, signs.Norms]()
    flats = trainer.flat_params, trainer.state.flat_grads, update
    trees = [tree.leaves(tree.view_as(flat, trainer.params)) for flat in flats]
    for leaves in zip(*trees, strict=True):
        path, x = leaves[0]
        if x.ndim < 2:
            continue
        name = re.match(r".*?\.\d+|[^.]*", path)[0]  # a layer, or a table
        norms = [float(trainer.ops.global_norm(y)) for _, y in leaves]
        parts[name] = signs.Norms(*np.hypot(parts.get(name, 0), norms))
    return parts
