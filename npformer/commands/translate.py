"""Translate sentences with a trained model. Writes one line per sentence to standard output, in the
same order.

npformer translate --model runs/en-fr "A man is riding a bicycle."
npformer translate --model runs/en-fr --file test.en > test.fr
cat test.en | npformer translate --model runs/en-fr --n-best 3
npformer translate --model runs/en-fr --attention attention.png "A man is riding a bicycle."

With --n-best each line has the number of the sentence, the score (log-probability divided by the
length penalty) and the translation, separated by tabs.

A line that is not UTF-8, or too long for the model, is named on standard error, and its translation
is empty; the exit code is then 1.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np

from npformer.commands.shared import Picture, Text, UsageError, command_line
from npformer.commands.shared.decoding import Search
from npformer.commands.shared.lines import Lines, is_standard_input, name_of
from npformer.commands.shared.models import TrainedModel

from npformer.decoding.beam import Hypothesis
from npformer.errors import UserError
from npformer.runtime.ranks import Ranks, world
from npformer.text import Translator
from npformer.text.translator import READ_AHEAD


@command_line
def main(
    lines: Sequence[Text] = (),
    *,
    file: Path | None = None,
    trained: TrainedModel,
    search: Search,
    n_best: int | None = None,
    attention: Picture | None = None,
):
    """Translate sentences.

    Parameters
    ----------
    lines : SENTENCE
        each in quotes (default: the lines of --file or of standard input)
    file : FILE
        text file with one sentence per line, plain or .gz; - is standard input
    n_best
        write the N best of each sentence, with scores
    attention
        draw the cross-attention weights of the first sentence
    """
    sentences = Lines(lines, file, "sentence")
    if n_best and n_best > search.beam_size:
        raise UsageError(f"argument --n-best: {n_best}, expected at most --beam {search.beam_size}")
    ranks = ranks_for(sentences, attention)
    if ranks.size == 1 and not world().is_first:
        return 0
    translator = trained.load(Translator, "translate")
    to_translate = translatable(translator, sentences)
    if attention:
        to_translate = list(to_translate)
    first = None
    keywords = asdict(search) | {"n_best": n_best or 1}
    results = results_of(translator, to_translate, keywords, sentences.is_typed, ranks)
    for number, hypotheses in enumerate(results, start=1):
        if number == 1:
            first = hypotheses
        if n_best:
            for hypothesis in hypotheses:
                text = translator.text(hypothesis)
                print(f"{number}\t{hypothesis.score:.4f}\t{text}", flush=True)
        else:
            print(translator.text(hypotheses[0]) if hypotheses else "", flush=True)
    if attention and to_translate:
        draw(translator, to_translate[0], first, attention)
    return sentences.exit_code


def ranks_for(lines, attention):
    """The ranks that translate: rank 0 is enough for some sentences, and all share a file."""
    is_large = lines.file and not is_standard_input(lines.file) and not attention
    return world() if is_large else Ranks()


def translatable(translator, lines):
    """Yield the lines to translate; one that is refused becomes an empty line, whose translation is
    empty.
    """
    if lines.is_typed:
        print("type one sentence per line; Ctrl-D ends", file=sys.stderr)
    where = f"{name_of(lines.file)}, " if lines.file else ""
    for number, line in enumerate(lines, start=1):
        try:
            translator.check_line(line, number)
        except UserError as error:  # it has too many pieces
            lines.refuse(f"{where}{error}")
            line = ""
        yield line


def results_of(translator, lines, search, is_typed, ranks):
    """The hypotheses of each line, in order."""
    if ranks.size > 1:
        return results_on_ranks(translator, lines, search, ranks)
    if is_typed:  # answer each line at once
        return (next(translator.hypotheses([line], **search)) for line in lines)
    return translator.hypotheses(lines, **search)


def results_on_ranks(translator, lines, search, ranks):
    """Yield the hypotheses of each line, in order. Rank 0 reads the lines, and each rank translates
    a part of them.
    """
    ranks.agree(lambda: {"model": translator.digest()})
    while some := ranks.first(lambda: list(islice(lines, READ_AHEAD * ranks.size))):
        results = translator.hypotheses(ranks.my_share(some), **search)
        mine = [list(map(asdict, hypotheses)) for hypotheses in results]
        for hypotheses in ranks.gather_lists(mine):
            yield [Hypothesis(**hypothesis) for hypothesis in hypotheses]


def draw(translator, line, hypotheses, path):
    """Draw the heat map of the first sentence: the mean of the weights of all heads and layers."""
    if not hypotheses:
        raise UserError("--attention: the first line is empty, expected a sentence")
    from npformer.plots import plot_attention

    source, target, layers = translator.attention(line, hypotheses[0])
    mean = np.mean(layers, axis=(0, 1))
    keys = list(map(as_label, source))
    queries = list(map(as_label, target))
    title = "Cross-attention, mean of all layers and heads"
    if "↑" in "".join(keys + queries):
        title += "; ↑: a capital follows"
    path.parent.mkdir(parents=True, exist_ok=True)
    plot_attention([mean[None]], keys, queries, path, title, "source piece", "piece being said")


def as_label(piece):
    """A piece as a label: the space before a word goes without saying, a piece within a word gets a
    dash before it.
    """
    if piece.startswith("▁"):
        return piece[1:] or "(space)"
    return piece if piece.startswith("<") else f"-{piece}"
