"""A lock on an object that changes, for threads, signal handlers and forked processes."""

import os
import threading
from contextlib import contextmanager


class Alone:
    """While one thread changes a trainer, others wait, and a signal handler, in the same thread, is refused."""

    def __init__(self):
        self.lock, self.process, self.changing = threading.RLock(), os.getpid(), False

    @contextmanager
    def __call__(self, changing=False):
        """Other threads step, save or restore the trainer before or after this block, not meanwhile."""
        if self.process != os.getpid():  # the thread that had the lock is not in this forked process
            self.__init__()  # type: ignore[misc]
        with self.lock:
            if self.changing:
                raise RuntimeError(
                    "a signal handler called the trainer in the middle of a step: set a flag in the handler, and call "
                    "the trainer after the step, as npformer.training.StopSignals does"
                )
            self.changing = changing
            try:
                yield
            finally:
                self.changing = False
