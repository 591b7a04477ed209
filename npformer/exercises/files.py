"""How the files of a person are read, in whose place a program of theirs may have put anything."""

import os
import stat

LARGEST = 2**20  # bytes; the files of the exercises have some thousands
FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # else a pipe waits for a writer


class Unreadable(ValueError):
    """What is wrong with a file, in one line."""


def read_bounded(path):
    """The bytes of a file. Raises Unreadable if it is a pipe, a device or a folder, or too large."""
    number = os.open(path, FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise Unreadable(f"{path} is no regular file, expected a file with text")
        with open(number, "rb", closefd=False) as stream:
            content = stream.read(LARGEST + 1)
    finally:
        os.close(number)
    if len(content) > LARGEST:
        raise Unreadable(f"{path} has more than {LARGEST:,} bytes, which no exercise needs")
    return content
