"""Checkpoints: named arrays and a dict of other values in one file.

The file is a safetensors file, which other programs can read: the arrays, and in its metadata
``info`` as JSON, the order of the names and a checksum of everything: a damaged file is refused.
"""

import contextlib
import json
import zlib
from typing import Any

import numpy as np

from npformer.arrays import has_own_rules, on_host
from npformer.errors import UserError
from npformer.extras import imported
from npformer.files.folders import new_file
from npformer.files.paths import MISSING, check_path, check_regular, kind_of_file, path_to_replace
from npformer.files.strict_json import check_restorable, check_size, parse_json
from npformer.runtime.interrupts import deferred_interrupts

FORMAT, VERSION = "npformer checkpoint", "1"
# The files in the folder of a training: the checkpoints of the last step and of the best
# validation, what is made of them in the end, and the log.
LAST, BEST, RESULT = "last.safetensors", "best.safetensors", "model.safetensors"
LOG = "log.jsonl"
LONGEST_REASON = 400  # characters: the reason may quote the file
OF_CONTENT = TypeError, ValueError, OverflowError  # which the content of a file may cause


class CheckpointError(UserError):
    """A checkpoint could not be saved, or a file is not a valid checkpoint."""


def save_checkpoint(path: Any, arrays: dict[str, np.ndarray], info: dict) -> None:
    """Write arrays and a dict of other values to one file, atomically.

    Whatever interrupts this, ``path`` holds the complete old file or the complete new one. Missing
    folders are created. Several processes may save to one path, which then holds what the last of
    them saved. Needs safetensors: ``pip install 'npformer[checkpoint]'``, in a clone ``pip install
    -e '.[checkpoint]'``.

    Parameters
    ----------
    path : str or Path
    arrays : dict of str to array
        Arrays of any shape and memory layout; booleans, integers, and floats of up to 64 bits.
    info : dict
        Nested dicts with string keys, lists, strings, numbers, booleans and None, of up to 100
        levels, 400,000 values and 8 MB: more belongs into ``arrays``. All are restored exactly,
        including NaN.

    Raises
    ------
    CheckpointError
        If the file cannot be written, for example because the disk is full. A previous file is
        unchanged.
    TypeError
        If a value in ``arrays`` or ``info`` cannot be saved; the error names it.
    UserError
        If ``info`` is too large.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = f"{folder}/last.safetensors"
    ...     save_checkpoint(path, {"weight": np.ones((2, 1))}, {"step": 100})
    ...     arrays, info = load_checkpoint(path)
    >>> arrays
    {'weight': array([[1.],
           [1.]])}
    >>> info
    {'step': 100}
    """
    safetensors = import_safetensors()
    try:
        path = path_to_replace(path, "a file")
    except (OSError, ValueError) as error:
        raise CheckpointError(str(error)) from None
    arrays = _storable(arrays)
    check_restorable(info, "info")
    described = {"format": FORMAT, "version": VERSION}
    described["order"] = json.dumps(list(arrays))
    described["info"] = json.dumps(info)
    check_size(described["info"], "info")
    check_size(described["order"], "the list of the names of the arrays")
    metadata = described | {"crc32": checksum(arrays, described)}
    try:
        with deferred_interrupts(), new_file(path) as new:
            safetensors.numpy.save_file(arrays, new, metadata)
            if checksum(arrays, described) != metadata["crc32"]:
                why = "another thread has changed an array, save a copy of it"
                raise CheckpointError(f"{path} was not saved: {why}")
    except (OSError, safetensors.SafetensorError) as error:
        what = f"{path} could not be saved: {error}"
        raise CheckpointError(f"{what}; a previous file is unchanged") from error


def load_checkpoint(path: Any) -> tuple[dict[str, np.ndarray], dict]:
    """Read what ``save_checkpoint`` wrote: the arrays, writable and in their order, and ``info``.

    Nothing in the file is executed, and a file with even one wrong bit is refused. A file that was
    forged takes no more memory than its own size allows. While another process saves to ``path``,
    this returns what it held before or what it holds then.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    CheckpointError
        If it is damaged, was written by something else, or by a later npformer.

    Examples
    --------
    >>> load_checkpoint(__file__)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    npformer.files.checkpoint.CheckpointError: ...checkpoint.py cannot be read as a checkpoint: ...
    """
    safetensors = import_safetensors()
    try:
        path = check_path(path)
    except ValueError as error:  # it is empty
        raise CheckpointError(str(error)) from None
    if kind_of_file(path) == MISSING:
        raise FileNotFoundError(f"there is no checkpoint {path!s:.400}")
    try:
        with _opened(path) as (file, metadata):
            order = parse_json(metadata["order"], "its order")
            info = parse_json(metadata["info"], "its info")
            names = sorted(map(repr, file.keys()))
            if not isinstance(order, list) or sorted(map(repr, order)) != names:
                expected = "the names of its arrays, each once"
                raise UserError(f"its order is {order!r:.60}, expected {expected}")
            check_restorable(info, "its info")
            arrays = {name: file.get_tensor(name) for name in order}
    # TypeError and AttributeError are those of a dtype that NumPy does not have.
    except (OSError, ValueError, TypeError, AttributeError, safetensors.SafetensorError) as error:
        raise _refusal(path, error) from error
    if metadata.pop("crc32") != checksum(arrays, metadata):
        raise _refusal(path, "its checksum is wrong, so some of it was changed or damaged")
    return arrays, info


