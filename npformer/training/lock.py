"""One training at a time in a folder."""

import contextlib
import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def locked(folder):
    """Keep other trainings out of a folder; the system lets go of it when the process ends, however it ends.

    Raises
    ------
    ValueError
        If another holds it.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, locked(folder):
    ...     pass
    """
    if fcntl is None:
        yield
        return
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ValueError(f"{folder} belongs to a training that runs: expected to end first, or another --out") from None
    except OSError:  # not every disk has locks
        pass
    try:
        yield
    finally:
        os.close(descriptor)
