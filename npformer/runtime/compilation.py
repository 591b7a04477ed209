"""Who is told that a kernel is being compiled: a progress bar, or else standard error, once it has taken a second."""

import contextlib
import sys
import threading

PATIENCE = 1.0  # seconds

_listeners: list = []  # (begin, end) of the blocks of ``told`` that have not ended
_timer: threading.Timer | None = None


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
    global _timer
    for begin, _ in _listeners:
        begin(name)
    if not _listeners:
        _timer = threading.Timer(PATIENCE, _say, [name])
        _timer.daemon = True
        with contextlib.suppress(RuntimeError):  # a thread cannot be started
            _timer.start()


def compilation_ends():
    """Tell that the kernel is compiled."""
    global _timer
    for _, end in _listeners:
        end()
    if _timer is not None:
        _timer.cancel()
        _timer = None


def _say(name):
    with contextlib.suppress(OSError, ValueError, AttributeError):  # standard error may be closed
        print(f"npformer: compiling the kernel {name} for this processor", file=sys.stderr, flush=True)
