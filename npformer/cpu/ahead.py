"""Compile the kernels of a work ahead, in as many processes as there are cores.

Otherwise a kernel is compiled when it is first called, one after the other. A *rehearsal* finds them before: the
reference computes each operation, and its kernel is called, too; one that is not on disk does nothing, and is noted.
Then each process takes one kernel after another, the largest first, and writes it to disk.
"""

import contextlib
import importlib
import os
import pickle
import subprocess
import sys
import time
from typing import NamedTuple

from npformer import reference
from npformer.cpu.backend import ops
from npformer.cpu.jit import KERNELS, missing
from npformer.cpu.kernel_cache import FOLDER, place_of, sources_of
from npformer.runtime.cores import cores
from npformer.runtime.locks import claimed

PAUSE = 0.05  # seconds between two looks at what other processes have compiled
WORKER = "import sys; sys.path[:] = {}; from npformer.cpu.ahead import work_for; work_for({})"


def rehearsal(found):
    """A backend that computes with the reference, and adds to ``found`` the kernels that are not on disk."""

    def rehearsed(name):
        def call(*arguments, **options):
            token = missing.set(found)
            try:
                with contextlib.suppress(Exception):  # a kernel after one that did nothing may find nonsense
                    getattr(ops, name)(*arguments, **options)
            finally:
                missing.reset(token)
            return getattr(reference.ops, name)(*arguments, **options)

        return call

    return ops.replaced(**{name: rehearsed(name) for name in ops.kernels})


def wanted(found):
    """The kernels of a rehearsal, each once, the largest first."""
    return sorted({Wanted.of(*each) for each in found}, key=Wanted.size, reverse=True)


def note_of(work):
    """The file beside the kernels that says that those of a work were compiled, or None if nothing is kept on disk.

    With it a program need not rehearse the same work again. A kernel that is gone is compiled when it is called.
    """
    sources = [sources_of(file) for file in sorted((FOLDER / "kernels").glob("*.py"))]
    place = place_of(next(iter(KERNELS.values())), (work, sources))
    return place and place.path.with_suffix(".done")


def compile_together(kernels, say=lambda n_left: None):
    """Compile ``wanted`` kernels, in this process and others; ``say(n_left)`` is called as they become ready.

    If this process is interrupted, or ends, so do the others.
    """
    left = kernels
    with contextlib.ExitStack() as stack:
        for _ in range(min(cores(), len(left)) - 1):
            stack.callback(_end, _start_worker(left))
        while left:
            say(len(left))
            if not any(each.compile_unless_claimed() for each in left):
                time.sleep(PAUSE)
            left = [each for each in left if not each.is_compiled()]
        say(0)


class Wanted(NamedTuple):
    """A kernel by its name, as processes know it, and the types of the arguments for which it is to be compiled."""

    module: str
    name: str
    types: tuple

    @classmethod
    def of(cls, kernel, types):
        """That of a kernel of this process."""
        return cls(kernel.__module__, kernel.__qualname__, types)

    @property
    def kernel(self):
        """The kernel in this process, which imports its module."""
        importlib.import_module(self.module)
        return next(x for x in KERNELS.values() if (x.__module__, x.__qualname__) == self[:2])

    def size(self):
        """A measure of how long it is compiled."""
        return _size(self.kernel)

    def is_compiled(self):
        """Whether this process, or another one, has compiled it."""
        return self.types in self.kernel.overloads or place_of(self.kernel, self.types).is_filled()

    def compile_unless_claimed(self):
        """Whether this process has compiled it: not if it is compiled, or another process is doing that."""
        if self.is_compiled():
            return False
        try:
            with claimed(place_of(self.kernel, self.types).path, waits=False):
                self.kernel.compile(self.types)
        except BlockingIOError:
            return False
        return True


def _size(kernel):
    """Bytes of the code of a kernel, with what is inlined into it: with more it is compiled for longer."""
    function = kernel.py_func
    names = map(function.__globals__.get, function.__code__.co_names)
    return len(function.__code__.co_code) + sum(_size(each) for each in names if each in KERNELS.values())


def _start_worker(kernels):
    code = WORKER.format(sys.path, os.getpid())
    worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with contextlib.suppress(BrokenPipeError):  # it has died: this process compiles its share
        pickle.dump(kernels, worker.stdin)
        worker.stdin.close()
    return worker


def _end(worker):
    worker.kill()
    worker.wait()


def work_for(parent):
    """What a worker does: compile kernels that no other process compiles, as long as its parent lives."""
    for each in pickle.load(sys.stdin.buffer):
        if os.getppid() == parent:
            each.compile_unless_claimed()
