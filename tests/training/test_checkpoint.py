"""Checkpoint files: exact round trips, and no kind of damage that is not noticed."""

import errno
import itertools
import json
import math
import os
import pkgutil
import random
import re
import signal
import stat
import sys
import time
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from programs import FORKS_WARN, WITH_FORK, WITH_PIPES, python
from refusals import refuses

from npformer import tree
from npformer.files import checkpoint, locks
from npformer.files.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from npformer.files.strict_json import parse_json
from npformer.training import JsonLog
from tests.tools.forgery import joined, parts

safetensors_numpy = pytest.importorskip("safetensors.numpy")

INTS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
DTYPES = ["bool", "float16", "float32", "float64", *INTS]


def assert_same_arrays(given, expected):
    assert list(given) == list(expected)
    for name, array in expected.items():
        assert given[name].dtype == array.dtype
        assert given[name].shape == array.shape
        assert given[name].tobytes() == array.tobytes()


def saved_and_loaded(folder, arrays):
    save_checkpoint(folder / "x", arrays, {})
    loaded, _ = load_checkpoint(folder / "x")
    return loaded


def save_numbers(path, number):
    arrays = {"a": np.full((7, 5), number), "b": np.full(9, number)}
    save_checkpoint(path, arrays, {"number": number})


@pytest.fixture
def path(tmp_path):
    """A checkpoint all of whose numbers are 1."""
    path = tmp_path / "last.safetensors"
    save_numbers(path, 1)
    return path


def assert_untouched(path):
    """The checkpoint is the old one, and nothing lies beside it."""
    assert_numbers(path, 1)
    assert list(path.parent.iterdir()) == [path]


def assert_numbers(path, number):
    arrays, info = load_checkpoint(path)
    assert info == {"number": number}
    assert all((array == number).all() for array in arrays.values())


# ---- what is saved comes back ----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 3)])
def test_arrays_come_back_bit_for_bit(tmp_path, dtype, shape):
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    highest = 1 if dtype == "bool" else 255
    bits = np.random.default_rng(0).integers(0, highest, n_bytes, np.uint8, endpoint=True)
    arrays = {"x": bits.view(dtype).reshape(shape)}  # NaNs of all kinds among the floats
    assert_same_arrays(saved_and_loaded(tmp_path, arrays), arrays)


def test_the_order_of_the_names_is_kept(tmp_path):
    names = ["z", "a", "é.ü", "", 'qu"ote\n', "m/n", "5"]
    arrays = {name: np.full(2, i, DTYPES[i]) for i, name in enumerate(names)}
    assert_same_arrays(saved_and_loaded(tmp_path, arrays), arrays)


def test_strided_and_foreign_arrays_come_back_with_their_values(tmp_path):
    x = np.arange(24.0).reshape(4, 6)
    arrays = {
        "fortran": np.asfortranarray(x),
        "transposed": x.T,
        "strided": x[::2, ::-3],
        "broadcast": np.broadcast_to(x[0], (3, 6)),
        "big-endian": x.astype(">f8"),
        "read-only": x.view(),
    }
    arrays["read-only"].flags.writeable = False
    plain = {name: np.array(array, dtype="=f8", order="C") for name, array in arrays.items()}
    assert_same_arrays(saved_and_loaded(tmp_path, arrays), plain)


def test_loaded_arrays_are_writable_and_do_not_touch_the_file(path):
    arrays, _ = load_checkpoint(path)
    for array in arrays.values():
        assert array.flags.writeable
        array[...] = 2
    assert_untouched(path)


def test_info_comes_back_exactly(tmp_path):
    small = [0.1, 1e-300, 5e-324, -0.0, 1 / 3, np.float64(0.1)]
    large = [1.7976931348623157e308, math.inf, -math.inf, math.nan]
    info = {
        "floats": small + large,
        "ints": [0, -1, 2**53 + 1, 2**64 - 1, 2**127 + 1, -(10**100)],
        "nested": {"none": None, "flags": [True, False], "empty": [{}, [], ""]},
        "unicode ü": "naïve 日本 \U0001f600 \ud800 \0 \n \"'\\",
    }
    save_checkpoint(tmp_path / "x", {}, info)
    arrays, loaded = load_checkpoint(tmp_path / "x")
    assert arrays == {}
    # By their texts 1 is not True, 0.0 is not -0.0, and NaN is NaN.
    assert repr(loaded) == repr(info).replace("np.float64(0.1)", "0.1")


