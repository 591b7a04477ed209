"""What a program says while it works: a progress bar, and lines.

In a notebook with ipywidgets the bar is a widget, in one without it is text. Where nothing can be
redrawn, as in a file, there is a line each minute instead.

If they cannot be written, because the terminal or the reader of a pipe is gone, the work goes on
without them.
"""

import contextlib
import os
import sys
import time
import warnings
from collections import deque
from contextlib import contextmanager

from npformer.extras import pip_install
from npformer.runtime.compilations import GONE, compilation_listener

RECENT = 50  # steps, whose targets per second are shown
EVERY = 60.0  # seconds from one line to the next in a file


@contextmanager
def progress_bar(last_step, is_shown, n_done=0):
    """Yield an object whose ``advance(info)`` shows a ``StepInfo``.

    ``n_done`` steps were made before.
    """
    file = _IfPossible(sys.stderr)
    if not (is_shown and _may_show()):
        yield _Nothing()
    elif not _can_redraw():
        lines = _Lines(file, last_step)
        try:
            with compilation_listener(lines.compiling):
                yield lines
        finally:  # also after Ctrl-C or an error
            lines.write_step()
    elif (tqdm := _tqdm()) is None:
        print(f"no progress bar, as it needs tqdm: {pip_install('progress')}", file=file)
        yield _Nothing()
    else:
        with tqdm(total=last_step, initial=n_done, unit="step", file=file) as tqdm_bar:
            bar = _Bar(tqdm_bar)
            with compilation_listener(bar.compiling, bar.compiled):
                yield bar


@contextmanager
def compiling_bar(n_kernels, is_shown):
    """Yield a function that is told how many of so many kernels are left to compile."""
    file = _IfPossible(sys.stderr)
    title = "compiling kernels for this processor, once"
    is_shown = is_shown and _may_show()
    tqdm = _tqdm() if is_shown and _can_redraw() else None
    with compilation_listener():
        if tqdm is None:
            if is_shown:
                print(f"{title}: {n_kernels}", file=file, flush=True)
            yield lambda n_left: None
            return
        with tqdm(total=n_kernels, desc=title, unit="kernel", file=file) as bar:

            def say_left(n_left):
                bar.n = n_kernels - n_left
                bar.refresh()

            yield say_left


def say(text):
    """Print a line above the progress bar."""
    if sys.stdout is None:
        return
    with contextlib.suppress(*GONE):
        if sys.modules.get("tqdm"):
            sys.modules["tqdm"].tqdm.write(text)
        else:
            print(text)
        sys.stdout.flush()  # so that it is in a log file at once


def _may_show():
    """Whether there is somebody who can see it, and has not said no."""
    return sys.stderr is not None and os.environ.get("TQDM_DISABLE", "0") in ("", "0")


def _can_redraw():
    """Whether standard error is a terminal, or the output of a cell of a notebook."""
    return _IfPossible(sys.stderr).isatty() or "ipykernel" in sys.modules


def _tqdm():
    """The class of progress bars, None if tqdm is not installed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # ipywidgets are missing, or they are used
            from tqdm.autonotebook import tqdm
    except ImportError:
        return None
    return tqdm


class _IfPossible:
    """A file that drops what cannot be written."""

    def __init__(self, file):
        self.file = file
        self.encoding = getattr(file, "encoding", None)

    def isatty(self):
        with contextlib.suppress(*GONE):
            return self.file.isatty()
        return False

    def fileno(self):
        return self.file.fileno()

    def __eq__(self, other):  # so that tqdm knows which bars a line on the terminal would disturb
        return self.file == getattr(other, "file", other)

    def __hash__(self):
        return hash(self.file)

    def write(self, text):
        with contextlib.suppress(*GONE):
            self.file.write(text)

    def flush(self):
        with contextlib.suppress(*GONE):
            self.file.flush()


class _Nothing:
    def advance(self, info):
        pass


class _Steps:
    """What is said of the last steps."""

    def __init__(self):
        self.recent: deque = deque(maxlen=RECENT)
        self.text = ""

    def add(self, info):
        self.recent.append(info)
        n_tokens = sum(step.n_tokens for step in self.recent)
        seconds = sum(step.seconds for step in self.recent)
        rate = n_tokens / max(seconds, 1e-9)
        self.text = f"loss {info.loss:.4f}, lr {info.lr:.2g}, {rate:,.0f} targets/s"


class _Bar:
    """A line of a terminal or a widget of a notebook, which is redrawn."""

    def __init__(self, bar):
        self.bar = bar
        self.n_compiled = 0
        self.steps = _Steps()

    def advance(self, info):
        self.steps.add(info)
        self.bar.set_postfix_str(self.steps.text, refresh=False)
        self.bar.update()

    def compiling(self, name):
        self.n_compiled += 1
        self.bar.set_postfix_str(f"compiling kernel {self.n_compiled}: {name}")

    def compiled(self):
        self.bar.set_postfix_str(self.steps.text)


class _Lines:
    """Lines of a file: one each minute, and one at the end."""

    def __init__(self, file, last_step):
        self.file = file
        self.of_all = "" if last_step is None else f" of {last_step:,}"
        self.last_time = time.monotonic()  # of a line
        self.line = ""  # of the last step, until it is written
        self.has_compiled = False
        self.steps = _Steps()

    def advance(self, info):
        self.steps.add(info)
        self.line = f"step {info.step:,}{self.of_all}: {self.steps.text}"
        if time.monotonic() - self.last_time >= EVERY:
            self.write_step()

    def write_step(self):
        if self.line:
            self.write(self.line)
            self.line = ""

    def write(self, line):
        print(line, file=self.file, flush=True)
        self.last_time = time.monotonic()

    def compiling(self, name):
        if not self.has_compiled:
            self.has_compiled = True
            title = "compiling kernels for this processor (once)"
            self.write(f"{title}: steps are slow until it is done")
