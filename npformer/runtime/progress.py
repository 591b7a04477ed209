"""What a training writes on the way: a progress bar, if tqdm is installed, and lines above it.

In a notebook with ipywidgets the bar is a widget, in one without it is text. Where nothing can be redrawn, as in a
file, there is a line each minute instead.

If they cannot be written, because the terminal or the reader of a pipe is gone, the training goes on without them.
"""

import contextlib
import os
import sys
import time
import warnings
from collections import deque
from contextlib import contextmanager

from npformer.runtime.compilation import told
from npformer.runtime.extras import pip_install

RECENT = 50  # steps, whose tokens per second are shown
EVERY = 60.0  # seconds from one line to the next in a file
GONE = OSError, ValueError, AttributeError  # a broken pipe, a closed file, or an object that is hardly a file


@contextmanager
def progress_bar(last_step, wanted, n_done=0):
    """Yield an object whose ``advance(info)`` shows a ``StepInfo``; ``n_done`` steps were made before."""
    if not wanted or sys.stderr is None:
        yield _Silent()
        return
    if not _can_redraw():
        if os.environ.get("TQDM_DISABLE", "0") in ("", "0"):
            yield from _lines(last_step)
        else:
            yield _Silent()
        return
    tqdm = _tqdm()
    if tqdm is None:
        print(f"no progress bar, as it needs tqdm: {pip_install('progress')}", file=_IfPossible(sys.stderr))
        yield _Silent()
        return
    with tqdm(total=last_step, initial=n_done, unit="step", file=_IfPossible(sys.stderr)) as tqdm_bar:
        if tqdm_bar.disable:  # TQDM_DISABLE=1
            yield _Silent()
            return
        bar = _Bar(tqdm_bar)
        with told(bar.compiling, bar.compiled):
            yield bar


def _tqdm():
    """The class of progress bars, None if tqdm is not installed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # that ipywidgets are missing, or that they are used
            from tqdm.autonotebook import tqdm
    except ImportError:
        return None
    return tqdm


@contextmanager
def compiling_bar(n_kernels, wanted):
    """Yield a function that is told how many of so many kernels are left to compile."""
    file = _IfPossible(sys.stderr)
    title = "compiling kernels for this processor, once"
    with told(lambda name: None, lambda: None):
        if not wanted or sys.stderr is None or os.environ.get("TQDM_DISABLE", "0") not in ("", "0"):
            yield lambda n_left: None
        elif not _can_redraw() or (tqdm := _tqdm()) is None:
            print(f"{title}: {n_kernels}", file=file, flush=True)
            yield lambda n_left: None
        else:
            with tqdm(total=n_kernels, desc=title, unit="kernel", file=file) as bar:

                def say(n_left):
                    bar.n = n_kernels - n_left
                    bar.refresh()

                yield say


def _can_redraw():
    """Whether standard error is a terminal, or the output of a cell of a notebook."""
    return _IfPossible(sys.stderr).isatty() or "ipykernel" in sys.modules


def _lines(last_step):
    """Yield what ``progress_bar`` yields for a file, and write its last line."""
    lines = _Lines(_IfPossible(sys.stderr), last_step)
    try:
        with told(lines.compiling, lines.compiled):
            yield lines
    finally:  # also after Ctrl-C or an error
        lines.write_step()


class _IfPossible:
    """A file that drops what cannot be written."""

    def __init__(self, file):
        self.file, self.encoding = file, getattr(file, "encoding", None)

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


class _Silent:
    def advance(self, info):
        pass


class _Steps:
    """What is said of the last steps."""

    def __init__(self):
        self.recent: deque = deque(maxlen=RECENT)  # (tokens, seconds) of each
        self.text = ""

    def add(self, info):
        self.recent.append((info.n_tokens, info.seconds))
        n_tokens, seconds = map(sum, zip(*self.recent, strict=True))
        rate = n_tokens / max(seconds, 1e-9)
        self.text = f"loss {info.loss:.4f}, lr {info.lr:.2g}, {rate:,.0f} tokens/s"


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
        self.written = time.monotonic()  # when the last line was written
        self.step = None  # of which no line says anything yet
        self.has_compiled = False
        self.steps = _Steps()

    def advance(self, info):
        self.steps.add(info)
        self.step = info.step
        if time.monotonic() - self.written >= EVERY:
            self.write_step()

    def write_step(self):
        if self.step is not None:
            self.write(f"step {self.step:,}{self.of_all}: {self.steps.text}")
            self.step = None

    def write(self, line):
        print(line, file=self.file, flush=True)
        self.written = time.monotonic()

    def compiling(self, name):
        if not self.has_compiled:
            self.write("compiling kernels for this processor (once): steps are slow until it is done")
            self.has_compiled = True

    def compiled(self):
        pass


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
