"""A lock on an object that changes, for threads, signal handlers and forked processes."""

import os
import threading
from contextlib import contextmanager


class Alone:
    """While one thread changes or saves a trainer, others wait; a signal handler, in the same thread, is refused."""

    def __init__(self):
        self._begin()

    def _begin(self):
        self.lock, self.process, self.users = threading.RLock(), os.getpid(), []

    @contextmanager
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
