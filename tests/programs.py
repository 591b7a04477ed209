"""Programs: commands that run in this process, other processes, and threads."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import traceback
from typing import NamedTuple

import pytest

WITH_FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
WITH_SIGNALS = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no signals between processes"
)
WITH_PIPES = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes")
PIPES_CLOSE = pytest.mark.skipif(
    sys.platform == "win32", reason="on Windows a pipe that is closed is another error"
)
FORKS_WARN = pytest.mark.filterwarnings(  # beside threads, and for JAX once it is imported
    "ignore::DeprecationWarning",
    "ignore::RuntimeWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


class Ended(NamedTuple):
    """How a command ended, and what it wrote to standard output and standard error."""

    code: int
    shown: str
    errors: str


def exit_code(main, arguments):
    """The exit code of a command, whether its main function returns it or raises it."""
    try:
        return main([str(argument) for argument in arguments]) or 0
    except SystemExit as stop:
        return stop.code


def python(*arguments, code=0, **options):
    """Run Python with these arguments, and check its exit code.

    The options are those of ``subprocess.run``.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, **pipes | {"encoding": "utf-8"} | options)
    assert done.returncode == code, f"{done.stdout}{done.stderr}"
    return done


@contextlib.contextmanager
def nobody_reads():
    """A pipe to write to, whose reader is gone."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def is_png(path):
    """Whether a program has written a picture."""
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def environment(**variables):
    """The variables of this process and others,
    for a process that finds the modules that this one finds.
    """
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables


def compiling(**variables):
    """An environment in which numba compiles, whatever the tests were started with."""
    return {
        name: str(x) for name, x in environment(**variables).items() if name != "NUMBA_DISABLE_JIT"
    }


def forked(work, seconds=60):
    """The exit code of a forked process, which is what ``work`` returns there,
    or 99 if it raises an error.
    """
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)  # nobody waits for ever
        code = 99
        try:
            code = int(work())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_threads(*works):
    """Call each function in a thread of its own, and wait until all have ended."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def use_threads(monkeypatch, n):
    """Let npformer divide its work over so many threads."""
    for module in ("runtime.threads", "operations.host"):
        monkeypatch.setattr(f"npformer.{module}.n_threads", lambda: n)
