"""Vectors of sentences, by an encoder that was trained to give sentences of near meanings near vectors."""

import warnings
from typing import Any

import numpy as np

from npformer.arrays import Array
from npformer.models.encoder import Encoder
from npformer.pretrained.tokenizer import check_tokenizer
from npformer.reference.math.scores import direction

ROWS = 32  # sentences in a batch


def sentence_vectors(model: Any, params: dict, tokenizer: Any, sentences: list[str], backend: Any = "auto") -> Array:
    """The vector of each sentence (N, D), of length 1, so that the product of two is their cosine.

    They are computed in batches of similar lengths. What is longer than the model reads is cut, and a warning says so.
    """
    fits = isinstance(model, Encoder) and model.pooling != "none"
    check_tokenizer(tokenizer, model, fits, "a BERT with a vector for each text")
    rows, longest = [tokenizer.encode(sentence) for sentence in sentences], model.max_len
    if [] in rows:
        raise ValueError(f"the sentence {sentences[rows.index([])]!r:.40} has no tokens, expected some")
    if n_cut := sum(len(row) > longest for row in rows):
        warnings.warn(f"{n_cut:,} of {len(rows):,} sentences have more than {longest} tokens: cut", stacklevel=2)
        rows = [row if len(row) <= longest else [*row[: longest - 1], row[-1]] for row in rows]
    vectors = np.empty((len(rows), model.d_model), model.dtype)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for first in range(0, len(rows), ROWS):
        part = order[first : first + ROWS]
        lengths = np.array([len(rows[i]) for i in part])
        is_word = np.arange(lengths.max()) < lengths[:, None]
        ids = np.zeros(is_word.shape, np.int64)
        ids[is_word] = np.concatenate([rows[i] for i in part])
        vectors[part] = model.vectors(params, ids, is_word, backend=backend)
    return direction(vectors)[0]
