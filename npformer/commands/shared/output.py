"""The files that a script writes: checked before it begins, and written completely or not at
all.
"""

import argparse
import importlib.util
import json
import os
import re
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from npformer.commands.shared.arguments import PARSER, UsageError, named_path

from npformer.errors import UserError
from npformer.extras import pip_install

DEVICES = {"/dev/stdout": 1, "/dev/stderr": 2}


def output_file(text):
    """The type of an argument that names a file to write."""
    path = named_path(text)
    if text == "-":
        raise argparse.ArgumentTypeError(
            f"{text}, expected a file; /dev/stdout writes to standard output"
        )
    try:
        if path.is_dir():
            raise argparse.ArgumentTypeError(f"{text} is a folder, expected a file")
        if path.is_file():
            os.close(os.open(path, os.O_WRONLY))
        if not _is_device(path):
            _try_to_write(Path(os.path.realpath(path)).parent)
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{text} cannot be written: {error.strerror}; choose another file"
        ) from error
    return path


def output_folder(text):
    """The type of an argument that names a folder to write to."""
    path = named_path(text)
    try:
        _try_to_write(path)
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{text} cannot be written to: {error.strerror}; choose another folder"
        ) from error
    return path


def picture_file(text):
    """The type of an argument that names a picture to write, which needs matplotlib."""
    if why := why_no_pictures():
        raise argparse.ArgumentTypeError(f"pictures {why}")
    from matplotlib.figure import Figure

    endings = Figure().canvas.get_supported_filetypes()
    if Path(text).suffix[1:].lower() not in endings:
        raise argparse.ArgumentTypeError(
            f"{text}, expected a name that ends with .{', .'.join(sorted(endings))}"
        )
    return output_file(text)


def why_no_pictures():
    """What pictures need, if matplotlib is not installed or cannot be imported."""
    if importlib.util.find_spec("matplotlib") is None:
        return f"need matplotlib: {pip_install('plot')}"
    try:
        importlib.import_module("matplotlib.figure")
    except Exception as error:  # for example, MPLBACKEND names no backend
        reason = textwrap.shorten(str(error), 200, placeholder=" ...")
        return f"need matplotlib, which cannot be imported: {reason}"
    return None


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """The options of a command that draws pictures.

    Parameters
    ----------
    out : DIR
        folder of the pictures
    no_plots
        draw no pictures
    """

    out: Path | None = None
    no_plots: bool = False

    def folder(self, default):
        """Where pictures will be drawn; None if none will be, which is said if nobody asked for
        that.
        """
        if self.no_plots:
            return None
        if why := why_no_pictures():
            print(f"no pictures will be drawn: they {why}", flush=True)
            return None
        return checked_folder(self.out or Path(default), ", or --no-plots")


def checked_folder(folder, advice=""):
    """The folder of --out, if it can be written to."""
    try:
        return output_folder(folder)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"argument --out: {error}{advice}") from error


def refuse_overwriting(inputs, **defaults):
    """Check that the options that name an output name different files, and that none is an input.

    Of ``inputs``, None and "-" are no files. ``defaults`` are the outputs of options that were not
    typed.
    """
    files = [path for path in inputs if path is not None and str(path) != "-"]
    uses = {os.path.realpath(path): "which this script reads or writes itself" for path in files}
    for option, path in PARSER.get().values_of_types(output_file, picture_file):
        path = path or defaults.get(option.lstrip("-"))
        if path is None or _is_device(path):
            continue
        file = os.path.realpath(path)
        if file in uses:
            raise UserError(f"{option} {path}, {uses[file]}: choose another file")
        uses[file] = f"which is also {option}"


def write_json(path, figures):
    """Write figures to a JSON file, if a path is given. NaN and inf become null."""
    if path:
        finite = json.loads(json.dumps(figures), parse_constant=lambda name: None)
        write_whole(path, (json.dumps(finite, indent=2, allow_nan=False) + "\n").encode())


def write_whole(path, data):
    """Write bytes to a file. If this fails, a previous file is unchanged."""
    from npformer.files.paths import replace_file  # here, as it needs NumPy

    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if _is_device(path):
            if sys.stdout is not None:
                sys.stdout.flush()  # what was printed before stands before it
            number = _descriptor(path)
            with open(path if number is None else os.dup(number), "wb") as device:
                device.write(data)
        else:
            replace_file(target, data)
    except OSError as error:  # which need not name the file, for example if the disk is full
        raise OSError(error.errno, error.strerror, str(path)) from error


def _is_device(path):
    """Whether a path is /dev/stdout, a pipe or the like, which is written to, not replaced."""
    return _descriptor(path) is not None or (path.exists() and not path.is_file())


def _descriptor(path):
    """The descriptor that /dev/stdout or the like names, or None.

    A file to which standard output goes would be written from its start if it were opened anew.
    """
    number = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d{1,9})", str(path))
    return int(number[1]) if number else DEVICES.get(str(path))


def _try_to_write(folder):
    """Create and delete a file in a folder, or in the folder in which it would be created."""
    while not folder.exists():
        folder = folder.parent
    tempfile.TemporaryFile(dir=folder).close()
