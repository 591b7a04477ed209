"""Stopping on a signal: the current step is finished first."""

import contextlib
import os
import signal
import threading
from typing import Self

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


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
                for number in SIGNALS:
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
