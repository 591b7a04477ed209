"""Let Ctrl-C wait while the library changes what belongs together."""

import signal
import threading

# That of ``signal`` makes an enum of the result: 60 of them take 40 microseconds.
from _signal import getsignal

from npformer.runtime.forks import in_forked_process

SIGNALS = sorted(signal.valid_signals())
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
        self.n = 0  # how often Ctrl-C has come
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
