"""Which kernel is being compiled, and the seconds of all compilations.

One kernel is compiled at a time. A progress bar shows its name at once; if there is none, a line on
standard error does after a second. The seconds are counted, so that measurements can leave them
out.
"""

import contextlib
import sys
import threading
import time
from contextlib import contextmanager

PATIENCE = 1.0  # seconds of compiling, after which standard error has a line
# What is raised if standard error is a broken pipe, a closed file, or hardly a file.
GONE = OSError, ValueError, AttributeError

_listeners: list = []  # (begin, end) of the blocks of ``compilation_listener`` that have not ended
_began: float | None = None  # while a kernel is compiled
_seconds = 0.0  # of all compilations that have ended
_has_advised = False


@contextmanager
def compilation_listener(begin=lambda name: None, end=lambda: None):
    """Inside, ``begin(name)`` is called before each kernel is compiled, and ``end()`` after it.

    Loading a kernel from disk is not compiling.
    """
    listener = begin, end
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def compiling(name):
    """Tell that a kernel is being compiled, until the block ends."""
    global _began, _seconds
    listeners = list(_listeners)
    timer = threading.Timer(PATIENCE, _say_compiling, [name])
    timer.daemon = True
    for begin, _ in listeners:
        begin(name)
    if not listeners:
        with contextlib.suppress(RuntimeError):  # a thread cannot be started
            timer.start()
    _began = time.perf_counter()
    try:
        yield
    finally:
        if _began is not None:  # else another thread, which compiled meanwhile, has counted
            _seconds += time.perf_counter() - _began
            _began = None
        timer.cancel()
        for _, end in listeners:
            end()


def _say_compiling(name):
    global _has_advised
    advice = "" if _has_advised else " (npformer compile does it before, for usual settings)"
    _has_advised = True
    line = f"npformer: compiling the kernel {name} for this processor{advice}"
    with contextlib.suppress(*GONE):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def working_time():
    """Seconds on a clock that stands still while a kernel is compiled."""
    began = _began
    return (time.perf_counter() if began is None else began) - _seconds
