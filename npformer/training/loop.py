"""The training loop: steps, validations, checkpoints, and when it ends."""

import contextlib
import math
import time
from collections.abc import Iterable, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Literal

import numpy as np

from npformer.checks import check_callable, check_number, shown, warn
from npformer.files.json_log import JsonLog
from npformer.files.locks import locked
from npformer.files.paths import check_path
from npformer.models import describe
from npformer.models.batch import check_batches, mean_loss
from npformer.operations.explain import Listing
from npformer.operations.options import check_fields, check_option
from npformer.runtime.interrupts import deferred_interrupts
from npformer.runtime.progress import progress_bar, say
from npformer.training.guard import NonFiniteError

LAST, BEST, LOG = "last.safetensors", "best.safetensors", "log.jsonl"
END = object()  # of the batches


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """When ``Trainer.fit`` validates, saves and ends.

    Parameters
    ----------
    every : int, optional
        Validate after each ``every`` steps, and at the end, unless a callback ends the training.
    save_every : int
        Save the last checkpoint after each ``save_every`` steps, before each validation, at the end, and in one process
        also if an error or Ctrl-C ends the training.
    patience : int, optional
        End after this number of validations without a better result.
    monitor : str
        The result that decides which validation is the best.
    mode : "min" or "max"
        Whether a lower or a higher result is better.
    keep : "best and last" or "last"
        The checkpoints.
    minutes : float, optional
        End so early that the last validation is over in this time. (How long one takes is known from those before; if
        there was none in the first half of the time, one is made then.)
    """

    every: int | None = None
    save_every: int = 100
    patience: int | None = None
    monitor: str = "val_loss"
    mode: Literal["min", "max"] = "min"
    keep: Literal["best and last", "last"] = "best and last"
    minutes: float | None = None

    def __post_init__(self):
        check_fields(self)


class History(Listing, list):
    """What ``fit`` returns: the ``StepInfo`` of each step."""

    def __repr__(self):
        losses = f", loss {self[0].loss:.4f} to {self[-1].loss:.4f}" if self else ""
        return f"<History of {len(self):,} steps{losses}>"


def checked_callbacks(callbacks):
    """The callbacks as a list; raises if one of them cannot be called, or if it is given in place of a list."""
    if callable(callbacks) or not isinstance(callbacks, Iterable):
        advice = ": try [callbacks]" if callable(callbacks) else ""
        raise TypeError(f"callbacks is a {type(callbacks).__name__}, expected a list of functions{advice}")
    return [check_callable(f"callbacks[{i}]", callback) for i, callback in enumerate(callbacks)]


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