def description_in(path):
    """The description of the model in a checkpoint, and the names of its arrays: no array is read.

    It is (None, set()) if there is no checkpoint, or none of a model; ``load_checkpoint`` says why.
    """
    safetensors = import_safetensors()
    try:
        with _opened(path) as (file, metadata):
            info = parse_json(metadata["info"], "its info")
            return info["model"], {*file.keys()}
    except (OSError, ValueError, TypeError, KeyError, safetensors.SafetensorError):
        return None, set()


@contextlib.contextmanager
def refusing(path, advice="try another file", errors=OF_CONTENT):
    """Turn errors about the content of a checkpoint into a ``CheckpointError`` with its path.

    ``errors`` are their classes.
    """
    try:
        yield
    except errors as error:
        raise CheckpointError(f"{path}: {_in_one_line(error)}; {advice}") from error


def joined(argument, ours, given):
    """Merge our entries of a checkpoint with those of the caller, who must not use our names.

    >>> joined("info", {"step": 1}, {"step": 2})
    Traceback (most recent call last):
    npformer.UserError: info has the names ['step'], expected others: these are taken
    """
    more = given or {}
    if common := sorted(ours.keys() & more.keys()):
        raise UserError(f"{argument} has the names {common}, expected others: these are taken")
    return ours | more


@contextlib.contextmanager
def _opened(path):
    """The file of a checkpoint, and its metadata, which are those of this format."""
    check_regular(path)
    with import_safetensors().safe_open(path, "numpy") as file:
        metadata = file.metadata() or {}
        _check_metadata(metadata)
        yield file, metadata


def _check_metadata(metadata):
    if metadata.get("format") != FORMAT:
        raise UserError("npformer did not write it")
    if metadata.get("version") != VERSION:
        version = f"{metadata.get('version')!s:.20}"
        raise UserError(f"it has format version {version}, this npformer reads {VERSION}")
    if missing := {"order", "info", "crc32"} - metadata.keys():
        raise UserError(f"its metadata lacks {sorted(missing)}")


def _refusal(path, why):
    wanted = "expected a file written by save_checkpoint, try another one"
    return CheckpointError(f"{path} cannot be read as a checkpoint: {_in_one_line(why)}; {wanted}")


def _in_one_line(error):
    text = " ".join(str(error).split())
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + "…"


def _storable(arrays):
    """The arrays as safetensors takes them for granted: contiguous, in native order."""
    storable = {}
    for name, array in arrays.items():
        array = on_host(array)
        _check_name(name)
        what = f"arrays[{name!r}]"
        if not isinstance(array, np.ndarray) or has_own_rules(type(array)):
            kind = type(array).__name__
            advice = ""
            if isinstance(array, (int, float)):
                advice = ": put numbers into info"
            elif isinstance(array, dict):  # a model's parameters
                kind = "dict"
                advice = ': try npformer.tree.to_arrays(params, "params")'
            raise TypeError(f"{what} is a {kind}, expected a NumPy array{advice}")
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            expected = "bool, integers or floats to 64 bits"
            raise TypeError(f"{what} has dtype {array.dtype}, expected {expected}")
        storable[name] = np.asarray(array, array.dtype.newbyteorder("="), order="C")
    return storable


def _check_name(name):
    if not isinstance(name, str):
        raise TypeError(f"arrays has the key {name!r}, expected strings")
    if name.encode(errors="replace").decode() != name:  # it has a half of a surrogate pair
        expected = "text that UTF-8 can encode: rename it"
        raise UserError(f"arrays has the key {name!r}, expected {expected}")
    if name == "__metadata__":
        raise UserError(f"arrays has the key {name!r}, which safetensors reserves: rename it")


def checksum(arrays, metadata):
    """CRC-32 of everything.

    It finds all errors within 32 bits, misses 1 of 4e9 wider ones, and is 5 times as fast as
    blake2b.
    """
    layout = sorted([name, array.dtype.name, array.shape] for name, array in arrays.items())
    crc = zlib.crc32(json.dumps([layout, metadata], sort_keys=True).encode())
    for name, _, _ in layout:
        crc = zlib.crc32(arrays[name], crc)
    return f"{crc:08x}"


def import_safetensors():
    """The package safetensors."""
    return imported("safetensors.numpy", "checkpoint", "checkpoints need")
