"""Compiled kernels on disk.

Whether a file can be written or not, a kernel runs; a damaged file is replaced.

numba's own files are not used: an error in reading or writing them ends the call of the kernel, and
two processes that compile at once can leave one kernel under the name of another.
"""

import pickle
import re
import zlib
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numba
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from npformer.checks import warn
from npformer.files.paths import replace_file

FOLDER = Path(__file__).parent  # with its folder of kernels
ON_THE_HOST = {"backend", "compiling", "kernel_cache"}  # files of this folder that no kernel calls
# Imports are searched for: to parse all files would take tenths of a second at each start.
IMPORT = re.compile(r"^from npformer\.cpu(?:\.([\w.]+) import| import (\w+))", re.MULTILINE)
# What else a file imports: of this, numba compiles the constants into its kernels.
IMPORT_OF_OTHERS = re.compile(
    r"^from (npformer\.(?!cpu)[\w.]+) import (\([^)]*\)|.*)$", re.MULTILINE
)
CONSTANT = re.compile(r"\b[A-Z][A-Z_]+\b")
CHECKSUM = 4  # bytes at the beginning of a file
HEADER = 36  # bytes of the checksum and the origin


@cache
def sources_of(file):
    """A digest of the files that the kernels of a file are made of.

    These are the file itself, and those of this folder that it imports, with the constants that
    they import from elsewhere.

    A change in one of them makes its compiled kernels stale, a change in another file does not.
    """
    digests = [(path.name, _read(path)[0]) for path in files_of(file)]
    return digest_of(sorted(digests))


def files_of(file):
    """A file, and those of this folder that it imports, with what these import."""
    found = set()
    files = [Path(file)]
    while files:
        path = files.pop()
        if path not in found and path.stem not in ON_THE_HOST:
            found.add(path)
            files += _read(path)[1]
    return found


@cache
def _read(path):
    """A digest of the text of a file with its constants, and the files of this folder that it
    imports.
    """
    text = path.read_text("utf-8")
    imported = [_file_of(module or name) for module, name in IMPORT.findall(text)]
    return digest_of([text, constants_in(text)]), imported


def constants_in(text):
    """The numbers and texts that a file imports from elsewhere in npformer, by their names."""
    constants = {}
    for module, names in IMPORT_OF_OTHERS.findall(text):
        for name in CONSTANT.findall(names):
            value = getattr(import_module(module), name)
            if isinstance(value, int | float | str):
                constants[name] = value
    return constants


def _file_of(module):
    path = FOLDER / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def keep_on_disk(kernel):
    """Let a kernel that numba compiles use files of ours, if there is a folder for them."""
    if not FOLDER.is_dir():  # in a zip file nothing would tell that the sources have changed
        return
    try:
        kernel._cache = _Cache(kernel.py_func)
    except RuntimeError:
        _warn_again("are not kept: no folder can be written", "set NUMBA_CACHE_DIR to a folder")
    except AttributeError:  # numba's internals changed
        _warn_again("are not kept: npformer does not know this numba", "try an older one")


class Place(NamedTuple):
    """Where a kernel is kept."""

    path: Path
    origin: bytes  # a digest of all that the kernel follows from

    def is_filled(self):
        """Whether the kernel is there, in the version of now."""
        try:
            with self.path.open("rb") as file:
                return file.read(HEADER)[CHECKSUM:] == self.origin
        except OSError:
            return False


def place_of(kernel, types):
    """The place of a kernel compiled for such arguments; None if kernels are not kept on disk."""
    if not isinstance(kernel._cache, _Cache):
        return None
    return kernel._cache.place(kernel._cache._index_key(types, kernel.targetctx.codegen()))


def folder_of(kernel):
    """The folder of a kernel's files; None if it is not kept on disk."""
    return Path(kernel._cache.cache_path) if isinstance(kernel._cache, _Cache) else None


class _Cache(FunctionCache):
    """numba's cache of one function, with a file for each signature.

    It holds a checksum, a digest of its origin, and what numba has compiled.
    """

    def __init__(self, function):
        super().__init__(function)
        self._sources = sources_of(function.__code__.co_filename)
        self._cache_file = self  # of which numba calls ``load`` and ``save``

    def place(self, key):
        """The place of what is compiled with this key, which numba makes of a signature."""
        name = f"{self._impl.filename_base}.{digest_of(key).hex()[:16]}.nbc"
        origin = digest_of([key, self._sources, numba.__version__])
        return Place(Path(self._cache_path, name), origin)

    def load_overload(self, sig, target_context):
        """Load what was compiled for a signature; None if there is nothing.

        numba would first import what it compiles with: a quarter of the time until the end of a
        first training step.
        """
        rtsys.initialize(target_context)  # the allocator of arrays
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def save_overload(self, sig, data):
        """Save what was compiled for a signature, if that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            why = f"cannot be kept in {self._cache_path}: {error.strerror or error}"
            _warn_again(why, "make room there, or set NUMBA_CACHE_DIR to another folder")

    def load(self, key):
        """Return what was saved with this key, None if there is nothing that can be used."""
        place = self.place(key)
        try:
            whole = place.path.read_bytes()
        except OSError:
            return None
        if whole[:CHECKSUM] != _checksum(whole[CHECKSUM:]):
            problem = f"a compiled kernel in {self._cache_path} is damaged"
            _warn(f"{problem}: it is compiled again, and its file replaced")
            return None
        is_of_now = whole[CHECKSUM:HEADER] == place.origin
        return pickle.loads(whole[HEADER:]) if is_of_now else None

    def save(self, key, data):
        """Write the file of this key."""
        place = self.place(key)
        content = place.origin + dumps(data)
        replace_file(place.path, _checksum(content) + content)


def digest_of(value):
    """A digest of what numbers, texts and tuples of them say."""
    return sha256(repr(value).encode()).digest()


def _checksum(content):
    return zlib.crc32(content).to_bytes(4, "little")


_warn = cache(warn)  # a text once: there are hundreds of kernels


def _warn_again(why, advice):
    _warn(f"compiled kernels {why}. Each process compiles them again; {advice}")
