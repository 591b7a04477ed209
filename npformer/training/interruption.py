"""Being told to stop: finish what is being done, then stop."""

import contextlib
import os
import signal
import threading


class StopSignals:
    """While it is open, SIGINT (Ctrl-C) and SIGTERM only set a flag, so that a step can end and be saved.

    A second signal interrupts at once, as always. Use it as a callback of ``Trainer.fit``: it asks to stop after the
    step in which a signal came. Outside the main thread, where Python has no signals, it does nothing.

    Parameters
    ----------
    message : str, optional
        What to write to standard error when a signal comes: a step may take a while to end.

    Attributes
    ----------
    received : signal.Signals or None
        The signal that came.

    Examples
    --------
    >>> with StopSignals() as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    >>> stop.received.name, stop.exit_code
    ('SIGTERM', 143)
    """

    def __init__(self, message=""):
        self.message = message
        self.received = None
        self._before = {}

    @property
    def exit_code(self):
        """128 + the signal's number, as shells have it: 130 after SIGINT, 143 after SIGTERM; 0 if none came."""
        return 128 + self.received if self.received else 0

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __call__(self, trainer, info):
        """Whether to stop."""
        return self.received is not None

    def _note(self, number, frame):
        self.received = signal.Signals(number)
        for other, handler in self._before.items():
            signal.signal(other, handler)  # the next one is not only noted
        if self.message:
            with contextlib.suppress(OSError):  # who reads may be gone already
                os.write(2, f"\n{self.received.name}: {self.message}\n".encode())  # print may be in mid-line
