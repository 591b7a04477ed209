"""Locks on folders of trainings, on hidden ones for new content, and on kernels to compile."""

import contextlib
import errno
import glob
import os
import shutil
from uuid import uuid4

from npformer.errors import UserError

# of a system or a disk:
WITHOUT_LOCKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL}

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def locked(folder):
    """Lock a folder, which exists, against other trainings.

    The lock ends with the block, or with the process, however that ends. If another training holds
    the lock, a ``UserError`` is raised.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.callback(os.close, lock_folder(folder))
        except BlockingIOError:
            advice = "wait for its end, or choose another folder"
            raise UserError(f"{folder} belongs to a running training: {advice}") from None
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        yield


def lock_folder(folder):
    """Lock a folder against other processes, until the descriptor that this returns is closed.

    It raises ``BlockingIOError`` if another process, or another descriptor of this one, holds the
    lock, and ``OSError`` if the operating system or the disk has no locks.
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


@contextlib.contextmanager
def claimed(path):
    """Claim a path against other processes; yields False if another one has claimed it.

    The claim ends with the block, or with the process, however it ends; a forked one does not have
    the claims of its parent. Where the system, the disk or the folder has no locks, nobody is kept
    out.
    """
    lock = path.with_name(f"{path.name}.lock")
    with contextlib.ExitStack() as stack:
        is_free = True
        with contextlib.suppress(OSError):
            if fcntl is not None:
                descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
                stack.callback(os.close, descriptor)
                try:
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    stack.callback(lock.unlink, missing_ok=True)
                except (BlockingIOError, PermissionError):  # each system has its own
                    is_free = False
        yield is_free


@contextlib.contextmanager
def scratch_folder(path):
    """Make a folder on the same disk as a file, and delete it at the end.

    Several processes can write to one path: each has its own folder, and holds a lock on it. A
    folder without a lock was left by a process that was killed, and is deleted. (Where the system
    has no such locks, nobody deletes it.)
    """
    _delete_left(path)
    folder, lock = _locked_folder(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _delete_left(path):
    for folder in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}.tmp"):
        with contextlib.suppress(OSError):  # another process holds its lock, or has just deleted it
            lock = lock_folder(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _locked_folder(path):
    """Return a new folder and its lock, None if the system has none."""
    while True:
        folder = path.with_name(f".{path.name}.{uuid4().hex[:16]}.tmp")
        folder.mkdir()
        try:
            lock = lock_folder(folder)
        except (BlockingIOError, FileNotFoundError):  # another process deletes it: it had no lock
            continue
        except OSError:
            return folder, None
        if folder.exists():
            return folder, lock
        os.close(lock)
