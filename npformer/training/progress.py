"""A progress bar, if tqdm is installed."""

import sys
import time
from contextlib import contextmanager

from npformer.training.compiling import compilations


@contextmanager
def progress_bar(n_steps, wanted):
    """Yield an object with a method ``advance(info)``, which shows a ``StepInfo``."""
    if not wanted:
        yield _Silent()
        return
    try:
        from tqdm import tqdm
    except ImportError:
        print("no progress bar, as it needs tqdm: pip install 'npformer[progress]'", file=sys.stderr)
        yield _Silent()
        return
    with tqdm(total=n_steps, unit="step") as tqdm_bar:
        bar = _Bar(tqdm_bar)
        with compilations(bar.compiling, bar.compiled):
            yield bar


class _Silent:
    def advance(self, info):
        pass


class _Bar:
    def __init__(self, bar):
        self.bar = bar
        self.start = time.perf_counter()
        self.n_tokens = 0
        self.text = ""  # what it says unless a kernel is compiled

    def advance(self, info):
        self.n_tokens += info.n_tokens
        rate = self.n_tokens / (time.perf_counter() - self.start)
        self.text = f"loss {info.loss:.4f}, lr {info.lr:.2g}, {rate:,.0f} tokens/s"
        self.bar.set_postfix_str(self.text, refresh=False)
        self.bar.update()

    def compiling(self, n, name):
        if self.bar.fp.isatty():
            self.bar.set_postfix_str(f"compiling kernel {n}: {name}")
        elif n == 1:  # a log file gets one line
            self.bar.write("compiling kernels for this processor (once): steps are slow until it is done", self.bar.fp)

    def compiled(self):
        if self.bar.fp.isatty():
            self.bar.set_postfix_str(self.text)


def say(text):
    """Print a line above the progress bar."""
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.write(text)
    else:
        print(text)
    sys.stdout.flush()  # so that it is in a log file at once