def test_missing_folders_are_made_and_old_files_replaced(tmp_path):
    path = tmp_path / "a" / "b" / "last.safetensors"
    for number in (3, 4):
        save_numbers(str(path), number)
        assert_numbers(str(path), number)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_the_umask_says_who_may_read_it(path):
    plain = path.with_name("plain")
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


# ---- what cannot be saved ----


NUMBERS = np.zeros(2)


def test_arrays_that_would_not_come_back_as_they_are_are_named(path):
    def refused(message, name, x, error=TypeError):
        refuses(error, message, save_checkpoint, path, {name: x}, {})
        assert_untouched(path)

    def refused_array(message, x):
        refused(rf"arrays\['w'\] {message}, expected", "w", x)

    refused_array("is a list", [1.0])
    refused_array("is a float32", np.float32(1))
    refused_array("has dtype object", np.array([None]))
    refused_array("has dtype complex128", NUMBERS + 1j)
    refused_array("has dtype <U1", np.array(["a"]))
    refused_array(r"has dtype datetime64\[s\]", np.zeros(2, "M8[s]"))
    refused_array("is a MaskedArray", np.ma.array(NUMBERS, mask=[0, 1]))
    refused("arrays has the key 3, expected strings", 3, NUMBERS)
    advice = r'is a dict, expected a NumPy array: try npformer\.tree\.to_arrays\(params, "params"\)'
    for params in ({"weight": NUMBERS}, tree.fixed({"weight": NUMBERS})):
        refused(rf"arrays\['encoder'\] {advice}", "encoder", params)
    reserved = "'__metadata__', which safetensors reserves"
    refused(reserved, "__metadata__", NUMBERS, ValueError)
    refused(r"the key '\\ud800', expected text", "\ud800", NUMBERS, ValueError)


def test_info_that_json_would_change_is_named(path):
    def refused(message, info):
        refuses(TypeError, message, save_checkpoint, path, {}, info)
        assert_untouched(path)

    refused("info is a list, expected a dict", [1])
    place = r"info\['a'\]\['b'\]\[1\]\['c'\]"
    refused(f"{place} is a set, expected", {"a": {"b": [0, {"c": {1}}]}})
    for value in ((1, 2), np.float32(1), np.int64(1), np.ones(2)):
        refused(rf"info\['a'\] is a {type(value).__name__}, expected", {"a": value})
    refused(r"info\['a'\] has the key 1, expected strings", {"a": {1: 2}})


# ---- files that are not whole ----


def test_a_missing_file_is_named(tmp_path):
    refused = partial(refuses, FileNotFoundError)
    refused("there is no checkpoint x+$", load_checkpoint, "x" * 5000)
    nothing = tmp_path / "nothing.safetensors"
    refused(r"there is no checkpoint .*nothing\.safetensors", load_checkpoint, nothing)


def without_the_end(whole, n):
    return whole[:n]


def with_another_bit(whole, n):
    return whole[:n] + bytes([whole[n] ^ 1 << n % 8]) + whole[n + 1 :]


@pytest.mark.parametrize("damaged", [without_the_end, with_another_bit])
def test_damage_is_noticed_wherever_it_is(path, damaged):
    """In each byte of the header, and at 300 places after it; also if arrays changed places."""
    whole = path.read_bytes()
    assert set(safetensors_numpy.load_file(path)) == {"a", "b"}  # other programs can read it
    other = {b'"a":{': b'"b":{', b'"b":{': b'"a":{'}
    path.write_bytes(re.sub(b'"[ab]":{', lambda name: other[name[0]], whole))
    refuses(CheckpointError, "its checksum is wrong", load_checkpoint, path)
    header_end = 8 + int.from_bytes(whole[:8], "little")
    for n in {*range(header_end), *np.linspace(header_end, len(whole) - 1, 300).astype(int)}:
        path.write_bytes(damaged(whole, n))
        message = f"{path.name} cannot be read as a checkpoint: "
        refuses(CheckpointError, message, load_checkpoint, path)


