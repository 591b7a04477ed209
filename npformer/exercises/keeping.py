"""Run something in a fork of this process, and end with it all that it has started."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

GRACE = 2.0  # seconds, for ending what is left
# Of prctl:
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def run_in_fork(work):
    """Run ``work`` in a fork, end all processes that it leaves behind, and then end as it did.

    This process is to have one thread and no other children. SIGTERM ends all of them earlier. On
    other systems than Linux, which leave nobody the orphans of a process, ``work`` runs here.
    """
    if sys.platform != "linux":
        work()
        return
    # Every process that a child, or its child, leaves behind becomes a child of this one.
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, stop)
    keeper = os.getpid()
    fork = os.fork()
    if fork == 0:
        # If this process is killed, so that it cannot end the fork, the system does.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:  # it has been killed already
            os._exit(1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()  # what the fork sends to its group does not reach the process that waits
        try:
            work()
        finally:
            os._exit(1)
    try:
        _, status = os.waitpid(fork, 0)
    finally:
        end_all(fork)
    end_with(os.waitstatus_to_exitcode(status))


def stop(number, frame):
    """What SIGTERM does: the process ends as after any error, once it has ended all others."""
    sys.exit(128 + number)


def end_all(fork):
    """End the fork and all that it has started."""
    with contextlib.suppress(OSError):
        os.killpg(fork, signal.SIGKILL)
    of_others: set[int] = set()
    deadline = time.monotonic() + GRACE
    while (left := children() - of_others) and time.monotonic() < deadline:
        for number in left:
            try:
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)  # then its own children are among ours, for the next round
            except OSError:  # it runs as another user, as what sudo starts
                of_others.add(number)


def children():
    """The numbers of the children of this process."""
    numbers = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            # The name before it may have spaces.
            _, _, fields = file.read_text(errors="replace").rpartition(")")
            _, parent, *_ = fields.split()
            if int(parent) == os.getpid():
                numbers.add(int(file.parent.name))
    return numbers


def end_with(code):
    """End this process with an exit code, or by a signal if it is negative."""
    if code < 0:
        with contextlib.suppress(OSError):  # of SIGKILL nothing else can be said
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
