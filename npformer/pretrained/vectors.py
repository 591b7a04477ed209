"""What an encoder says of texts: vectors to compare meanings, and probabilities of classes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from npformer.arrays import Array, on_host
from npformer.checks import warn
from npformer.errors import UserError
from npformer.extras import PAGES
from npformer.models.encoder import Encoder
from npformer.pretrained.sentences import SentenceTexts
from npformer.pretrained.tokenizer import check_tokenizer
from npformer.reference import softmax
from npformer.reference.math.scores import direction

ROWS = 32  # texts in a batch


def sentence_vectors(
    model: Any,
    params: dict,
    tokenizer: Any,
    sentences: list[str],
    backend: Any = "auto",
    prompt: str | None = None,
) -> Array:
    """The vector of each sentence (N, D), of length 1, so that the product of two is their cosine.

    They are computed in batches of similar lengths. What is longer than the model reads is cut, and
    a warning says so.

    Parameters
    ----------
    model, params, tokenizer
        A BERT that ``npformer.pretrained.load`` has loaded; of a folder of sentence-transformers
        with all its modules.
    sentences : list of str
    backend : "auto", "reference", "cpu", "gpu", or a backend
    prompt : str, optional
        The name of a prompt of the folder, which is put before each sentence: "query" or
        "document", if it has them, to search with and to search in. The folder's default one if not
        given.
    """
    fits = isinstance(model, Encoder) and model.pooling != "none"
    check_tokenizer(tokenizer, model, fits, "a BERT with a vector for each text")
    before = text_settings(tokenizer).prompt(prompt)
    rows = rows_of(model, tokenizer, [before + sentence for sentence in sentences])
    vectors = np.empty((len(rows), model.vector_width), model.dtype)
    compute_all(vectors, rows, partial(model.sentence_vectors, params, backend=backend))
    return direction(vectors)[0]


def class_probabilities(
    model: Any, params: dict, tokenizer: Any, texts: list[str], backend: Any = "auto"
) -> Array:
    """The probability of each class for each text, (N, n_outputs)."""
    fits = isinstance(model, Encoder) and model.task == "classes" and not model.by_position
    what = "an encoder with task='classes' that says one class of each text"
    expected = f"{what}, as {PAGES}/guides/fine-tuning.md makes one"
    check_tokenizer(tokenizer, model, fits, expected)
    rows = rows_of(model, tokenizer, texts)
    logits = np.empty((len(rows), model.n_outputs), model.dtype)
    compute_all(logits, rows, partial(model.outputs, params, backend=backend))
    return softmax(logits)


def text_settings(tokenizer) -> SentenceTexts:
    """What the folder of a tokenizer says of texts that become one vector."""
    return getattr(tokenizer, "sentences", SentenceTexts())


def rows_of(model, tokenizer, texts: list[str]) -> list:
    """The ids of each text; a warning says how many are cut, as they are too long."""
    rows = [tokenizer.encode(text) for text in texts]
    for row, text in zip(rows, texts, strict=True):
        if len(row) == 0:
            raise UserError(f"the sentence {text!r:.40} has no tokens, expected some")
    longest = model.max_len
    limit = "max_len of the model: divide longer texts"
    of_folder = text_settings(tokenizer).longest
    if of_folder and of_folder < longest:
        longest = int(of_folder)
        limit = (
            "max_seq_length in sentence_bert_config.json of the folder, or else model_max_length "
            f"in tokenizer_config.json, and may be up to {model.max_len} there"
        )
    too_long = [i for i, row in enumerate(rows) if len(row) > longest]
    if too_long:
        texts_of_all = f"{len(too_long):,} of {len(rows):,} sentences"
        cut = f"{texts_of_all} have more than {longest} tokens: cut"
        warn(f"{cut}; {longest} is {limit}")
    for i in too_long:
        rows[i] = tokenizer.cut(texts[i], longest)
    return rows


def compute_all(out: Array, rows: list, compute: Callable) -> None:
    """Write into ``out`` what a function says of rows of ids, in batches of similar lengths.

    It is called with ids (B, T), and with where there is an id.
    """
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for first in range(0, len(rows), ROWS):
        part = order[first : first + ROWS]
        lengths = np.array([len(rows[i]) for i in part])
        is_word = np.arange(lengths.max()) < lengths[:, None]
        ids = np.zeros(is_word.shape, np.int64)
        ids[is_word] = np.concatenate([rows[i] for i in part])
        out[part] = on_host(compute(ids, is_word))
