"""Check a function in a process of its own, which is ended when its time is over."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import npformer
from npformer.exercises.compare import Verdict, too_long

SECONDS = 10.0  # for one function
GRACE = 5.0  # for starting Python, and for writing the verdict
KEPT = 4000  # bytes of what a function prints
MARK = "NPFORMER_EXERCISE"  # a variable that what a function starts inherits


def check_in_process(key, file, seconds=SECONDS):
    """Check the function of an exercise in a file. Returns the `Verdict` and what the function has printed."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "verdict.json"
        arguments = [key, str(Path(file).resolve()), str(answer), str(seconds)]
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "npformer.exercises.child", *arguments],
            env=environment() | {MARK: folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        printed = Printed(child.stdout)
        try:
            child.wait(seconds + GRACE)
            verdict = read(answer, child.returncode)
        except subprocess.TimeoutExpired:
            verdict = Verdict("wrong", [too_long(seconds)])
        finally:
            end(child, folder)
        return verdict, printed.text()


def environment():
    """The variables of the process: one thread of BLAS is enough, and npformer is found where this one is."""
    paths = [str(Path(npformer.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    path = os.pathsep.join(filter(None, paths))  # an empty entry would be the current folder
    ours = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"}
    return os.environ | ours | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def read(answer, code):
    """The verdict that the process has written; what ended the process if there is none."""
    try:
        verdict = Verdict(**json.loads(answer.read_text(encoding="utf-8")))
        if verdict.state not in ("solved", "wrong", "not written") or not all(type(x) is str for x in verdict.lines):
            raise ValueError(verdict)
        return verdict
    except (OSError, ValueError, TypeError):  # or the function has written there
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Verdict("wrong", [f"the process ended in the middle of the function ({how})"])


def end(child, mark):
    """End the process and what it has started: on Linux all that has its variables, elsewhere all of its session."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()
    for _ in range(100):  # they may start others meanwhile
        if not (found := marked(mark)):
            break
        for number in found:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)


def marked(mark):
    """The numbers of the processes that have our variable with this value."""
    wanted = os.fsencode(f"{MARK}={mark}")
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # another user's, or it has ended
            if wanted in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
    return found


class Printed:
    """The beginning of what a process writes; the rest is read too, so that it never waits."""

    def __init__(self, stream):
        self.kept, self.stream = b"", stream
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        with contextlib.suppress(OSError, ValueError):
            while piece := self.stream.read1(65536):
                self.kept += piece[: max(KEPT - len(self.kept), 0)]

    def text(self):
        """What is kept, once the process has ended."""
        self.thread.join(GRACE)
        if not self.thread.is_alive():
            self.stream.close()
        text = self.kept.decode("utf-8", "replace")
        return text + "…\n" if len(self.kept) == KEPT else text
