"""Train a Transformer, given as the names of the page, to write words backwards; let it write."""

import string
import time
import unicodedata
from types import SimpleNamespace

import numpy as np

from npformer.errors import UserError
from npformer.exercises.course.training import check_loss

LONGEST = 16  # letters
SIZES = {"d_model": 32, "n_layers": 1, "d_ff": 64}
N_HEADS = 4
BATCH = 32  # words
PEAK = 0.005  # the largest learning rate
WARMUP = 100  # steps
JOINER = "\u200d"  # of several signs that are shown as one
FIRST = 3  # the id of the first letter, after padding, begin and end


def letters_of(word):
    """The letters of a word, each with its accents. Raises UserError if it cannot be used."""
    letters: list[str] = []
    for sign in unicodedata.normalize("NFC", word.strip()):
        if not sign.isprintable() and sign != JOINER:
            raise UserError(f"the name {word!r:.40} has {sign!r}, which is no letter")
        is_accent = unicodedata.category(sign)[0] == "M" or sign == JOINER
        if letters and (is_accent or letters[-1].endswith(JOINER)):
            letters[-1] += sign
        else:
            letters.append(sign)
    if not 1 <= len(letters) <= LONGEST:
        raise UserError(
            f"the name {word!r:.40} has {len(letters)} letters, expected 1 to {LONGEST}"
        )
    return letters


class Words:
    """Words of random letters, those of given words among them, and the same words backwards."""

    def __init__(self, words):
        others = {letter for word in words for letter in word} - set(string.ascii_lowercase)
        self.letters = [*string.ascii_lowercase, *sorted(others)]
        self.n_ids = FIRST + len(self.letters)

    def batch(self, model, words):
        """The ids of words (B, S), and those backwards between begin and end (B, S+2)."""
        longest = max(map(len, words))
        src = np.full((len(words), longest), model.PAD)
        tgt = np.full((len(words), longest + 2), model.PAD)
        for b, word in enumerate(words):
            ids = [FIRST + self.letters.index(letter) for letter in word]
            src[b, : len(ids)] = ids
            tgt[b, 0] = model.BEGIN
            tgt[b, 1 : len(ids) + 1] = ids[::-1]
            tgt[b, len(ids) + 1] = model.END
        return src, tgt

    def random(self, rng, size):
        """Random words of 1 to LONGEST letters."""
        return [
            list(rng.choice(self.letters, length)) for length in rng.integers(1, LONGEST + 1, size)
        ]

    def text(self, ids):
        """The letters of ids, without what is none."""
        return "".join(self.letters[i - FIRST] for i in ids if i >= FIRST)


def train(names, words, n_steps, every=200, seed=0):
    """Train the model; prints the loss. Returns its parameters."""
    start = time.perf_counter()
    model = SimpleNamespace(**names)
    data = Words(words)
    rng = np.random.default_rng(seed)
    params = model.init(rng, data.n_ids, **SIZES)
    means = {}
    for step in range(1, n_steps + 1):
        loss, grads = model.loss_and_grad(
            params, *data.batch(model, data.random(rng, BATCH)), N_HEADS
        )
        check_loss(loss, step)
        lr = PEAK * min(step / WARMUP, (n_steps + 1 - step) / max(n_steps + 1 - WARMUP, 1))
        model.adam_step(params, grads, means, step, lr)
        if step % every == 0 or step == n_steps:
            print(
                f"step {step:4}   loss {loss:.4f}   {time.perf_counter() - start:4.1f} s",
                flush=True,
            )
    return params


def written(names, params, words, all_words):
    """What the model writes for each word, greedily."""
    model = SimpleNamespace(**names)
    data = Words(all_words)
    src, _ = data.batch(model, words)
    return [data.text(ids) for ids in model.greedy_decode(params, src, N_HEADS, LONGEST + 1)]
