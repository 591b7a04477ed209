"""A progress bar, if tqdm is installed."""

import sys
import time
from contextlib import contextmanager


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
    with tqdm(total=n_steps, unit="step") as bar:
        yield _Bar(bar)


class _Silent:
    def advance(self, info):
        pass


class _Bar:
    def __init__(self, bar):
        self.bar = bar
        self.start = time.perf_counter()
        self.n_tokens = 0

    def advance(self, info):
        self.n_tokens += info.n_tokens
        rate = self.n_tokens / (time.perf_counter() - self.start)
        self.bar.set_postfix_str(f"loss {info.loss:.4f}, lr {info.lr:.2g}, {rate:,.0f} tokens/s", refresh=False)
        self.bar.update()


def say(text):
    """Print a line above the progress bar."""
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.write(text)
    else:
        print(text)
    sys.stdout.flush()  # so that it is in a log file at once
