"""Texts of any size, read line by line: plain or compressed, in UTF-8."""

import gzip
import os
import zlib
from pathlib import Path

from npformer.errors import UserError
from npformer.files.paths import MISSING, kind_of_file

LONGEST_LINE = 2**26  # bytes: some devices, such as /dev/zero, never end one
HELD_OUT = 0.1  # of a text, at its end


def find_text(folder, split, language):
    """Return the path of the file of a split in a folder, ``train.en`` or ``train.en.gz``."""
    folder = Path(folder)
    names = [f"{split}.{language}", f"{split}.{language}.gz"]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    there = sorted(path.name for path in folder.glob("*")) if folder.is_dir() else "no such folder"
    raise FileNotFoundError(f"{folder}: expected {names[0]} or {names[1]}, found {there}")


def read_lines(path, refuse=None):
    """Yield the lines of a UTF-8 text, which is compressed by gzip if its name ends with .gz.

    ``refuse`` is as of ``decoded``.
    """
    path = Path(path)
    kind = kind_of_file(path)
    if kind in (MISSING, "a folder", "a socket"):  # a pipe, or a terminal, may be a text
        is_packed = kind_of_file(f"{path}.gz") == "a file"
        advice = f"take {path}.gz" if is_packed else "expected a text, or a .gz"
        raise FileNotFoundError(f"{path} is {kind}: {advice}")
    opened = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opened(path, "rb") as file:
            for line in decoded(file, path, refuse):
                number += 1
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(
            f"{path}, after line {number}: {error}; expected a whole gzip file"
        ) from error


def decoded(file, name, refuse=None):
    """Yield the lines of UTF-8 text, with or without a byte order mark.

    ``name`` is for error messages. If a line is not UTF-8, ``refuse`` is called with a message that
    says so, and the line is yielded as an empty one. Without ``refuse``, the message is raised.
    """
    for number, line in enumerate(_lines(file, name), start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            message = f"{name}, line {number}: {error}; expected UTF-8"
            if refuse is None:
                raise UserError(message) from error
            refuse(message)
            text = ""
        yield text.rstrip("\r\n")


def _lines(file, name):
    r"""Yield the lines, each with its end, which is \n alone, unlike those of str.splitlines."""
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise UserError(
                f"{name} has a line of more than {LONGEST_LINE:,} bytes, expected a text"
            )
        yield line


def bad_lines(path, skip_empty, check=None):
    """Yield a message about each line of a text that is not UTF-8, empty, or refused.

    Empty lines are no bad ones with ``skip_empty``. ``check(line, number)`` raises ``UserError`` to
    refuse a line.
    """
    not_decoded = []  # the message about the line that was read last, if it is not UTF-8
    for number, line in enumerate(read_lines(path, not_decoded.append), start=1):
        if not_decoded:
            yield not_decoded.pop()
        elif not line.strip():
            if not skip_empty:
                yield is_empty(path, number)
        elif check:
            try:
                check(line, number)
            except UserError as error:
                yield f"{path}, {error}"


def is_empty(path, number):
    """The message about an empty line."""
    return f"{path}, line {number} is empty: expected a sentence, or skip_empty=True"


def read_text(path):
    """The text of a file, plain or .gz."""
    return text_of(read_lines(path), path)


def text_of(lines, name):
    """The text of lines; raises if there is none, or if it is no text.

    ``name`` is for error messages.
    """
    text = "\n".join(lines)
    if not text.strip():
        what = "has only blank lines" if text else "is empty"
        raise UserError(f"{name} {what}, expected a text")
    if "\0" in text:
        raise UserError(f"{name} has bytes of 0: expected a text, not another kind of file")
    return text + "\n"


def read_both(path, held_out=None):
    """The texts to train on and to hold out: two files, or one, whose last tenth is held out."""
    text = read_text(path)
    if held_out:
        # With realpath, unlike Path.resolve, links may lead to themselves.
        if os.path.realpath(held_out) == os.path.realpath(path):
            raise UserError(f"{held_out} is the text of the training, expected another")
        return text, read_text(held_out)
    end = round(len(text) * (1 - HELD_OUT))
    return text[:end], text[end:]
