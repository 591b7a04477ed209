"""What keeps a training whole: a step is made and counted, or not made at all.

While a trainer is changed or saved, ``Guard`` lets other threads and Ctrl-C wait. A step whose loss
or gradient is not finite changes nothing, and raises ``NonFiniteError`` with the reason.
``StopSignals`` ends a training between two steps.
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

NAMES = "SIGINT", "SIGTERM", "SIGHUP"
TO_STOP = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]  # not all on Windows


class Guard:
    """A block in which one thread uses a trainer: others wait, and so do exceptions of signals."""

    def __init__(self):
        self._begin()

    def _begin(self):
        self.lock = threading.RLock()
        self.process = os.getpid()
        # For each open block of the thread that has the lock: whether it changes the trainer.
        self.changing: list[bool] = []

    @contextlib.contextmanager
    def __call__(self, changing=False):
        """Change the trainer inside, or only read it.

        A handler of a signal that came in the middle of a change is refused.
        """
        if self.process != os.getpid():  # a fork, which does not have the thread that had the lock
            self._begin()
        with self.lock, deferred_interrupts():
            if self.changing and (changing or any(self.changing)):
                raise RuntimeError(
                    "a signal handler called the trainer in the middle of a step or a save: set a "
                    "flag in the handler, and call the trainer after the step, as "
                    "npformer.training.StopSignals does"
                )
            self.changing.append(changing)
            try:
                yield
            finally:
                self.changing.pop()


class StopSignals:
    """A block in which SIGINT (Ctrl-C), SIGTERM and SIGHUP only set a flag, so that a step can end.

    SIGHUP comes when a terminal is closed. A signal that is ignored, as SIGHUP is after ``nohup``,
    stays ignored. A second signal has its usual effect: Ctrl-C interrupts when the current step has
    ended. Use this as a callback of ``Trainer.fit``: it stops the training after the step in which
    a signal came. Outside the main thread, where Python cannot handle signals, it does nothing.

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
        """128 + the number of the signal, as in shells: 130 after SIGINT; 0 if none came."""
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
        is_fork = os.getpid() != self._process
        if self.received is None and not is_fork:
            self.received = signal.Signals(number)
            if self.message:
                with contextlib.suppress(OSError):  # the reader of standard error may have exited
                    line = f"\n{self.received.name}: {self.message}\n"
                    os.write(2, line.encode())  # print may be in mid-line
            return
        handler = self._before[number]
        if callable(handler):
            handler(number, frame)
        else:
            signal.signal(number, handler)
            signal.raise_signal(number)


class NonFiniteError(FloatingPointError):
    """The loss or the gradient became NaN or infinite; the step has changed no parameter."""


def not_finite_in(model, batches):
    """The first number of the batches that is not finite, as text; else "".

    What a ``keep_mask`` masks does not count.
    """
    names = inspect.signature(model.count).parameters
    for batch in batches:
        arrays = dict(zip(names, map(on_host, batch), strict=False))
        mask = arrays.get("keep_mask")
        for name, x in arrays.items():
            if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
                continue
            wrong = ~np.isfinite(x)
            advice = ""
            if mask is not None and x.ndim > mask.ndim and x.shape[: mask.ndim] == mask.shape:
                wrong[~mask] = False
                advice = " where keep_mask is True"
            if wrong.any():
                index = list(map(int, np.argwhere(wrong)[0]))
                return f"{name}{index} is {x[tuple(index)]}{advice}"
    return ""


def why_not_finite(trainer, batches, loss, lr):
    """The text of a ``NonFiniteError``: what is not finite on any rank, and what to try."""
    state, ranks = trainer.state, trainer.ranks
    bad_params = ranks.union(tree.not_finite(state.params))
    bad_grads = ranks.union(tree.not_finite(state.grads))
    clip_norm = trainer.settings.clip_norm
    now = f"(now {lr:g}), clip_norm=1.0 (now {clip_norm})"
    advice = f"Try a lower learning rate {now}, or a longer warm-up."
    where = "no parameter or gradient is NaN or inf"
    if math.isfinite(loss):
        where += ", but the square of the gradient's norm is too large for its dtype"
    if bad_params:
        where = f"parameter {bad_params[0]} holds NaN or inf (one of {len(bad_params)})"
        advice = f"It did so before this step: go on from a checkpoint. {advice}"
    elif of_data := not_finite_in(trainer.model, batches):
        where = of_data
        advice = "Mask what is missing, if the model takes a keep_mask, or leave it out."
    elif bad_grads:
        where = f"the gradient of {bad_grads[0]} holds NaN or inf (one of {len(bad_grads)})"
        if state.n_steps == 0:  # no update can be the reason
            advice = f"trainer.diagnose(*batch) examines loss and gradients. {advice}"
    return (
        f"step {state.n_steps + 1}: the loss is {loss:g}; {where}. The step was not taken: "
        f"parameters are those of step {state.n_steps}. {advice}"
    )
