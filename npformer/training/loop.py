"""The training loop: steps, validations, checkpoints, and when it ends."""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import islice

import numpy as np

from npformer.checks import check_callable, check_number, shown, warn
from npformer.errors import UserError
from npformer.files.checkpoint import BEST, LAST, LOG, import_safetensors
from npformer.files.json_log import JsonLog
from npformer.files.locks import locked
from npformer.files.paths import check_path
from npformer.models import describe
from npformer.models.batch import check_batches
from npformer.operations.explain import Listing
from npformer.operations.options import ABOVE_0, check_option
from npformer.progress import progress_bar, say
from npformer.runtime.interrupts import deferred_interrupts
from npformer.training.guard import NonFiniteError

END = object()  # of the batches


class History(Listing, list):
    """What ``fit`` returns: the ``StepInfo`` of each step."""

    def __repr__(self):
        losses = f", loss {self[0].loss:.4f} to {self[-1].loss:.4f}" if self else ""
        return f"<History of {len(self):,} steps{losses}>"


def checked_callbacks(callbacks):
    """The callbacks as a list; raises if it is no list of what can be called."""
    if callable(callbacks) or not isinstance(callbacks, Iterable):
        kind = type(callbacks).__name__
        advice = ": try [callbacks]" if callable(callbacks) else ""
        raise TypeError(f"callbacks is a {kind}, expected a list of functions{advice}")
    return [check_callable(f"callbacks[{i}]", callback) for i, callback in enumerate(callbacks)]


def evaluation_of(trainer, validate, monitor):
    """The function with which a ``Loop`` validates, or None.

    It measures the loss of batches, or calls a function of the trainer.
    """
    if validate is None:
        return None
    if not callable(validate):
        check_batches(validate, "validate")
        if monitor != "val_loss":
            advice = "give validate a function for others"
            raise UserError(f"monitor={monitor!r} of batches, expected 'val_loss': {advice}")
        return lambda: {"val_loss": trainer.mean_loss(validate)}

    def evaluate():
        results = validate(trainer)
        if not isinstance(results, dict):
            results = {"val_loss": results}
        for name in results:
            if not isinstance(name, str) or name == "step":
                expected = "names that are texts other than 'step'"
                raise UserError(f"validate returned a result {name!r}, expected {expected}")
        return {name: check_number(f"validate: {name}", value) for name, value in results.items()}

    return evaluate


def record_of(info):
    """What the log says of a step: its ``StepInfo``."""
    return info._asdict()


def say_validation(record, is_shown):
    """Print the numbers of a validation."""
    if is_shown:
        say(", ".join(f"{name} {value:.6g}" for name, value in record.items()))


@dataclass(frozen=True, kw_only=True)
class Actions:
    """What a ``Loop`` calls beside the trainer's ``step``: functions of the training that it runs.

    Parameters
    ----------
    save : callable(path)
        Write a checkpoint.
    validate : callable() -> dict, optional
        The numbers of a validation, with the one that is monitored.
    note_step : callable(info) -> dict
        Note that a step is made; what the log says of it.
    note_validation : callable(record, is_shown)
        Note a validation that is in the log, before its parameters are saved as the best.
    n_last_validations : int
        The time limit leaves time for so many validations.
    """

    save: Callable
    validate: Callable[[], dict] | None = None
    note_step: Callable[..., dict] = record_of
    note_validation: Callable = say_validation
    n_last_validations: int = 1


