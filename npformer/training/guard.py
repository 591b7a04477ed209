"""What keeps a training whole: a step is made and counted, or not made at all.

While a trainer is changed or saved, ``Guard`` lets other threads and Ctrl-C wait. A step whose loss or gradient is not
finite changes nothing, and ``NonFiniteError`` says why. ``StopSignals`` ends a training between two steps.
"""

import contextlib
import inspect
import math
import os
import signal
import threading
from typing import Self

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.runtime.interrupts import deferred_interrupts

TO_STOP = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Guard:
    """A block in which one thread uses a trainer: others wait, and so does an exception that a signal raises."""

    def __init__(self):
        self._begin()

    def _begin(self):
        self.lock, self.process = threading.RLock(), os.getpid()
        self.users: list[bool] = []  # of the blocks of this thread that have not ended, whether they change the trainer

    @contextlib.contextmanager
    def __call__(self, changing=False):
        """Change the trainer inside, or only read it; a signal handler in the middle of a change is refused."""
        if self.process != os.getpid():  # the thread that had the lock is not in this forked process
            self._begin()
        with self.lock, deferred_interrupts():
            if self.users and (changing or any(self.users)):
                raise RuntimeError(
                    "a signal handler called the trainer in the middle of a step or a save: set a flag in the handler, "
                    "and call the trainer after the step, as npformer.training.StopSignals does"
                )
            self.users.append(changing)
            try:
                yield
            finally:
                self.users.pop()


class StopSignals:
    """A context manager in which SIGINT (Ctrl-C), SIGTERM and SIGHUP only set a flag, so that a step can end.

    SIGHUP comes when a terminal is closed. A signal that is ignored, as SIGHUP is after ``nohup``, stays ignored. A
    second signal has its usual effect: Ctrl-C interrupts when the current step has ended. Use this as a callback of
    ``Trainer.fit``: it stops the training after the step in which a signal came. Outside the main thread, where Python
    cannot handle signals, it does nothing.

    Parameters
    ----------
    message : str, optional
        Text to write to standard error when a signal comes, as the step may take a while to end.

    Attributes
    ----------
    received : signal.Signals or None
        The signal that came.

    Examples
    --------
    >>> with StopSignals() as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    >>> stop.received.name, stop.exit_code
    ('SIGTERM', 143)
    """

    def __init__(self, message: str = "") -> None:
        self.message = message
        self.received = None
        self._before: dict = {}

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as in shells: 130 after SIGINT, 143 after SIGTERM, 129 after SIGHUP; 0 if none."""
        return 128 + self.received if self.received else 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._process = os.getpid()
            try:
                for number in TO_STOP:
                    before = signal.getsignal(number)
                    if before is not signal.SIG_IGN:
                        self._before[number] = before
                        signal.signal(number, self._note)
            except BaseException:  # a signal came before its handler was replaced
                self.__exit__()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            if handler is not None:  # of another language than Python
                signal.signal(number, handler)

    def __call__(self, trainer: object, info: object) -> bool:
        """Return whether to stop."""
        return self.received is not None

    def _note(self, number, frame):
        if self.received is not None or os.getpid() != self._process:  # the usual effect, as in a forked process
            handler = self._before[number]
            if callable(handler):
                handler(number, frame)
            else:
                signal.signal(number, handler)
                signal.raise_signal(number)
            return
        self.received = signal.Signals(number)
        if self.message:
            with contextlib.suppress(OSError):  # the reader of standard error may have exited
                os.write(2, f"\n{self.received.name}: {self.message}\n".encode())  # print may be in mid-line


class NonFiniteError(FloatingPointError):
    """The loss or the gradient became NaN or infinite; the parameters are those from before the step."""


def not_finite_in(model, batches):
    """The first number of the batches that is not finite though no ``keep_mask`` masks it, as text; else ""."""
    for batch in batches:
        given = dict(zip(inspect.signature(model.count).parameters, map(on_host, batch), strict=False))
        mask = given.get("keep_mask")
        for name, x in given.items():
            if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
                continue
            wrong = ~np.isfinite(x)
            if is_masked := mask is not None and x.ndim > mask.ndim and x.shape[: mask.ndim] == mask.shape:
                wrong[~mask] = False
            if wrong.any():
                at = tuple(map(int, np.argwhere(wrong)[0]))
                return f"{name}{list(at)} is {x[at]}{' where keep_mask is True' * is_masked}"
    return ""


def diagnosis(loss, state, ranks, lr, clip_norm, of_data=""):
    """The text of a ``NonFiniteError``: what is not finite on any rank, and what to try; in the data, ``of_data``."""
    bad_params, bad_grads = (ranks.union(tree.not_finite(x)) for x in (state.params, state.grads))
    advice = f"Try a lower learning rate (now {lr:g}), clip_norm=1.0 (now {clip_norm}), or a longer warm-up."
    where = "no parameter or gradient is NaN or inf"
    if math.isfinite(loss):
        where += ", but the square of the gradient's norm is too large for its dtype"
    if bad_params:
        where = f"parameter {bad_params[0]} holds NaN or inf (one of {len(bad_params)})"
        advice = "It did so before this step: go on from a checkpoint. " + advice
    elif of_data:
        where, advice = of_data, "Mask what is missing, if the model takes a keep_mask, or leave it out."
    elif bad_grads:
        where = f"the gradient of {bad_grads[0]} holds NaN or inf (one of {len(bad_grads)})"
    return (
        f"step {state.n_steps + 1}: the loss is {loss:g}; {where}. The step was not taken: parameters are those "
        f"of step {state.n_steps}. {advice}"
    )
