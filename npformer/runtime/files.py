"""How a file is replaced, and where a damaged one is kept."""

import contextlib
import os
from pathlib import Path
from uuid import uuid4

from npformer.checks import shown


def replace_file(path, content):
    """Write the whole content of a file, in one step: others find the old content or the new one.

    If it cannot be written, an ``OSError`` is raised, and the old file is unchanged.
    """
    new = path.with_name(f".{path.name}.{uuid4().hex[:16]}.tmp")
    try:
        new.write_bytes(content)
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def check_path(path):
    """The path of a file as a ``Path``. Python would take 1 for standard output."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path={shown(path)} is a {type(path).__name__}, expected a str or a Path")
    return Path(path)


def file_to_replace(path):
    """The file that a path leads to, if it may be replaced: a link stays one, and a device or a pipe what it is."""
    path = check_path(path)
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in str(path)):  # not in UTF-8, either
        raise ValueError(f"path={str(path)!a:.80} has a character that no name of a file can have")
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no regular file, expected one to replace, or a new name")
    return path


def name_for_damaged(path):
    """Return a name beside a file, such as log.jsonl.damaged, that is not taken by what an earlier damage left."""
    names = (path.with_name(f"{path.name}.damaged{n or ''}") for n in range(1_000_000))
    return next(name for name in names if not name.exists())
