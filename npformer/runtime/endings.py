"""What a rank that ends tells the others, which would wait for it for ever.

An error between two steps, or ``sys.exit``, ends one rank alone. It sends its error to the others.
One that waits for it, or will do so, raises an error, and ends, too.
"""

import atexit
import os
import sys
import time

import numpy as np

from npformer.runtime.started import FOR_OUTPUT

LENGTH = 1000  # bytes of what a rank tells of its error
# Seconds in which another rank may still wait for messages that are under way, although a rank has
# ended without an error.
FOR_MESSAGES = 20.0
# Seconds that a rank with an error waits for the others, which may compute, before it ends them.
FOR_OTHERS = 10.0


class Endings:
    """Tells the other ranks how this one ends, and knows which of them have ended."""

    def __init__(self, mpi, comm):
        self.mpi = mpi
        self.comm = comm.Dup()  # for these messages alone
        self.process = os.getpid()
        self.others = [rank for rank in range(comm.Get_size()) if rank != comm.Get_rank()]
        self.errors = {rank: np.zeros(LENGTH, np.uint8) for rank in self.others}
        self.received = {rank: self.comm.Irecv(self.errors[rank], rank) for rank in self.others}
        self.ended_at: dict[int, float] = {}  # by rank: when this was noticed
        atexit.register(self.tell)

    def why_in_vain(self):
        """Why this rank, which waits for a message, will not get it: a text, or None."""
        for rank in self.others:
            if not self.received[rank].Test():
                continue
            now = time.monotonic()
            seconds = now - self.ended_at.setdefault(rank, now)
            error = self.errors[rank].tobytes().rstrip(b"\0").decode(errors="ignore")
            if error:
                return f"rank {rank} has ended: {error}"
            if seconds > FOR_MESSAGES:
                advice = "all ranks have to make the same calls"
                return f"rank {rank} has ended, and this rank waits for it: {advice}"
        return None

    def tell(self):
        """Tell the others that this rank ends, and wait for them; after an error, end them."""
        if os.getpid() != self.process or self.mpi.Is_finalized():
            return  # a fork, which has no messages
        error = getattr(sys, "last_value", None)  # of which Python has printed a traceback
        message = np.zeros(LENGTH, np.uint8)
        if error is not None:
            text = error_text(error).encode(errors="replace")[:LENGTH]
            message[: len(text)] = np.frombuffer(text, np.uint8)
        sent = [self.comm.Isend(message, rank) for rank in self.others]
        requests = [*sent, *self.received.values()]
        began = time.monotonic()
        while not self.mpi.Request.Testall(requests):
            if error is not None and time.monotonic() - began > FOR_OTHERS:
                break
            time.sleep(0.01)
        if error is not None:
            time.sleep(FOR_OUTPUT)
            abort_at_exit(error)


def error_text(error):
    """The kind of an error and its message.

    >>> error_text(ValueError("lr=-1")), error_text(KeyboardInterrupt())
    ('ValueError: lr=-1', 'KeyboardInterrupt')
    >>> class Mute(Exception):
    ...     __str__ = None
    >>> error_text(Mute())
    'Mute'
    """
    kind = type(error).__name__
    try:
        message = str(error)
    except Exception:  # of the error itself: the others still have to know of it
        return kind
    return f"{kind}: {message}" if message else kind


def abort_at_exit(error):
    """End all ranks when this process has run what it runs at its end."""
    from mpi4py.run import set_abort_status

    set_abort_status(error if isinstance(error, KeyboardInterrupt) else 1)
