"""What a training writes on the way: a progress bar, if tqdm is installed, and lines above it.

In a notebook with ipywidgets the bar is a widget, in one without it is text.

If they cannot be written, because the terminal or the reader of a pipe is gone, the training goes on without them.
"""

import contextlib
import sys
import warnings
from collections import deque
from contextlib import contextmanager

from npformer.runtime.compilation import told
from npformer.runtime.extras import pip_install

RECENT = 50  # steps, whose tokens per second are shown
GONE = OSError, ValueError, AttributeError  # a broken pipe, a closed file, or an object that is hardly a file


@contextmanager
def progress_bar(last_step, wanted, n_done=0):
    """Yield an object whose ``advance(info)`` shows a ``StepInfo``; ``n_done`` steps were made before."""
    if not wanted or sys.stderr is None:
        yield _Silent()
        return
    try:
        with warnings.catch_warnings(action="ignore"):  # that ipywidgets are missing, or that they are used
            from tqdm.autonotebook import tqdm
    except ImportError:
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


class _Bar:
    def __init__(self, bar):
        self.bar = bar
        self.is_redrawn = bar.gui or bar.fp.isatty()  # a widget, or a line of a terminal
        self.n_compiled = 0
        self.recent: deque = deque(maxlen=RECENT)  # (tokens, seconds) of the last steps
        self.text = ""  # what it says unless a kernel is compiled

    def advance(self, info):
        self.recent.append((info.n_tokens, info.seconds))
        n_tokens, seconds = map(sum, zip(*self.recent, strict=True))
        rate = n_tokens / max(seconds, 1e-9)
        self.text = f"loss {info.loss:.4f}, lr {info.lr:.2g}, {rate:,.0f} tokens/s"
        self.bar.set_postfix_str(self.text, refresh=False)
        self.bar.update()

    def compiling(self, name):
        self.n_compiled += 1
        if self.is_redrawn:
            self.bar.set_postfix_str(f"compiling kernel {self.n_compiled}: {name}")
        elif self.n_compiled == 1:  # a log file gets one line
            self.bar.write("compiling kernels for this processor (once): steps are slow until it is done", self.bar.fp)

    def compiled(self):
        if self.is_redrawn:
            self.bar.set_postfix_str(self.text)


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
