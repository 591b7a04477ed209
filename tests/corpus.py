"""A small artificial language pair, for tests of translation."""

import gzip
import random

from npformer import Adam, Trainer, Transformer
from npformer.text import TokenBatches, Translator
from npformer.tokens import Subwords

WORDS = {
    "a": "un",
    "the": "le",
    "man": "homme",
    "sees": "voit",
    "horse": "cheval",
    "on": "sur",
    "eats": "mange",
    "bread": "pain",
    "old": "âgé",
    "it's": "c'est",
}
SETTINGS = {
    "model": {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 8},
    "preset": "of the tests",
    "src": "en",
    "tgt": "fr",
    "seed": 1,
    "dropout": 0.2,
    "inner_dropout": 0.1,
    "norm": "post",
    "vocab": "joint",
    "vocab_size": 40,
    "max_tokens": 150,
    "max_len": 60,
    "skip_empty": False,
    "schedule": "inverse_sqrt",
    "lr": 0.01,
    "warmup": 4,
    "label_smoothing": 0.1,
    "clip_norm": None,
    "steps": 10,
    "validate_every": 3,
    "save_every": 2,
    "patience": 20,
    "n_average": 2,
    "average": "last",
}  # fields of TranslationSettings, except the data


def sentence_pairs(n, seed=0):
    """An iterator over English lines of one to nine words and their word-by-word translations."""
    draw = random.Random(seed)
    for _ in range(n):
        words = draw.choices(list(WORDS), k=draw.randint(1, 9))
        yield " ".join(words), " ".join(WORDS[word] for word in words)


def write_split(folder, split, pairs):
    """Write ``split.en`` and ``split.fr.gz``,
    so that there is one plain and one compressed file.
    """
    folder.mkdir(exist_ok=True)
    sources, targets = (
        "".join(line + "\n" for line in side).encode() for side in zip(*pairs, strict=True)
    )
    (folder / f"{split}.en").write_bytes(sources)
    (folder / f"{split}.fr.gz").write_bytes(gzip.compress(targets))


def write_corpus(folder, n_train=60, n_val=6):
    """A data folder for ``train_translation.py``, which also has a "test" split."""
    write_split(folder, "train", sentence_pairs(n_train, seed=1))
    write_split(folder, "val", sentence_pairs(n_val, seed=2))
    write_split(folder, "test", sentence_pairs(n_val, seed=3))
    return folder


def trained_translator(n_pairs, n_steps):
    """A small translator that has learned enough to say different things of different sentences."""
    pairs = list(sentence_pairs(n_pairs))
    subwords = Subwords.learn([line for pair in pairs for line in pair], size=60)
    sizes = {"d_model": 32, "n_heads": 2, "n_layers": 1, "d_ff": 32}
    model = Transformer(60, 60, **sizes, dropout=0.0, tie_embeddings=True)
    trainer = Trainer(model, Adam(0.01), seed=1)
    batches = TokenBatches(pairs, subwords, subwords, max_tokens=600, seed=1).from_place()
    trainer.fit(((src, tgt) for _, src, tgt in batches), n_steps, progress=False)
    return Translator(model, trainer.params, subwords, subwords)
