"""What keeps a training whole: a step is made and counted, or not made at all.

While a trainer is changed or saved, ``Guard`` lets other threads and Ctrl-C wait. A step whose loss
or gradient is not finite changes nothing, and raises ``NonFiniteError``. ``StopSignals`` ends a
training between two steps.
"""

import contextlib
import os
import signal
import threading
from typing import Self

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
