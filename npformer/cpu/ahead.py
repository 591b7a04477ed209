"""Compile the kernels of a work ahead, in as many processes as there are cores.

Otherwise a kernel is compiled when it is first called, one after the other. A *rehearsal* finds
them before: the reference computes each operation, and its kernel is called, too; one that is not
on disk does nothing, and is noted. Then each process takes one kernel after another, the largest
first, and writes it to disk.
"""

import contextlib
import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

import npformer
from npformer import reference
from npformer.cpu.backend import ops
from npformer.cpu.compiling import current_rehearsal
from npformer.cpu.jit import KERNELS
from npformer.cpu.kernel_cache import FOLDER, digest_of, folder_of, place_of, sources_of
from npformer.files.locks import claimed, fcntl
from npformer.runtime.cores import cores


def note_of(work):
    """The file which says that all kernels of a work were compiled; None if none is kept on disk.

    With it a program need not rehearse the same work again. A kernel that is gone is compiled when
    it is called. A change of numba, of the processor or of any file of kernels has another note.
    """
    kernel = next(iter(KERNELS.values()), None)  # beside whose files it lies
    folder = None if kernel is None else folder_of(kernel)
    if folder is None:
        return None
    sources = [sources_of(file) for file in sorted((FOLDER / "kernels").glob("*.py"))]
    processor = kernel.targetctx.codegen().magic_tuple()
    facts = work, sources, numba.__version__, processor
    return folder / f"{digest_of(facts).hex()[:16]}.done"


def rehearsal_backend(rehearsal):
    """A backend that computes with the reference.

    It appends the kernels that are not on disk, with the types of their arguments, to a list.
    """

    def operation(name):
        def call(*arguments, **options):
            token = current_rehearsal.set(rehearsal)
            try:
                # A kernel after one that did nothing may find nonsense.
                with contextlib.suppress(Exception), np.errstate(all="ignore"):
                    getattr(ops, name)(*arguments, **options)
            finally:
                current_rehearsal.reset(token)
            return getattr(reference.ops, name)(*arguments, **options)

        return call

    return ops.replaced(**{name: operation(name) for name in ops.kernels})


class Overload(NamedTuple):
    """A kernel for arguments of some types, by names that all processes know."""

    module: str
    name: str
    types: tuple

    @classmethod
    def of(cls, kernel, types):
        """The names of a kernel of this process, with the types of its arguments."""
        return cls(kernel.__module__, kernel.__qualname__, types)

    @property
    def kernel(self):
        """The kernel in this process, which imports its module."""
        importlib.import_module(self.module)
        return next(x for x in KERNELS.values() if (x.__module__, x.__qualname__) == self[:2])

    def size(self):
        """Bytes of its code: with more it is compiled for longer."""
        return len(self.kernel.py_func.__code__.co_code)

    def place(self):
        """Where it is kept on disk."""
        return place_of(self.kernel, self.types)

    def is_on_disk(self):
        """Whether some process has compiled it."""
        return self.place().is_filled()

    def compile(self):
        """Compile it, or load it from disk."""
        self.kernel.compile(self.types)

    def compile_if_free(self):
        """Compile it, unless it is on disk, or another process compiles it."""
        if not self.is_on_disk():
            with claimed(self.place().path) as is_free:
                if is_free:
                    self.compile()


def overloads_of(rehearsal):
    """The kernels of a rehearsal, each once, the largest first."""
    return sorted({Overload.of(*call) for call in rehearsal}, key=Overload.size, reverse=True)


def compile_together(kernels, say, n_processes=None):
    """Compile the kernels of a rehearsal in this process and others.

    After each one ``say(n_left)`` is called. There are as many processes as cores if not given. If
    this process is interrupted, or ends, so do the others. One that other processes do not finish
    is compiled here.
    """
    n_processes = cores() if n_processes is None else n_processes
    n_workers = min(n_processes, len(kernels)) - 1
    if fcntl is None:  # without locks, all would do the same
        n_workers = 0
    work = f"from npformer.cpu.ahead import work_for; work_for({os.getpid()})"
    with contextlib.ExitStack() as stack:
        for _ in range(n_workers):
            worker = start_python(work, subprocess.PIPE)
            if worker is not None:
                stack.callback(_end, worker)
                with contextlib.suppress(BrokenPipeError):  # it has died
                    pickle.dump(kernels, worker.stdin)
                    worker.stdin.close()
        left = kernels
        for compile_one in Overload.compile_if_free, Overload.compile:
            for each in kernels:
                compile_one(each)
                left = [other for other in left if not other.is_on_disk()]
                say(len(left))


def start_python(statement, stdin=subprocess.DEVNULL):
    """Start a silent process that runs a statement with the modules of this one.

    It returns None if that is impossible.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    folder = str(Path(npformer.__file__).parents[1])  # this npformer, and no other
    path = [folder, *map(os.path.abspath, sys.path)]
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {path}; {statement}"]
    silence = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=stdin, stdout=silence, stderr=silence)
    except OSError:
        return None


def _end(worker):
    worker.kill()
    worker.wait()


def work_for(parent):
    """Compile kernels that no other process compiles, as long as the parent of this one lives."""
    for each in pickle.load(sys.stdin.buffer):
        if os.getppid() == parent:
            each.compile_if_free()