def test_other_files_are_refused(path):
    message = "cannot be read .* expected a file written by save_checkpoint"
    pickled = b"\x80\x04N."
    header_of_2_to_40 = (2**40).to_bytes(8, "little") + b"{}"
    no_header = (50).to_bytes(8, "little")
    long = b"{}" + b" " * 9_000_000
    headers = b"[]", b'{"a":1,"a":2}', b"[" * 5000, b"\xff", long, b"9" * 5000
    others = b"", b"hello", pickled, b"\xff" * 100, header_of_2_to_40, no_header
    for content in (*others, *(joined(header, bytes(8)) for header in headers)):
        path.write_bytes(content)
        refuses(CheckpointError, f"{path.name} {message}", load_checkpoint, path)
    refuses(CheckpointError, message, load_checkpoint, path.parent)  # a folder


def test_files_of_other_programs_and_of_later_formats_are_refused(path, monkeypatch):
    for metadata in (None, {"format": "pt"}):
        safetensors_numpy.save_file({"a": NUMBERS}, path, metadata)
        refuses(CheckpointError, "npformer did not write it", load_checkpoint, path)
    with monkeypatch.context() as later:
        later.setattr(checkpoint, "VERSION", "2")
        save_numbers(path, 1)
    message = "it has format version 2, this npformer reads 1"
    refuses(CheckpointError, message, load_checkpoint, path)


# ---- saves that fail ----


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
IS_FULL = r"last\.safetensors could not be saved: .*No space left .* unchanged"


@pytest.mark.parametrize(
    "error, seen, message",
    [(FULL, CheckpointError, IS_FULL), (KeyboardInterrupt(), KeyboardInterrupt, None)],
)
@pytest.mark.parametrize(
    "function", ["os.fsync", "os.replace", "safetensors.numpy.save_file", "pathlib.Path.mkdir"]
)
def test_a_save_that_fails_leaves_the_old_file(path, function, error, seen, message):
    with patch(function, side_effect=error), pytest.raises(seen, match=message):
        save_numbers(path, 2)
    assert_untouched(path)


def test_a_write_that_stops_half_way_leaves_the_old_file(path):
    resource = pytest.importorskip("resource")
    code = f"""
import signal, numpy as np
from resource import RLIMIT_FSIZE, setrlimit
from npformer.files.checkpoint import CheckpointError, save_checkpoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
setrlimit(RLIMIT_FSIZE, (100_000, {resource.RLIM_INFINITY}))
try:
    save_checkpoint({str(path)!r}, {{"a": np.zeros(100_000)}}, {{}})
except CheckpointError as error:
    print(error)
"""
    shown = python("-c", code).stdout
    assert "last.safetensors could not be saved" in shown
    assert "File too large" in shown
    assert_untouched(path)


@WITH_PIPES
def test_a_pipe_or_device_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    pipe = tmp_path / "pipe"
    refuses(CheckpointError, "pipe is a pipe, expected a file", save_numbers, pipe, 1)
    refuses(CheckpointError, "pipe is a pipe, expected a file", load_checkpoint, pipe)
    assert pipe.is_fifo()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has links for administrators only")
def test_a_link_stays_a_link(tmp_path):
    file = tmp_path / "disk" / "file"
    file.parent.mkdir()
    link = tmp_path / "link"
    link.symlink_to(file)
    for number in (1, 2):  # of which the second replaces a file
        save_numbers(link, number)
        assert_numbers(file, number)
    assert link.is_symlink()


@pytest.mark.usefixtures("signals_of_the_foreground")
def test_an_interrupt_comes_when_the_file_is_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        save_numbers(tmp_path / "x", 1)
    assert_numbers(tmp_path / "x", 1)
    assert os.listdir(tmp_path) == ["x"]


def test_a_path_that_no_file_can_have_is_refused(tmp_path):
    def refused(message, name):
        refuses(CheckpointError, message, save_numbers, tmp_path / name, 1)

    refused("expected a file, or a new name", "")  # that of the folder
    refused("too long", "a" * 300)
    refused("no name of a file can have", "a\0b")
    refused("no name of a file can have", "a\udc80")


class Nameless(os.PathLike):
    def __fspath__(self):
        return ""


@pytest.mark.parametrize("path", ["", Nameless()], ids=["str", "PathLike"])
def test_an_empty_path_is_no_checkpoint_and_not_the_current_folder(path):
    for call in (load_checkpoint, partial(save_numbers, number=1)):
        refuses(CheckpointError, "path='' is no name, expected one", call, path)


