"""Who is told that a kernel is being compiled: a progress bar, or else standard error, once it has taken a second.

The time is counted, so that measurements can leave it out.
"""

import contextlib
import sys
import threading
import time

PATIENCE = 1.0  # seconds

_listeners: list = []  # (begin, end) of the blocks of ``told`` that have not ended
_timer: threading.Timer | None = None
_began: float | None = None  # while a kernel is compiled
_seconds = 0.0  # of all compilations that have ended
_has_advised = False


@contextlib.contextmanager
def told(begin, end):
    """Inside, ``begin(name)`` is called before each kernel is compiled, and ``end()`` after it.

    Loading a kernel from disk is not compiling.
    """
    _listeners.append((begin, end))
    try:
        yield
    finally:
        _listeners.remove((begin, end))


def compilation_begins(name):
    """Tell that a kernel is being compiled; only one is at a time."""
    global _timer, _began
    _began = time.perf_counter()
    for begin, _ in _listeners:
        begin(name)
    if not _listeners:
        _timer = threading.Timer(PATIENCE, _say, [name])
        _timer.daemon = True
        with contextlib.suppress(RuntimeError):  # a thread cannot be started
            _timer.start()


def compilation_ends():
    """Tell that the kernel is compiled."""
    global _timer, _seconds, _began
    if _began is not None:
        _seconds += time.perf_counter() - _began
        _began = None
    for _, end in _listeners:
        end()
    if _timer is not None:
        _timer.cancel()
        _timer = None


def working_time():
    """Seconds on a clock that stands still while a kernel is compiled."""
    began = _began
    return (time.perf_counter() if began is None else began) - _seconds


def _say(name):
    global _has_advised
    advice = "" if _has_advised else " (npformer compile does it before, for usual settings)"
    _has_advised = True
    with contextlib.suppress(OSError, ValueError, AttributeError):  # standard error may be closed
        print(f"npformer: compiling the kernel {name} for this processor{advice}", file=sys.stderr, flush=True)
