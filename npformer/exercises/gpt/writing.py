"""Train a GPT, given as the names of the page, on a text, and let it write."""

import re
import time
from types import SimpleNamespace

import numpy as np

from npformer.exercises.course.training import check_loss
from npformer.progress import progress_bar, say
from npformer.tokens import Characters

SIZES = {"d_model": 96, "n_layers": 3, "d_ff": 256}
N_HEADS = 4
LENGTH = 64  # characters of a passage
BATCH = 16  # passages
PEAK = 0.003  # the largest learning rate
WARMUP = 100  # steps
SHOWN = 0, 100, 300  # steps at which it shows what it writes, besides the last
N_MEASURED = 64  # passages of the held-out text
N_WRITTEN = 600  # characters, at the end


class Writer:
    """A model and its text.

    Parameters
    ----------
    names : dict
        The functions of the page, the person's among them.
    text : str
    seed : int
    """

    def __init__(self, names, text, seed=0):
        self.model = SimpleNamespace(**names)
        self.characters = Characters(text)
        self.read, self.new = np.split(self.characters.encode(text), [len(text) * 9 // 10])
        # What is shown does not change what is learned.
        self.rng, self.other = np.random.default_rng(seed).spawn(2)
        self.params = self.model.init(self.rng, len(self.characters), **SIZES)

    def passages(self, ids, rng, size):
        """Passages (B, T+1) that begin anywhere in the ids."""
        return ids[rng.integers(0, len(ids) - LENGTH, (size, 1)) + np.arange(LENGTH + 1)]

    def train(self, n_steps):
        """Train; shows a bar, and at some steps the loss of new text and what the model writes."""
        means = {}
        with progress_bar(n_steps, is_shown=True) as bar:
            for step in range(1, n_steps + 1):
                if step - 1 in SHOWN:
                    self.show(step - 1)
                start = time.perf_counter()
                batch = self.passages(self.read, self.rng, BATCH)
                loss, grads = self.model.loss_and_grad(self.params, batch, N_HEADS)
                check_loss(loss, step)
                lr = PEAK * min(step / WARMUP, (n_steps + 1 - step) / n_steps)
                self.model.adam_step(self.params, grads, means, step, lr)
                seconds = time.perf_counter() - start
                bar.advance(
                    SimpleNamespace(
                        step=step, loss=loss, lr=lr, n_tokens=BATCH * LENGTH, seconds=seconds
                    )
                )

    def show(self, step):
        """Print a line about the model after so many steps."""
        sample = " ".join(self.written(75).split())
        say(f"step {step:4}   loss of new text {self.new_loss():.2f}   {sample}")

    def new_loss(self):
        """The loss of a character of the text that is held out, in nats."""
        batch = self.passages(self.new, np.random.default_rng(0), N_MEASURED)
        return float(self.model.loss_and_grad(self.params, batch, N_HEADS)[0])

    def written(self, n_characters):
        """What the model writes after a line break, or after the first character of the text."""
        begin = self.read[:1]
        if "\n" in self.characters.all:
            begin = self.characters.encode("\n")
        ids = self.model.write(self.params, begin, N_HEADS, n_characters, self.other)
        return self.characters.decode(ids).strip()


def words_of(text):
    """The words of three letters or more."""
    return re.findall(r"[^\W\d_]{3,}", text)