def saver(path):
    """The number of a process that saves again and again, and has done so at least once."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for number in itertools.count(2):
                arrays = {"a": np.full((1000, 300), number), "b": np.full(9, number)}
                save_checkpoint(path, arrays, {"number": number})
                os.write(writing, b".")
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1)
    os.close(reading)
    return child


@WITH_FORK
@FORKS_WARN
def test_a_killed_process_leaves_a_whole_file_and_the_next_save_clears_up(path):
    draw = random.Random(0)
    for _ in range(10):
        child = saver(path)
        time.sleep(draw.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        arrays, info = load_checkpoint(path)
        assert info["number"] >= 2
        assert all((array == info["number"]).all() for array in arrays.values())
    save_numbers(path, 1)
    assert_untouched(path)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no locks on folders")
def test_what_a_killed_save_left_is_cleared_up(path):
    left = path.with_name(f".{path.name}.0123456789abcdef.tmp")
    left.mkdir()
    (left / ".tmpAbCdEf").write_bytes(b"half of a check")
    save_numbers(path, 1)
    assert_untouched(path)


# ---- several processes ----


def test_a_save_during_a_load_changes_nothing(path, monkeypatch):
    def parse_and_save_another(*arguments):
        save_numbers(path, 2)
        return parse_json(*arguments)

    monkeypatch.setattr(checkpoint, "parse_json", parse_and_save_another)
    arrays, info = load_checkpoint(path)
    assert info == {"number": 1}
    assert all((array == 1).all() for array in arrays.values())


@pytest.mark.parametrize(
    "function",
    [
        "safetensors.numpy.save_file",
        "os.fsync",
        "os.replace",
        "npformer.files.locks.lock_folder",  # of a folder that it deletes, as it has no lock yet
    ],
)
def test_a_save_during_a_save_succeeds_too(path, monkeypatch, function):
    def save_another(*arguments):
        monkeypatch.undo()
        save_numbers(path, 2)
        assert_numbers(path, 2)
        return original(*arguments)

    original = pkgutil.resolve_name(function)
    monkeypatch.setattr(function, save_another)
    save_numbers(path, 1)
    assert_untouched(path)


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.ENOLCK])
def test_where_there_are_no_locks_files_are_saved_too(path, error):
    with patch.object(locks, "lock_folder", side_effect=OSError(error, os.strerror(error))):
        save_numbers(path, 1)
    assert_untouched(path)


# ---- the format and the dependency ----


def test_the_info_is_json_in_the_metadata(path):
    header, _ = parts(path)
    metadata = header["__metadata__"]
    assert metadata["format"] == "npformer checkpoint"
    assert json.loads(metadata["info"]) == {"number": 1}


def test_without_safetensors_the_error_says_what_to_install(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.delitem(sys.modules, "safetensors.numpy")
    message = r"pip install .*\[checkpoint\]'"
    refuses(ImportError, message, save_numbers, path, 2)
    refuses(ImportError, message, load_checkpoint, path)


def test_importing_the_module_does_not_import_safetensors():
    code = "import sys, npformer, npformer.files.checkpoint; print('safetensors' in sys.modules)"
    assert python("-c", code).stdout == "False\n"


@pytest.mark.parametrize("path", [1, True, None, 3.5, ["x"]])
def test_a_path_is_a_path(path):
    """An integer would be taken for a file that is open, and 1, standard output, be closed."""
    for call in (load_checkpoint, lambda path: save_checkpoint(path, {}, {}), JsonLog):
        refuses(TypeError, r"path=.*, expected a str or a Path", call, path)
    os.fstat(1)


def test_an_array_that_changes_during_a_save_is_noticed(path, monkeypatch):
    weight = np.zeros(1000)
    save_file = safetensors_numpy.save_file

    def beside_a_thread(arrays, *rest):
        weight[...] = 1  # as another thread may
        save_file(arrays, *rest)

    monkeypatch.setattr(safetensors_numpy, "save_file", beside_a_thread)
    message = "another thread has changed an array, save a copy"
    refuses(CheckpointError, message, save_checkpoint, path, {"weight": weight}, {})
    assert_untouched(path)