class Loop:
    """Makes the steps of a training, validates, saves and stops: see ``Trainer.fit``.

    A subclass may log and save more: ``TranslationRun`` does. ``settings`` are ``LoopSettings``, ``validate()`` returns
    a dict of numbers with the one that is monitored, and ``folder`` is for checkpoints and the log, if there is one.
    """

    n_last_validations = 1  # for which the time limit leaves time

    def __init__(self, trainer, settings, validate=None, folder=None):
        self.trainer, self.ranks = trainer, trainer.ranks
        self.loop_settings, self.compute_validation = settings, validate
        # absolute, as a callback may change the current folder
        self.folder = None if folder is None else check_path(folder, "save").absolute()
        self.log: JsonLog | None = None  # open while the loop runs, on rank 0
        self.saved = None  # (steps, validations) of the last checkpoint, so that it is not written twice
        self.first = len(self.validations)  # from which on they count; from 0 if a training goes on in its folder
        self.began = time.perf_counter()
        self.slowest = 0.0  # seconds of a validation, which the time limit has to leave
        for name in ("patience", "every"):
            if validate is None and (value := getattr(settings, name)) is not None:
                raise ValueError(f"{name}={value} without validate: give validate=batches, or no {name}")

    @property
    def validations(self) -> list[dict]:
        """The records of all validations, which a checkpoint holds."""
        return self.trainer.state.validations

    def run(
        self, batches: Iterable[tuple], n_steps: int | None = None, *, callbacks=(), progress=True, n_batches=None
    ) -> History:
        """Make one step for each batch, at most ``n_steps``; return the ``StepInfo`` of each.

        ``n_batches`` is the number of batches, if it is known: for the progress bar alone.
        """
        trainer, history = self.trainer, History()
        if isinstance(batches, np.ndarray):
            told = f"batches is an array of shape {batches.shape}"
            raise TypeError(f"{told}, expected a tuple of arrays for each step, such as [(src, tgt)], or [(ids,)]")
        if n_steps is not None:
            n_steps = check_option("n_steps", n_steps)
        callbacks = checked_callbacks(callbacks)  # an iterator would call them after the first step only
        last_step = None if n_steps is None else trainer.n_steps + n_steps
        most = min((n for n in (n_steps, n_batches) if n is not None), default=None)
        total = None if most is None else trainer.n_steps + most
        shown = progress and self.ranks.is_first
        self.ranks.agree(lambda: {"fit": asdict(self.loop_settings) | {"n_steps": n_steps}})
        with self._opened(), progress_bar(total, shown, trainer.n_steps) as bar, self._saving_after_errors():
            self._validate_if_due(last_step, shown)  # the last run may have been interrupted before it, or in it
            upcoming, goes_on, batch = islice(batches, n_steps), True, None
            while goes_on and not self._is_out_of_patience() and (batch := self._next(upcoming)) is not END:
                with deferred_interrupts():  # a step that is made is in the log
                    trainer.step(batches=[batch])
                    history.append(trainer.last)
                    self.write(self.record_of(trainer.last))
                bar.advance(trainer.last)
                self._validate_if_due(last_step, shown)
                if trainer.n_steps % self.loop_settings.save_every == 0:
                    self.save()
                wishes = [callback(trainer, trainer.last) for callback in callbacks]
                goes_on = not self._any(any(wish is True or wish is np.True_ for wish in wishes))  # a number is no wish
                if self.loop_settings.minutes is not None and self._any(self._time_left() < 0):
                    break
            if goes_on:  # the batches, the patience or the time have ended
                self._validate_if_due(trainer.n_steps, shown)  # as this step is the last
            if trainer.n_steps:
                self.save()
        if batch is END and len(history) < (1 if n_steps is None else n_steps):
            of = f" of {n_steps}" if n_steps else ""
            why = "a generator can be read only once"
            if isinstance(batches, Sized):  # such as a list
                why = "itertools.cycle(batches) repeats them" if len(batches) else "there are none"
            warn(f"batches ended after {len(history)}{of} steps: {why}")
        return history

    def record_of(self, info) -> dict:
        """What the log says of a step, as soon as it is made."""
        return info._asdict()

    def write(self, record):
        """Append a record to the log."""
        if self.log is not None:
            self.log.write(record)
            self.trainer.state.n_logged = self.log.n_records  # a training that goes on from here writes the later ones

    def save(self):
        """Save the checkpoint from which the training can go on."""
        held = self.trainer.n_steps, len(self.validations)
        if self.folder is not None and self.saved != held:
            self.save_to(self.folder / LAST)
            self.saved = held

    def save_to(self, path):
        """Write a checkpoint."""
        self.trainer.save(path)

    def validate(self, shown=True):
        """Validate, and note the result: the record of the validation."""
        began, monitor = time.perf_counter(), self.loop_settings.monitor
        found, state = self.compute_validation(), self.trainer.state
        if monitor not in found:
            raise ValueError(f"monitor={monitor!r}, expected one of what validate returns: {list(found)}")
        record, n_logged = {"step": state.n_steps, **found}, state.n_logged
        self.slowest = max(self.slowest, time.perf_counter() - began)
        with deferred_interrupts():  # it is noted, logged and kept, or not made at all
            self.validations.append(record)
            try:
                self.write(record)
                self.keep(record, shown)
            except BaseException:
                self.validations.pop()
                state.n_logged = n_logged
                raise
        return record

    def keep(self, record, shown):
        """Save the parameters of a validation, if they are the best so far, and print its numbers if wanted."""
        if shown:
            say(", ".join(f"{name} {value:.6g}" for name, value in record.items()))
        if self.folder is not None and self.loop_settings.keep != "last" and self._since_the_best() == 0:
            self.save_to(self.folder / BEST)

    def _since_the_best(self):
        """The number of validations since the best one, which is the first of equal ones; NaN is the worst."""
        monitor, sign = self.loop_settings.monitor, 1 if self.loop_settings.mode == "min" else -1
        values = [sign * record[monitor] for record in self.validations[self.first :] if monitor in record]
        values = [math.inf if math.isnan(value) else value for value in values]
        return len(values) - 1 - values.index(min(values)) if values else 0

    def _is_out_of_patience(self):
        """Whether the best validation is at least ``patience`` validations ago."""
        patience = self.loop_settings.patience
        return patience is not None and self._since_the_best() >= patience

    def _validate_if_due(self, last_step, shown):
        """Validate after every so many steps and after the last, unless that was done."""
        step, validations = self.trainer.n_steps, self.validations
        if self.compute_validation is None or step == 0 or (validations and validations[-1]["step"] == step):
            return
        every = self.loop_settings.every
        if step == last_step or (every is not None and step % every == 0) or self._needs_to_know_its_time():
            self.save()  # a validation takes a while; if it is interrupted, no step is lost
            self.validate(shown)

    def _needs_to_know_its_time(self):
        """Whether half of the time limit is over, and it is not known how much of it a validation needs."""
        minutes = self.loop_settings.minutes
        return minutes is not None and self._any(not self.slowest and self._time_left() < 60 * minutes / 2)

    def _time_left(self):
        """Seconds until the last validations have to begin."""
        limit = 60 * self.loop_settings.minutes - self.n_last_validations * self.slowest
        return self.began + limit - time.perf_counter()

    def _any(self, wish):
        """Whether a rank wishes something: all ranks do the same after the same step."""
        with deferred_interrupts():
            return self.ranks.any(wish)

    def _next(self, batches):
        """The next batch, ``END`` after the last, which has to come on all ranks at once."""
        batch = next(batches, END)
        with deferred_interrupts():
            self.ranks.agree(lambda: {"batches_end": batch is END})
        return batch

    @contextmanager
    def _saving_after_errors(self):
        """Save what was trained if the loop ends with an error, but for one that says that training went wrong."""
        try:
            yield
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            if self.ranks.alone and not isinstance(error, NonFiniteError):  # other ranks may not have this error
                with contextlib.suppress(Exception):  # the first error tells more
                    self.save()
            raise

    @contextmanager
    def _opened(self):
        """The log, in a folder that is locked against other trainings; on ranks other than 0 there is none."""
        with ExitStack() as stack:

            def opened():
                _make_folder(self.folder)
                stack.enter_context(locked(self.folder))
                there = {path.resolve() for name in (LAST, BEST) if (path := self.folder / name).exists()}
                is_its_own = bool(there & self.trainer.state.files)
                if there and not is_its_own:
                    advice = f"load its {LAST} first to go on with it, or choose another folder"
                    raise ValueError(f"save={str(self.folder)!r} holds another training: {advice}")
                self.log = stack.enter_context(JsonLog(self.folder / LOG, keep=self.trainer.state.n_logged))
                return is_its_own

            if self.folder is not None:
                describe(self.trainer.model)  # raises if it cannot be saved
                if self.ranks.first(opened):  # on all ranks
                    self.first = 0
            try:
                yield
            finally:
                self.log = None


def _make_folder(path):
    """Make the folder of a training, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # it is a file, or in a file; no file may have such a name
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"save={shown(str(path))} cannot be made ({reason}), expected a folder or a new name"
        ) from None
