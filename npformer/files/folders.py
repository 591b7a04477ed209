"""New files, which take their places when they are whole, those of a folder together."""

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import sys
from pathlib import Path

from npformer.errors import UserError
from npformer.files.locks import scratch_folder
from npformer.files.paths import path_to_replace
from npformer.runtime.interrupts import deferred_interrupts

UNFINISHED = "UNFINISHED_SAVE.txt"
WHAT_IT_MEANS = (
    "The files in this folder are being replaced, or the program that replaced them was "
    "interrupted: some may be old\nand some new. Save them again, which deletes this file.\n"
)
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # constants of Linux


@contextlib.contextmanager
def new_file(path):
    """Give a path to write a file to, which takes the place of ``path`` when the block ends.

    Whatever interrupts this, ``path`` has the old file or the new one, whole and on the disk.
    Missing folders are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(path) as scratch:
        new = scratch / "new"
        yield new
        _complete(new, path)
        os.replace(new, path)
    _sync_folder(path.parent)


@contextlib.contextmanager
def new_files(folder, obsolete=()):
    """Give an empty folder to write files to, which take the places of those in ``folder``.

    They do so when the block ends. They must be files, no folders.

    Whatever interrupts this, ``folder`` has all of the old files or all of the new ones. This needs
    a folder without folders in it, on a disk on which two can be exchanged, as most are on Linux.
    Else the files are replaced one after another; if that is interrupted, the file ``UNFINISHED``
    stays among them, of which ``check_finished`` tells.

    ``folder`` is made if it is missing. It stays the same folder with the same permissions, a link
    to it stays a link, and its other files stay, except those with the names ``obsolete``, which
    belong to the old ones; a folder with such a name goes if it is empty. No other process may make
    a file in it meanwhile: one that is made during the exchange is lost.
    """
    # In a real path, "." has a name, too.
    folder = Path(os.path.realpath(path_to_replace(folder, "a folder")))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _scratch_near(folder) as scratch:
        new = scratch / "new"
        new.mkdir()
        yield new
        for path in new.iterdir():
            _complete(path, folder / path.name)
        with deferred_interrupts():
            _replace(folder, scratch, obsolete)
    _sync_folder(folder.parent)


@contextlib.contextmanager
def new_folder(folder):
    """Give an empty folder to write files and folders to, which is ``folder`` when the block ends.

    It is so as a whole or not at all.

    If there is one with files in it by then, which another process has made, that one stays.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(folder) as scratch:
        new = scratch / "new"
        new.mkdir()
        yield new
        for path in new.rglob("*"):
            _sync(path) if path.is_file() else _sync_folder(path)
        _moved_into_place(new, folder)
    _sync_folder(folder.parent)


def check_finished(folder):
    """Raise if the files of a folder may be a mixture of old and new ones."""
    if (folder / UNFINISHED).exists():
        advice = f"save them again; or, if you have replaced them all, delete {UNFINISHED}"
        what = "some of its files may be old and some new, as saving them was interrupted"
        raise UserError(f"{what}: {advice}")


@contextlib.contextmanager
def _scratch_near(folder):
    """A scratch folder beside a folder, with which it can be exchanged; if need be, one in it."""
    with contextlib.ExitStack() as stack:
        try:
            scratch = stack.enter_context(scratch_folder(folder))
        except OSError:
            if not folder.exists():
                raise
            scratch = stack.enter_context(scratch_folder(folder / "new"))
        yield scratch


def _complete(new, old):
    """Wait until a new file is on the disk, and with the old one's permissions, or usual ones."""
    _sync(new)  # before it gets its name, or a power failure could leave an empty file
    with contextlib.suppress(OSError):  # not every disk has permissions
        folder = old.parent.stat() if old.parent.exists() else new.parent.stat()
        if folder.st_mode & stat.S_ISGID:
            os.chown(new, -1, folder.st_gid)
        # As the umask has them; safetensors makes files for their owner alone.
        usual = new.parent.stat().st_mode & 0o666
        mode = old.stat().st_mode if old.is_file() else usual
        new.chmod(stat.S_IMODE(mode))


def _replace(folder, scratch, obsolete):
    """Let the files in ``scratch / "new"`` take their places, in the first way that is possible."""
    new = scratch / "new"
    if _moved_into_place(new, folder):
        return
    if _exchanged(folder, scratch, obsolete):
        return
    _replace_one_by_one(folder, new, obsolete)


def _moved_into_place(new, folder):
    """Rename a new folder to ``folder``, unless there is one; return whether that was done."""
    if folder.exists():
        return False
    try:
        os.rename(new, folder)
    except OSError:
        if not folder.exists():
            raise
        return False  # another process has just made one
    return True


def _exchanged(folder, scratch, obsolete):
    """Replace the files of a folder by exchanging it with a twin; return whether that was done.

    The twin has the same files under the same names. What has which name:

    ============  =====================  =======================  =====================
    name          at first               in between               at the end
    ============  =====================  =======================  =====================
    ``folder``    the folder, old files  the twin, old files      the folder, new files
    ``twin``      the twin, old files    the folder, old and new  the twin, old files
    ============  =====================  =======================  =====================
    """
    twin = scratch / "twin"
    if sys.platform != "linux":
        return False
    try:
        _link_all(folder, twin)
        _exchange(folder, twin)
    except OSError:  # whatever the reason, nothing has changed
        return False
    # If what follows fails, the twin keeps the name of the folder, and has all of the old files.
    _move_all(scratch / "new", twin, [*obsolete, UNFINISHED])
    _exchange(folder, twin)
    return True


def _replace_one_by_one(folder, new, obsolete):
    for path in new.iterdir():
        old = folder / path.name
        if old.is_dir() and not old.is_symlink():  # found before the first file is replaced
            raise OSError(errno.EISDIR, "it is a folder, expected a file", str(old))
    with scratch_folder(folder / "new") as near:
        for path in new.iterdir():
            shutil.move(path, near / path.name)  # which copies it if the folder is on another disk
        mark = near / UNFINISHED
        mark.write_text(WHAT_IT_MEANS, encoding="utf-8")
        for path in near.iterdir():
            _sync(path)
        os.replace(mark, folder / UNFINISHED)
        _sync_folder(folder)
        _move_all(near, folder, obsolete)
        (folder / UNFINISHED).unlink(missing_ok=True)


def _move_all(new, folder, obsolete):
    for path in sorted(new.iterdir()):
        os.replace(path, folder / path.name)
    for name in obsolete:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # it has files of a person
                path.rmdir()
        else:
            path.unlink(missing_ok=True)
    _sync_folder(folder)


def _link_all(folder, twin):
    """Make a folder in which each file of a folder has a second name.

    An ``OSError`` is raised if that has folders in it: they may be large, such as .git, and what
    they hold would have to be linked as well.
    """
    twin.mkdir()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                raise OSError(errno.EXDEV, "a folder in a folder is not exchanged", entry.path)
            with contextlib.suppress(FileNotFoundError):  # another process has just deleted it
                os.link(entry.path, twin / entry.name, follow_symlinks=False)
    shutil.copystat(folder, twin)


def _exchange(one, other):
    """Exchange the names of two folders on one disk, in one step, or raise an ``OSError``."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))


def _sync(path):
    """Wait until a file, or the list of the files in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path):
    # Where that is impossible, on Windows and in some network folders, the old file may reappear.
    with contextlib.suppress(OSError):
        _sync(path)
