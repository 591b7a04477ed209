"""Let Ctrl-C, and other threads, wait while the library changes what belongs together."""

import contextlib
import os
import signal
import threading
from _signal import getsignal  # that of ``signal`` makes an enum of the result: 60 of them take 40 microseconds
from typing import Self

from npformer.runtime.forks import in_forked_process

SIGNALS = sorted(signal.valid_signals())
MOST = 5  # times that a block defers Ctrl-C; the last one interrupts at once, for a block that never ends

TO_STOP = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

_outermost = None  # the block that the main thread is in


class deferred_interrupts:
    """A context manager that defers exceptions raised by signals, such as ``KeyboardInterrupt``, to its end.

    Python handles signals in the main thread, between any two instructions: also between taking a lock and releasing
    it, or between an update of the parameters and counting it. Inside this block the handler of any signal runs as
    usual, but an exception that it raises comes when the block has ended: that of the last signal, if there are
    several. (So a handler should set a flag or raise an exception, and not call the library.) In other threads this
    does nothing, nor inside another such block. Python forgets what ``faulthandler.register`` and
    ``signal.siginterrupt`` have set for a signal with a handler.

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
        self.before, self.error, self.n = {}, None, 0
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
        self.n += number == signal.SIGINT
        try:
            self.before[number](number, frame)
        except BaseException as error:
            if _outermost is not self or (self.n >= MOST and number == signal.SIGINT):
                self._end()
                raise
            self.error = error


@in_forked_process
def _reset_in_fork():
    """End the block in a forked process, whose main thread may be another one."""
    if _outermost is not None:
        _outermost._end()


class Alone:
    """A lock: while one thread changes or saves a trainer, others wait; a signal handler in the same is refused."""

    def __init__(self):
        self._begin()

    def _begin(self):
        self.lock, self.process, self.users = threading.RLock(), os.getpid(), []

    @contextlib.contextmanager
    def __call__(self, changing=False):
        """Other threads step, save or restore the trainer before or after this block, not meanwhile."""
        if self.process != os.getpid():  # the thread that had the lock is not in this forked process
            self._begin()
        with self.lock:
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
