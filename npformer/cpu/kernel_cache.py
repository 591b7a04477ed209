"""Compiled kernels on disk. A kernel runs whether its file can be written or not, and a damaged file is replaced.

numba's own files are not used: an error in reading or writing them ends the call of the kernel, and two processes that
compile at once can leave one kernel under the name of another.
"""

import glob
import pickle
import re
import zlib
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numba
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from npformer.checks import warn
from npformer.files.paths import replace_file

FOLDER = Path(__file__).parent  # with its folder of kernels
ON_THE_HOST = {"backend", "kernel_cache", "memory"}  # files of this folder that no kernel calls
AGAIN = "Each process compiles them again"


@cache
def sources_of(file):
    """A digest of the files that the kernels of a file are made of: itself, and those of this folder that it imports.

    A change in one of them makes its compiled kernels stale, a change in another file does not.
    """
    digests, files = {}, [Path(file)]
    while files:
        path = files.pop()
        if path not in digests and path.stem not in ON_THE_HOST:
            digests[path], imported = _read(path)
            files += imported
    return _digest(sorted((path.name, digest) for path, digest in digests.items()))


@cache
def _read(path):
    """A digest of the text of a file, and the files of this folder that it imports."""
    text = path.read_text("utf-8")
    imported = re.findall(r"^from npformer\.cpu(?:\.([\w.]+) import| import (\w+))", text, re.MULTILINE)
    return _digest(text), [_file_of(module or name) for module, name in imported]


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
        _warn(f"compiled kernels are not kept: no folder can be written. {AGAIN}; set NUMBA_CACHE_DIR to a folder")
    except AttributeError:  # numba's internals changed
        _warn(f"compiled kernels are not kept: npformer does not know this numba. {AGAIN}; try an older one")


class Place(NamedTuple):
    """Where a kernel is kept."""

    path: Path
    origin: bytes  # a digest of all that it follows from, with which the file begins after its checksum

    def is_filled(self):
        """Whether the kernel is there, in the version of now."""
        try:
            with self.path.open("rb") as file:
                return file.read(36)[4:] == self.origin
        except OSError:
            return False


def place_of(kernel, types):
    """The place of a kernel that is compiled for arguments of these types; None if kernels are not kept on disk."""
    return kernel._cache.place(types, kernel.targetctx) if isinstance(kernel._cache, _Cache) else None


def note_of(kernel, work):
    """The file which says that all kernels of a work were compiled, beside those of one kernel; None if none is kept.

    A change of numba, of the processor or of any file of kernels has another note.
    """
    if not isinstance(kernel._cache, _Cache):
        return None
    sources = [sources_of(file) for file in sorted((FOLDER / "kernels").glob("*.py"))]
    facts = work, sources, numba.__version__, kernel.targetctx.codegen().magic_tuple()
    return Path(kernel._cache.cache_path) / f"{_digest(facts).hex()[:16]}.done"


class _Cache(FunctionCache):
    """numba's cache of one function, with other files."""

    def __init__(self, function):
        super().__init__(function)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, sources_of(function.__code__.co_filename))

    def place(self, sig, target_context):
        """The place of what is compiled for a signature."""
        return self._cache_file.place(self._index_key(sig, target_context.codegen()))

    def load_overload(self, sig, target_context):
        """Load what was compiled for a signature; None if there is nothing.

        numba would first import what it compiles with: a quarter of the time until the end of a first training step.
        """
        rtsys.initialize(target_context)  # the allocator of arrays
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def save_overload(self, sig, data):
        """Save what was compiled for a signature, if that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            why = f"compiled kernels cannot be kept in {self._cache_path}: {error.strerror or error}"
            _warn(f"{why}. {AGAIN}; make room there, or set NUMBA_CACHE_DIR to another folder")


class _Files:
    """One file for each signature of a function: a checksum (4 bytes), a digest of its origin (32), the content."""

    def __init__(self, folder, name, sources):
        self.folder, self.name, self.sources = Path(folder), name, sources

    def load(self, key):
        """Return what was saved with this key, None if there is nothing that can be used."""
        path, origin = self.place(key)
        try:
            whole = path.read_bytes()
        except OSError:
            return None
        if _checksum(whole[4:]) != whole[:4]:
            _warn(f"a compiled kernel in {self.folder} is damaged: it is compiled again, and its file replaced")
            return None
        return pickle.loads(whole[36:]) if whole[4:36] == origin else None

    def save(self, key, data):
        """Write the file of this key."""
        path, origin = self.place(key)
        content = origin + dumps(data)
        replace_file(path, _checksum(content) + content)

    def flush(self):
        """Delete all files of the function, before numba compiles it again."""
        for path in self.folder.glob(f"{glob.escape(self.name)}.*.nbc"):
            path.unlink(missing_ok=True)

    def place(self, key):
        """The place of a key."""
        path = self.folder / f"{self.name}.{_digest(key).hex()[:16]}.nbc"
        return Place(path, _digest([key, self.sources, numba.__version__]))


def _digest(value):
    return sha256(repr(value).encode()).digest()


def _checksum(content):
    return zlib.crc32(content).to_bytes(4, "little")


_warn = cache(warn)  # a text once: there are hundreds of kernels
