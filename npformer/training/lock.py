"""A lock that allows one training at a time in a folder."""

import contextlib
import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def locked(folder):
    """Lock a folder against other trainings; the system releases the lock when the process ends, however it ends.

    Raises
    ------
    ValueError
        If another training holds the lock.

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
        raise ValueError(f"{folder} belongs to a running training: wait for its end, or choose another --out") from None
    except OSError:  # not every file system has locks
        pass
    try:
        yield
    finally:
        os.close(descriptor)