class Loop:
    """Makes the steps of a training, validates, saves and stops: see ``Trainer.fit``.

    ``settings`` are ``LoopSettings``, ``folder`` is for checkpoints and the log, if there is one,
    and ``actions`` are ``Actions``.
    """

    def __init__(self, trainer, settings, folder, actions):
        self.trainer, self.ranks = trainer, trainer.ranks
        self.settings, self.actions = settings, actions
        # absolute, as a callback may change the current folder
        self.folder = None if folder is None else check_path(folder, "save").absolute()
        if self.folder is not None:
            import_safetensors()  # what is missing is said before the first step
        self.log: JsonLog | None = None  # open while the loop runs, on rank 0
        self.saved: tuple | None = None  # (steps, validations) of the last checkpoint
        # The first validation that counts; 0 if a training goes on in its own folder.
        self.first = len(self.validations)
        self.began = time.perf_counter()  # from when the minutes count
        self.slowest = 0.0  # seconds of a validation, which the time limit has to leave
        for name in ("patience", "every"):
            value = getattr(settings, name)
            if actions.validate is None and value is not None:
                advice = f"give validate=batches, or no {name}"
                raise UserError(f"{name}={value} without validate: {advice}")

    @property
    def validations(self) -> list[dict]:
        """The records of all validations, which a checkpoint holds."""
        return self.trainer.state.validations

    def run(
        self,
        batches: Iterable[tuple],
        n_steps: int | None = None,
        *,
        callbacks=(),
        progress=True,
        n_batches=None,
        minutes=None,
        since=None,
    ) -> History:
        """Make one step for each batch, at most ``n_steps``; return the ``StepInfo`` of each.

        ``n_batches`` is the number of batches, if it is known: for the progress bar alone. If
        ``minutes`` are given, they take the place of those of the settings. They count from
        ``since``, a time of ``time.perf_counter``; without it, from when the loop was made.
        """
        trainer, history = self.trainer, History()
        self.minutes = self.settings.minutes
        if minutes is not None:
            self.minutes = ABOVE_0.check("minutes", minutes)
        if since is not None:
            self.began = since
        _check_no_array(batches)
        if n_steps is not None:
            n_steps = check_option("n_steps", n_steps)
        callbacks = checked_callbacks(callbacks)  # a list: a generator would give them only once
        last_step = None if n_steps is None else trainer.n_steps + n_steps
        known = [n for n in (n_steps, n_batches) if n is not None]
        total = trainer.n_steps + min(known) if known else None  # of the bar
        is_shown = progress and self.ranks.is_first
        limits = {"minutes": self.minutes, "n_steps": n_steps}
        self.ranks.agree(lambda: {"fit": asdict(self.settings) | limits})
        bar_of_steps = progress_bar(total, is_shown, trainer.n_steps)
        with self._opened(), bar_of_steps as bar, self._saving_after_errors():
            # The last run may have been interrupted before its validation, or in it.
            self._validate_if_due(last_step, is_shown)
            upcoming = islice(batches, n_steps)
            batch = None
            is_stopped = False
            while not is_stopped and not self.is_out_of_patience():
                batch = self._next(upcoming)
                if batch is END:
                    break
                with deferred_interrupts():  # a step that is made is in the log
                    trainer.step(batches=[batch])
                    history.append(trainer.last)
                    self.write(self.actions.note_step(trainer.last))
                bar.advance(trainer.last)
                self._validate_if_due(last_step, is_shown)
                if trainer.n_steps % self.settings.save_every == 0:
                    self.save()
                is_stopped = self._is_stopped_by(callbacks)
                if self._time_left_is_below(0):
                    break
            if not is_stopped:  # the batches, the patience or the time have ended
                self._validate_if_due(trainer.n_steps, is_shown)  # as this step is the last
            if trainer.n_steps:
                self.save()
        if batch is END:
            _warn_if_too_few(batches, len(history), n_steps)
        return history

    def _is_stopped_by(self, callbacks):
        """Call all callbacks; return whether one of them wishes to stop, on any rank.

        An error of one is raised on all ranks.
        """

        def wishes_to_stop():
            wishes = [callback(self.trainer, self.trainer.last) for callback in callbacks]
            # Only True stops: a callback may return a number, as ``file.write`` does.
            return any(wish is True or wish is np.True_ for wish in wishes)

        return any(self.ranks.results(wishes_to_stop))

    def write(self, record):
        """Append a record to the log."""
        if self.log is not None:
            self.log.write(record)
            # A training that goes on from here writes what comes after this number of records.
            self.trainer.state.n_logged = self.log.n_records

    def save(self):
        """Save the checkpoint from which the training can go on, unless that was done."""
        progress = self.trainer.n_steps, len(self.validations)
        if self.folder is not None and self.saved != progress:
            self.actions.save(self.folder / LAST)
            self.saved = progress

    def validate(self, is_shown=True):
        """Validate, and note the result: the record of the validation."""
        monitor, state = self.settings.monitor, self.trainer.state
        began = time.perf_counter()
        results = self.actions.validate()
        if monitor not in results:
            expected = f"one of what validate returns: {list(results)}"
            raise UserError(f"monitor={monitor!r}, expected {expected}")
        record = {"step": state.n_steps, **results}
        n_logged = state.n_logged
        self.slowest = max(self.slowest, time.perf_counter() - began)
        with deferred_interrupts():  # it is noted, logged and kept, or not made at all
            self.validations.append(record)
            try:
                self.write(record)
                self.actions.note_validation(record, is_shown)
                keeps_best = self.folder is not None and self.settings.keep != "last"
                if keeps_best and self._since_the_best() == 0:
                    self.actions.save(self.folder / BEST)
            except BaseException:
                self.validations.pop()
                state.n_logged = n_logged
                raise
        return record

    def _since_the_best(self):
        """The number of validations since the best, the first of equal ones; NaN is the worst."""
        monitor = self.settings.monitor
        sign = 1 if self.settings.mode == "min" else -1
        values = []
        for record in self.validations[self.first :]:
            if monitor in record:
                value = sign * record[monitor]
                values.append(math.inf if math.isnan(value) else value)
        return len(values) - 1 - values.index(min(values)) if values else 0

    def is_out_of_patience(self):
        """Whether the best validation is at least ``patience`` validations ago."""
        patience = self.settings.patience
        return patience is not None and self._since_the_best() >= patience

    def _validate_if_due(self, last_step, is_shown):
        """Validate after every so many steps and after the last, unless that was done."""
        step, every = self.trainer.n_steps, self.settings.every
        is_done = self.validations and self.validations[-1]["step"] == step
        if self.actions.validate is None or step == 0 or is_done:
            return
        is_due = step == last_step or (every is not None and step % every == 0)
        # If half of the time is over, and nobody knows how long a validation takes, one is made.
        if is_due or (not self.slowest and self._time_left_is_below(1 / 2)):
            self.save()  # a validation takes a while; if it is interrupted, no step is lost
            self.validate(is_shown)

    def _time_left_is_below(self, share):
        """Whether, on any rank, less than a share of the minutes is left.

        The time of the last validations, as far as it is known, is not counted as left.
        """
        if self.minutes is None:
            return False
        end = self.began + 60 * self.minutes - self.actions.n_last_validations * self.slowest
        is_less = end - time.perf_counter() < share * 60 * self.minutes
        with deferred_interrupts():  # all ranks do the same after the same step
            return self.ranks.any(is_less)

    def _next(self, batches):
        """The next batch, ``END`` after the last, which has to come on all ranks at once."""
        return self.ranks.agreed(
            lambda: next(batches, END), lambda batch: {"batches_end": batch is END}
        )

    @contextmanager
    def _saving_after_errors(self):
        """Save what was trained if the loop ends with an error, unless the training went wrong."""
        try:
            yield
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            # Other ranks may not have this error, and would not save.
            if self.ranks.is_alone and not isinstance(error, NonFiniteError):
                with contextlib.suppress(Exception):  # the first error tells more
                    self.save()
            raise

    @contextmanager
    def _opened(self):
        """The log, in a folder that is locked against other trainings; only rank 0 has one."""
        with ExitStack() as stack:
            if self.folder is not None:
                describe(self.trainer.model)  # raises if it cannot be saved
                if self.ranks.first(lambda: self._open(stack)):  # on all ranks
                    self.first = 0
            try:
                yield
            finally:
                self.log = None

    def _open(self, stack):
        """Make and lock the folder, and open the log; return whether the training goes on in it."""
        _make_folder(self.folder)
        stack.enter_context(locked(self.folder))
        paths = [self.folder / LAST, self.folder / BEST]
        checkpoints = {path.resolve() for path in paths if path.exists()}
        is_its_own = bool(checkpoints & self.trainer.state.files)
        if checkpoints and not is_its_own:
            advice = f"load its {LAST} first to go on with it, or choose another folder"
            raise UserError(f"save={str(self.folder)!r} holds another training: {advice}")
        log = JsonLog(self.folder / LOG, keep=self.trainer.state.n_logged)
        self.log = stack.enter_context(log)
        return is_its_own


def _check_no_array(batches):
    """Raise if the batches are one array, whose rows would be taken for them."""
    if isinstance(batches, np.ndarray):
        expected = "a tuple of arrays for each step, such as [(src, tgt)], or [(ids,)]"
        raise TypeError(f"batches is an array of shape {batches.shape}, expected {expected}")


def _warn_if_too_few(batches, n_made, n_steps):
    """Warn if the batches ended before ``n_steps`` steps, or before the first, were made."""
    if n_made >= (1 if n_steps is None else n_steps):
        return
    of = f" of {n_steps}" if n_steps else ""
    why = "a generator can be read only once"
    if isinstance(batches, Sized):  # such as a list
        why = "itertools.cycle(batches) repeats them" if len(batches) else "there are none"
    warn(f"batches ended after {n_made}{of} steps: {why}")


def _make_folder(path):
    """Make the folder of a training, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # it is a file, or in one, or has a name of no file
        reason = getattr(error, "strerror", None) or error
        what = f"save={shown(str(path))} cannot be made ({reason})"
        raise UserError(f"{what}, expected a folder or a new name") from None
