"""Translation of sentences: a model, its parameters and its subwords in one object and one file."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from npformer import tree
from npformer.arrays import digest, on_host
from npformer.backends import get_backend, picklable
from npformer.checks import each_line
from npformer.decoding import beam_search, greedy_decode
from npformer.errors import UserError
from npformer.files.checkpoint import (
    LAST,
    RESULT,
    CheckpointError,
    joined,
    load_checkpoint,
    refusing,
    save_checkpoint,
)
from npformer.models import EncoderDecoder, describe, from_description
from npformer.operations.options import check_option
from npformer.quantized import moved
from npformer.text.in_batches import pack
from npformer.tokens.subwords import Subwords, bytes_in

EXTRA_LEN = 50  # a translation has at most this many tokens more than its source (section 6.1)
BATCH_TOKENS = 2**14  # of all hypotheses of a batch at most, which the cache must hold
BEAM_SIZE = 5
# by the names of the arrays in a file:
SUBWORDS = {"subwords.source": "source", "subwords.target": "target"}
READ_AHEAD = 1024  # lines that are sorted by length and divided into batches together


@dataclass(frozen=True, repr=False)
class Translator:
    """A model with its parameters and subwords, which translates sentences.

    Parameters
    ----------
    model : EncoderDecoder
    params : nested dict
    source, target : Subwords
        Vocabularies of the two languages; the same object if they share one. Their sizes and their
        padding are those of the model.
    backend : "auto", "reference", "cpu", "gpu", or a backend
    info : dict, optional
        The ``info`` of the file from which it was loaded.

    Examples
    --------
    >>> from npformer import Transformer
    >>> subwords = Subwords.learn(["a man", "un homme"], size=16)
    >>> model = Transformer(16, 16, d_model=8, n_heads=2, n_layers=1, d_ff=8, tie_embeddings=True)
    >>> translator = Translator(model, model.init(0), subwords, subwords)
    >>> [translation] = translator.translate(["a man"])  # not a good one before training
    >>> translator
    <Translator with a Transformer, 1,408 parameters, 16 subwords>
    """

    model: EncoderDecoder
    params: dict
    source: Subwords
    target: Subwords
    backend: Any = "auto"
    info: dict | None = None

    def __post_init__(self):
        check_subwords(self.model, self.source, self.target)
        device = get_backend(self.backend, self.params).device
        object.__setattr__(self, "params", moved(self.params, device))

    def __repr__(self):
        sizes = [f"{len(x):,}" for x in dict.fromkeys((self.source, self.target))]
        kind = type(self.model).__name__
        n = tree.count(self.params)
        return f"<Translator with a {kind}, {n:,} parameters, {' and '.join(sizes)} subwords>"

    def __getstate__(self):
        """What ``pickle`` and ``copy`` take: a backend of npformer's as its name."""
        return vars(self) | {"backend": picklable(self.backend)}

    def save(self, path, info=None):
        """Save everything to one file, which ``load`` reads; ``info`` has more values to save."""
        arrays = tree.to_arrays(self.params, "params") | self.subword_arrays()
        save_checkpoint(path, arrays, joined("info", {"model": describe(self.model)}, info))

    @classmethod
    def load(cls, path, backend="auto"):
        """Load a file written by ``save``, or by ``Trainer.save`` with ``subword_arrays``.

        Parameters
        ----------
        path : str or Path
            The file, or the folder of a training, which has it as ``model.safetensors``.
        backend : "auto", "reference", "cpu", "gpu", or a backend

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        CheckpointError
            If it is damaged or malformed, or holds no model with its subwords, or with those of
            another model.
        """
        path = Path(path)
        if path.is_dir():
            path = result_in(path)
        arrays, info = load_translation(path)
        with refusing(path):
            model = from_description(info["model"], arrays)
            source, target = cls.subwords_in(arrays)
            # As the next line does, but with the name of the file.
            check_subwords(model, source, target)
        return cls(model, tree.from_arrays(arrays, "params"), source, target, backend, info)

    def subword_arrays(self):
        """Return both vocabularies as arrays that a checkpoint can hold."""
        return {name: getattr(self, side).array for name, side in SUBWORDS.items()}

    @staticmethod
    def subwords_in(arrays):
        """Return (source, target) from the result of ``subword_arrays``."""
        return tuple(Subwords(bytes_in(arrays, name)) for name in SUBWORDS)

    def translate(self, lines, **options):
        """Yield the best translation of each line, in order.

        Parameters
        ----------
        lines : iterable of str
            Some lines are read ahead, so that sentences of similar length are translated together.
        **options
            Options of ``beam_search``: beam_size, length_penalty, penalty_form, min_len.

        Yields
        ------
        str
            The translation; an empty string for an empty line.
        """
        for hypotheses in self.hypotheses(lines, **options):
            yield self.text(hypotheses[0]) if hypotheses else ""

    def hypotheses(self, lines, **options):
        """Yield a list of the best hypotheses of each line, best first.

        It is empty for an empty line.

        ``lines`` and the options are those of ``translate``, and n_best (default 1).
        """
        options["beam_size"] = check_option("beam_size", options.get("beam_size", BEAM_SIZE))
        lines = each_line("lines", lines)
        first = 1
        while chunk := list(islice(lines, READ_AHEAD)):
            yield from self._decode(beam_search, chunk, options, first)
            first += len(chunk)

    def greedy(self, lines):
        """Return the greedy translations of all lines: faster than beam search, a little worse."""
        lines = list(each_line("lines", lines))
        return self.target.decode(self._decode(greedy_decode, lines, {}))

    def digest(self):
        """Return a digest of the parameters, to compare them on several ranks."""
        return digest(on_host(x) for _, x in tree.leaves(self.params))

    def encode(self, lines, first=1):
        """Return the ids of the pieces of each line; ``first`` is the first line's, for errors."""
        sources = self.source.encode(lines)
        for number, ids in enumerate(sources, start=first):
            if len(ids) >= self.model.max_len:
                raise UserError(
                    f"line {number} has {len(ids)} pieces, "
                    f"expected fewer than {self.model.max_len}: divide it"
                )
        return sources

    def check_line(self, line, number):
        """Raise an error that names a line by its number if it is too long."""
        self.encode([line], first=number)

    def text(self, hypothesis):
        """Return the text of a hypothesis."""
        return self.target.decode([hypothesis.tokens])[0]

    def attention(self, line, hypothesis):
        """Return the attention weights of the decoder on the source, for each generated piece.

        Parameters
        ----------
        line : str
        hypothesis : Hypothesis
            One of ``hypotheses``.

        Returns
        -------
        source, target : lists of str
            The S and T pieces, with ``</s>`` at the end.
        weights : list of (H, T, S)
            One array for each layer.
        """
        src = pack(self.source.encode([line]), self.source.pad_id, end=self.source.eos_id)
        tgt_in = np.array([[self.target.bos_id, *hypothesis.tokens[:-1]]])
        weights = self.model.attention_weights(self.params, src, tgt_in, backend=self.backend)
        pieces = self.source.pieces(src[0]), self.target.pieces(hypothesis.tokens)
        return *pieces, [layer[0] for layer in weights["memory"]]

    def _decode(self, decode, lines, options, first=1):
        """What ``beam_search`` or ``greedy_decode`` returns for all lines, in batches of similar
        length; ``first`` is the number of the first line, for errors. The options are those of the
        search.
        """
        beam_size = options.get("beam_size", 1)
        sources = self.encode(lines, first)
        results = [[] for _ in sources]
        not_empty = [i for i, ids in enumerate(sources) if len(ids)]
        order = sorted(not_empty, key=lambda i: -len(sources[i]))
        n_done = 0
        while n_done < len(order):
            longest = beam_size * (len(sources[order[n_done]]) + 1 + EXTRA_LEN)
            batch = order[n_done : n_done + max(1, BATCH_TOKENS // longest)]
            n_done += len(batch)
            src = pack([sources[i] for i in batch], self.source.pad_id, end=self.source.eos_id)
            decoded = decode(self.model, self.params, src, **self._limits(src), **options)
            for i, result in zip(batch, decoded, strict=True):
                results[i] = result
        return results

    def _limits(self, src):
        longest = (src != self.model.pad_id).sum(axis=1) + EXTRA_LEN
        return {
            "bos_id": self.target.bos_id,
            "eos_id": self.target.eos_id,
            "max_len": np.minimum(longest, self.model.max_len),
            "backend": self.backend,
        }


def result_in(folder):
    """The file of the model in the folder of a training; raises if the training has not ended."""
    result = folder / RESULT
    last = folder / LAST
    if last.exists() and not result.exists():
        load_translation(last)  # raises if it is another training, which has no such file
        raise FileNotFoundError(
            f"there is no {result}: its training has not ended; resume it, or take {last}"
        )
    return result


def load_translation(path):
    """The arrays and the ``info`` of a file; raises if it has no translation model."""
    arrays, info = load_checkpoint(path)
    if "model" not in info or not SUBWORDS.keys() <= arrays.keys():
        raise CheckpointError(
            f"{path} holds no translation model, "
            "expected a file written by train-translation or Translator.save"
        )
    return arrays, info


def check_subwords(model, source, target):
    """Raise if subwords are not those of the model: its words, and its padding."""
    sides = ("source", source, model.src_vocab), ("target", target, model.tgt_vocab)
    for side, subwords, size in sides:
        if len(subwords) != size:
            raise UserError(
                f"{side} has {len(subwords)} pieces, "
                f"expected as many as the model's vocabulary, {size}"
            )
        if subwords.pad_id != model.pad_id:
            raise UserError(
                f"{side} has pad_id={subwords.pad_id}, expected that of the model, {model.pad_id}"
            )
