"""Check a function in a process of its own, which is ended when its time is over."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import npformer
from npformer.exercises.verdict import BEGIN, Verdict, too_long

SECONDS = 10.0  # for one function
START = 60.0  # for starting Python, which takes long on a busy machine
GRACE = 5.0  # for writing the verdict, and for ending what is left
KEPT = 4000  # bytes of what a function prints
LONGEST = 2**16  # bytes of a verdict, which is a few lines


def check_in_process(key, file, seconds=SECONDS):
    """Check the function of an exercise in a file. Returns the `Verdict`, and what it printed."""
    number, name = tempfile.mkstemp()
    try:
        with open(number, "rb") as answer:
            return run_child([key, str(Path(file).resolve()), name, str(seconds)], answer, seconds)
    finally:
        with contextlib.suppress(OSError):  # the function may have removed it
            os.unlink(name)


def run_child(arguments, answer, seconds):
    """Start the process, and wait for the verdict that it writes to the open file ``answer``."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "npformer.exercises.child", *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    printed = Printed(child.stdout)
    try:
        printed.has_begun.wait(START)
        child.wait(seconds + GRACE)
        verdict = read(answer, child.returncode)
    except subprocess.TimeoutExpired:
        verdict = Verdict("wrong", [too_long(seconds)])
    finally:
        end(child)
    return verdict, printed.text()


def environment():
    """The variables of the process: one thread of BLAS is enough, and npformer is found as here."""
    paths = [
        str(Path(npformer.__file__).parents[1]),
        *os.environ.get("PYTHONPATH", "").split(os.pathsep),
    ]
    path = os.pathsep.join(filter(None, paths))  # an empty entry would be the current folder
    return os.environ | {
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def read(answer, code):
    """The verdict that the process has written; what ended the process if there is none.

    This is the file that was opened before the process began, also if the function has put a pipe
    or a device in its place, and no more of it is read than a verdict has.
    """
    answer.seek(0)
    text = answer.read(LONGEST).decode("utf-8", "replace")
    with contextlib.suppress(ValueError):
        return Verdict.from_text(text)
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return Verdict("wrong", [f"the process ended in the middle of the function ({how})"])


def end(child):
    """End the process and what the function has started: on Linux the process itself ends all of
    that, elsewhere it ends with the session.
    """
    if sys.platform == "linux":
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()


class Printed:
    """The beginning of what a process writes; the rest is read too, so that it never waits."""

    def __init__(self, stream):
        self.kept = b""
        self.stream = stream
        self.has_begun = threading.Event()  # to run the person's file; or it has ended
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        with contextlib.suppress(OSError, ValueError):
            while piece := self.stream.read1(65536):
                self.has_begun.set()
                self.kept += piece.replace(BEGIN, b"")[: max(KEPT - len(self.kept), 0)]
        self.has_begun.set()

    def text(self):
        """What is kept, once the process has ended."""
        self.thread.join(GRACE)
        if not self.thread.is_alive():
            self.stream.close()
        text = self.kept.decode("utf-8", "replace")
        return text + "…\n" if len(self.kept) == KEPT else text
