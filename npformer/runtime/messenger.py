"""A thread in which MPI moves messages while other threads compute.

Without a card that moves data by itself, MPI moves messages only while it is called. Over TCP, a
call moves no more than what the system has buffered, and a message of many megabytes needs many
calls.
"""

import threading
import time

PAUSE = 0.0005  # seconds between two calls, in which 10 Gbit/s bring 0.6 MB


class Messenger:
    """Calls MPI while messages are under way.

    MPI need not take calls from two threads at once (``MPI.THREAD_SERIALIZED``): from the first
    ``deliver`` to ``end``, whoever calls it holds ``lock``. The thread runs from there to there;
    ``end`` has to be called whatever happens.
    """

    def __init__(self, ranks):
        self.ranks = ranks
        self.lock = threading.Condition()
        self.requests = []  # messages that are under way
        self.thread = None
        self.ended = False
        self.error = None

    def deliver(self, requests):
        """Go on with these messages, MPI's requests, too; the caller holds the lock."""
        self.requests += requests
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, name="npformer-messenger", daemon=True)
            self.thread.start()
        self.lock.notify()

    def end(self):
        """End the thread, even if messages are under way; raise the error of MPI, if any."""
        if self.thread is None:
            return
        with self.lock:
            self.ended = True
            self.lock.notify()
        self.thread.join()
        self.thread = None
        if self.error is not None:
            raise self.error

    def _run(self):
        try:
            while True:
                with self.lock:
                    self.lock.wait_for(lambda: self.requests or self.ended)
                    if self.ended:
                        return
                    if self.ranks.mpi.Request.Testall(self.requests):
                        self.requests.clear()
                time.sleep(PAUSE)
        except Exception as error:  # of MPI
            self.error = error
