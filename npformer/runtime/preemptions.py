"""Whether other programs take the core of a thread again and again."""

import threading
import time

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

WINDOW = 0.1  # the fewest seconds in which the preemptions of a thread are counted
MANY_A_SECOND = 60  # an idle system has about 5, one with two busy programs 250


class Count(threading.local):
    """The preemptions of this thread, counted in one window of time after another."""

    window_began = 0.0  # long ago: the first window ends at once
    n_before = 0  # the number of all until the window began
    are_many = False  # whether there were many in the window before


_count = Count()


def cores_are_taken():
    """Whether other programs have had this thread's core again and again."""
    now = time.monotonic()
    seconds = now - _count.window_began
    if seconds > WINDOW:
        n = n_preemptions()
        _count.are_many = n - _count.n_before > MANY_A_SECOND * seconds
        _count.n_before = n
        _count.window_began = now
    return _count.are_many


def n_preemptions():
    """How often this thread has lost its core to another program; 0 if the system does not say."""
    if not hasattr(resource, "RUSAGE_THREAD"):
        return 0
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
