"""Locks on folders, one of which allows one training at a time in a folder."""

import contextlib
import errno
import os
from pathlib import Path

WITHOUT_LOCKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL}  # of a system or a disk

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def locked(folder):
    """Lock a folder against other trainings; the system releases the lock when the process ends, however it ends.

    If another training holds the lock, a ``ValueError`` is raised.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.callback(os.close, lock_folder(folder))
        except BlockingIOError:
            line = f"{folder} belongs to a running training: wait for its end, or choose another --out"
            raise ValueError(line) from None
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        yield


def lock_folder(folder):
    """Lock a folder against other processes, until the descriptor that this returns is closed.

    It raises ``BlockingIOError`` if another process, or another descriptor of this one, holds the lock, and ``OSError``
    if the operating system or the disk has no locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # or it would wait at a pipe
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
