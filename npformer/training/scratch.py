"""A hidden folder beside a file, in which its new content is written."""

import contextlib
import glob
import os
import shutil
from uuid import uuid4

from npformer.training.lock import lock_folder


@contextlib.contextmanager
def scratch_folder(path):
    """Make a folder on the same disk as a file, and delete it at the end.

    Several processes can write to one path: each has its own folder, and holds a lock on it. A folder without a lock
    was left by a process that was killed, and is deleted. (Where the system has no such locks, nobody deletes it.)
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
        except (BlockingIOError, FileNotFoundError):  # another process is deleting it: it had no lock yet
            continue
        except OSError:
            return folder, None
        if folder.exists():
            return folder, lock
        os.close(lock)
