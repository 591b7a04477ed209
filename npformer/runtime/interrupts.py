"""What happens at Ctrl-C and other signals: they wait while the library changes what belongs
together, or only set a flag, so that a training ends between two steps.
"""

import contextlib
import os
import signal
import threading

# That of ``signal`` makes an enum of the result: 60 of them take 40 microseconds.
from _signal import getsignal
from typing import Self

from npformer.runtime.forks import in_forked_process

SIGNALS = sorted(signal.valid_signals())
NAMES = "SIGINT", "SIGTERM", "SIGHUP"
TO_STOP = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]  # not all on Windows
MOST = 5  # Ctrl-C in one block: the last one interrupts at once, for a block that never ends

_outermost = None  # the block that the main thread is in


class deferred_interrupts:
    """A context manager that defers exceptions raised by signals, such as Ctrl-C, to its end.

    Python handles signals in the main thread, between any two instructions: also between taking a
    lock and releasing it, or between an update of the parameters and counting it. Inside this block
    the handler of any signal runs as usual, but an exception that it raises comes when the block
    has ended: that of the last signal, if there are several. (So a handler should set a flag or
    raise an exception, and not call the library.) In other threads this does nothing, nor inside
    another such block. Python forgets what ``faulthandler.register`` and ``signal.siginterrupt``
    have set for a signal with a handler.

    Examples
    --------
    >>> try:
    ...     with deferred_interrupts():
    ...         signal.raise_signal(signal.SIGINT)
    ...         done = True
    ... except KeyboardInterrupt:
    ...     print("interrupted,", "done" if done else "not done")
    interrupted, done
    """

    def __enter__(self):
        global _outermost
        self.before = {}  # the handlers that this block has replaced
        self.error = None  # which comes at the end
        self.n_interrupts = 0  # how often Ctrl-C has come
        if _outermost is not None or threading.current_thread() is not threading.main_thread():
            return
        _outermost = self
        try:
            for number in SIGNALS:
                handler = getsignal(number)
                if callable(handler):  # Python's own, or the user's
                    self.before[number] = handler
                    signal.signal(number, self._hold)
        except BaseException:  # a signal came before its handler was replaced
            self._end()
            raise

    def __exit__(self, *exception):
        if _outermost is self:
            self._end()
        if self.error is not None:
            raise self.error

    def _end(self):
        global _outermost
        if _outermost is self:
            _outermost = None
        for number, handler in self.before.items():
            if getsignal(number) == self._hold:
                signal.signal(number, handler)

    def _hold(self, number, frame):
        self.n_interrupts += number == signal.SIGINT
        try:
            self.before[number](number, frame)
        except BaseException as error:
            if _outermost is not self or (self.n_interrupts >= MOST and number == signal.SIGINT):
                self._end()
                raise
            self.error = error


@in_forked_process
def _reset_in_fork():
    """End the block in a forked process, whose main thread may be another one."""
    if _outermost is not None:
        _outermost._end()


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
        self.received: signal.Signals | None = None
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
