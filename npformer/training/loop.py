"""The training loop: steps, validations, checkpoints, and when it ends."""

import time
from collections.abc import Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from npformer.operations.options import check_fields, check_option
from npformer.runtime.interrupts import deferred_interrupts
from npformer.training.json_log import JsonLog
from npformer.training.lock import locked
from npformer.training.progress import progress_bar, say

LAST, BEST, LOG = "last.safetensors", "best.safetensors", "log.jsonl"
END = object()  # of the batches


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """When a loop validates, saves and ends: see ``Trainer.fit``."""

    every: int | None = None
    save_every: int = 100
    patience: int | None = None
    monitor: str = "val_loss"
    mode: Literal["min", "max"] = "min"
    keep: Literal["best and last", "last"] = "best and last"
    minutes: float | None = None

    def __post_init__(self):
        check_fields(self)


class Loop:
    """Makes the steps of a training, validates, saves and stops: see ``Trainer.fit``.

    A subclass may save more: ``TranslationRun`` does.

    Parameters
    ----------
    trainer : Trainer
    settings : LoopSettings
    validate : callable, optional
        ``validate()`` -> dict of numbers, with the one that is monitored.
    folder : Path, optional
        For checkpoints and the log; nothing is written if there is none.
    """

    def __init__(self, trainer, settings, validate=None, folder=None):
        self.trainer, self.loop_settings, self.evaluate = trainer, settings, validate
        self.folder = None if folder is None else Path(folder)
        self.log: JsonLog | None = None  # open while the loop runs, on rank 0
        self.began = time.perf_counter()
        self.slowest = 0.0  # seconds of a validation, which the time limit has to leave
        for name in ("patience", "every"):
            if validate is None and (value := getattr(settings, name)) is not None:
                raise ValueError(f"{name}={value} without validate: give validate=batches, or no {name}")

    @property
    def ranks(self):
        """The processes that compute the training together."""
        return self.trainer.ranks

    @property
    def validations(self) -> list[dict]:
        """The records of all validations, which a checkpoint holds."""
        return self.trainer.state.validations

    def run(self, batches: Iterable[tuple], n_steps: int | None = None, *, callbacks=(), progress=True) -> list:
        """Make one step for each batch, at most ``n_steps``; return the ``StepInfo`` of each."""
        trainer, history = self.trainer, []
        if n_steps is not None:
            n_steps = check_option("n_steps", n_steps)
        callbacks = list(callbacks)  # an iterator would call them after the first step only
        last_step = None if n_steps is None else trainer.n_steps + n_steps
        with self._opened(), progress_bar(last_step, progress and self.ranks.is_first, trainer.n_steps) as bar:
            self._validate_if_due(last_step)  # the last run was interrupted during a validation
            upcoming = islice(batches, n_steps)
            while not self._gets_worse() and (batch := self._next(upcoming)) is not END:
                trainer.step(batches=[batch])
                info = trainer.last
                history.append(info)
                self.write(self.record_of(info))
                bar.advance(info)
                self._validate_if_due(last_step)
                if info.step % self.loop_settings.save_every == 0:
                    self.save()
                if self._wants_to_stop(callbacks, info):
                    break
            else:  # the batches or the patience have ended
                self._validate_if_due(trainer.n_steps)
            self.save()
        return history

    def record_of(self, info) -> dict:
        """What the log says of a step."""
        return info._asdict()

    def write(self, record):
        """Append a record to the log."""
        if self.log is not None:
            self.log.write(record)
            self.trainer.state.n_logged = self.log.n_records

    def save(self):
        """Save the checkpoint from which the training can go on."""
        if self.folder is not None:
            self.trainer.save(self.folder / LAST)

    def validate(self):
        """Validate, and note the result: the record of the validation."""
        began = time.perf_counter()
        record = {"step": self.trainer.n_steps, **self.evaluate()}
        if self.loop_settings.monitor not in record:
            raise ValueError(
                f"monitor={self.loop_settings.monitor!r}, expected one of what validate returns: {list(record)[1:]}"
            )
        self.validations.append(record)
        self.slowest = max(self.slowest, time.perf_counter() - began)
        self.keep(record)
        return record

    def keep(self, record):
        """Save the parameters of a validation, if they are the best so far, and tell its numbers."""
        say(", ".join(f"{name} {value:.6g}" for name, value in record.items()))
        if self.folder is not None and self.loop_settings.keep != "last" and self._since_the_best() == 0:
            self.trainer.save(self.folder / BEST)

    def _since_the_best(self):
        """The number of validations since the best one, which is the first of equal ones."""
        values = [record[self.loop_settings.monitor] for record in self.validations]
        best = (min if self.loop_settings.mode == "min" else max)(values)
        return len(values) - 1 - values.index(best)

    def _gets_worse(self):
        """Whether the best validation is at least ``patience`` validations ago."""
        patience = self.loop_settings.patience
        return patience is not None and bool(self.validations) and self._since_the_best() >= patience

    def _validate_if_due(self, last_step):
        """Validate after every so many steps and after the last, unless that was done."""
        step, validations = self.trainer.n_steps, self.validations
        if self.evaluate is None or step == 0 or (validations and validations[-1]["step"] == step):
            return
        every = self.loop_settings.every
        if step == last_step or (every is not None and step % every == 0) or self._needs_to_know_its_time():
            self.save()  # a validation takes a while; if it is interrupted, no step is lost
            self.write(self.validate())

    def _needs_to_know_its_time(self):
        """Whether half of the time limit is over, and it is not known how much of it a validation needs."""
        minutes = self.loop_settings.minutes  # without a limit, no message goes to the other ranks
        return minutes is not None and self.ranks.any(not self.slowest and self._time_left() < 30 * minutes)

    def _time_left(self):
        """Seconds until the time limit."""
        minutes = self.loop_settings.minutes
        return float("inf") if minutes is None else self.began + 60 * minutes - time.perf_counter()

    def _wants_to_stop(self, callbacks, info):
        """Whether a callback wants to stop on any rank, or the time is over but for a last validation."""
        try:
            results = [callback(self.trainer, info) for callback in callbacks]
        except (Exception, KeyboardInterrupt):
            if self.ranks.alone:  # other ranks may not have raised it
                self.save()
            raise
        wish = any(isinstance(result, (bool, np.bool_)) and result for result in results)  # a number is no wish
        with deferred_interrupts():
            return self.ranks.any(wish or self._time_left() < self.slowest)  # all ranks stop after the same step

    def _next(self, batches):
        """The next batch, ``END`` after the last, which has to come on all ranks at once."""
        batch = next(batches, END)
        with deferred_interrupts():
            self.ranks.agree(lambda: {"batches_end": batch is END})
        return batch

    @contextmanager
    def _opened(self):
        """The log, in a folder that is locked against other trainings; on ranks other than 0 there is none."""
        with ExitStack() as stack:

            def opened():
                stack.enter_context(locked(self.folder))
                if self.trainer.n_steps == 0 and (self.folder / LAST).exists():
                    raise ValueError(
                        f"save={str(self.folder)!r} holds a training: load its {LAST} first, or choose another folder"
                    )
                self.log = stack.enter_context(JsonLog(self.folder / LOG, keep=self.trainer.state.n_logged))

            if self.folder is not None:
                self.ranks.first(opened)
            try:
                yield
            finally:
                self.log = None
