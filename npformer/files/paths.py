"""How small files are replaced, where damaged ones are kept, and what a path leads to."""

import contextlib
import os
import stat
from pathlib import Path
from uuid import uuid4

from npformer.checks import shown
from npformer.errors import UserError

KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
MISSING = "missing"


def replace_file(path, content):
    """Write the whole content of a file, in one step: others find the old content or the new one.

    If it cannot be written, an ``OSError`` is raised, and the old file is unchanged. This does not
    wait for the disk: if the power fails soon afterwards, the file may be damaged. What must not be
    lost is written by ``folders.new_file``, which waits.
    """
    new = path.with_name(f".{path.name}.{uuid4().hex[:16]}.tmp")
    try:
        new.write_bytes(content)
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def check_path(path, name="path"):
    """The path of a file as a ``Path``.

    Python would take 1 for standard output, and an empty text for the current folder.
    """
    if not isinstance(path, (str, os.PathLike)):
        kind = type(path).__name__
        raise TypeError(f"{name}={shown(path)} is a {kind}, expected a str or a Path")
    if os.fspath(path) == "":
        raise UserError(f"{name}='' is no name, expected one; '.' is the current folder")
    return Path(path)


def path_to_replace(path, expected):
    """The path if it leads to what is expected, "a file" or "a folder", or to nothing.

    Of a link, it is the path where that leads.
    """
    path = check_path(path)
    # Halves of surrogate pairs are not in UTF-8, either.
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in str(path)):
        raise UserError(f"path={str(path)!a:.80} has a character that no name of a file can have")
    kind = kind_of_file(path)
    if kind not in (expected, MISSING):
        raise UserError(f"{path} is {kind}, expected {expected}, or a new name")
    if not path.is_symlink():
        return path
    place = Path(os.path.realpath(path))  # so that the link stays one
    if place.is_symlink():
        what = f"{path} is a link that leads to itself"
        raise UserError(f"{what}, expected {expected}, or a new name")
    return place


def name_for_damaged(path):
    """Return a new name beside a file, such as log.jsonl.damaged, or log.jsonl.damaged1."""
    names = (path.with_name(f"{path.name}.damaged{n or ''}") for n in range(1_000_000))
    return next(name for name in names if not name.exists())


def kind_of_file(path):
    """What a path leads to: "a file", "a folder", "a pipe", "a socket", "a device" or "missing".

    ``Path.exists`` raises an error if the name is too long.
    """
    try:
        return KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "a device")
    except PermissionError:
        raise
    except (OSError, ValueError):  # of a name that no file can have
        return MISSING


def check_regular(path):
    """Raise if a path leads to a folder, a pipe or a device.

    A pipe waits for a writer, and a device may never end.

    What reads something else than lines of text calls this first. A missing file is no error here:
    whoever opens it next says so.
    """
    kind = kind_of_file(path)
    if kind not in ("a file", MISSING):
        raise UserError(f"{path} is {kind}, expected a file")


def read_bounded(path, at_most):
    """The bytes of a file of unknown origin, if they are no more than ``at_most``."""
    check_regular(path)
    with open(path, "rb") as file:
        content = file.read(at_most + 1)  # whatever size it says it has
    if len(content) > at_most:
        raise UserError(f"{path} has more than {at_most:,} bytes, expected a smaller file")
    return content
