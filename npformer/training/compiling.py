"""Which kernel numba compiles just now: on a new machine the first step waits for it."""

import sys
from contextlib import contextmanager


@contextmanager
def compilations(begin, end):
    """Inside, ``begin(n, name)`` is called before the n-th kernel is compiled, and ``end()`` after it.

    Loading a kernel from disk is not compiling. Where nothing has imported numba, there is nothing to listen to.
    """
    if "numba" not in sys.modules:
        yield
        return
    from numba.core import event

    class Listener(event.Listener):
        n = depth = 0  # a kernel's compilation begins and ends around those of the functions that it calls

        def on_start(self, compilation):
            self.depth += 1
            if self.depth == 1:
                self.n += 1
                begin(self.n, compilation.data["dispatcher"].py_func.__name__)

        def on_end(self, compilation):
            self.depth -= 1
            if self.depth == 0:
                end()

    with event.install_listener("numba:compile", Listener()):
        yield
