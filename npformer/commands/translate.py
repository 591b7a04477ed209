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
from dataclasses import asdict
from itertools import islice

import numpy as np

from npformer.commands.arguments import add_backend, add_model, new_parser, positive
from npformer.commands.command import command
from npformer.commands.decoding import add_search, search_of
from npformer.commands.lines import (
    Refusals,
    add_lines,
    choose_lines,
    is_standard_input,
    lines_of,
    name_of,
)
from npformer.commands.models import load_own
from npformer.commands.output import picture_file

from npformer.decoding.beam import Hypothesis
from npformer.errors import UserError
from npformer.runtime.ranks import OneProcess, world
from npformer.text import Translator
from npformer.text.translator import READ_AHEAD


@command
def main(argv=None):
    options = parse_arguments(argv)
    is_large = options.file and not is_standard_input(options.file) and not options.attention
    ranks = world() if is_large else OneProcess()
    if not is_large and not world().is_first:
        return 0  # rank 0 is enough for some sentences
    translator = load_own(Translator, options, "translate")
    refusals = Refusals()
    lines = sentences(translator, options, refusals)
    write_translations(translator, lines, options, ranks)
    return refusals.exit_code


def sentences(translator, options, refusals):
    """Yield the lines to translate; one that is refused becomes an empty line, whose translation is
    empty.
    """
    lines = options.lines
    where = ""
    if not lines:
        if options.is_typed:
            print("type one sentence per line; Ctrl-D ends", file=sys.stderr)
        lines = lines_of(options.file, refusals.tell)
        where = f"{name_of(options.file)}, "
    for number, line in enumerate(lines, start=1):
        try:
            translator.encode([line], first=number)
        except ValueError as error:  # it has too many pieces
            refusals.tell(f"{where}{error}")
            line = ""
        yield line


def write_translations(translator, lines, options, ranks):
    search = search_of(options) | {"n_best": options.n_best or 1}
    if options.attention:
        lines = list(lines)
    if ranks.size > 1:
        results = results_on_ranks(translator, lines, search, ranks)
    elif options.is_typed:  # answer each line at once
        results = (next(translator.hypotheses([line], **search)) for line in lines)
    else:
        results = translator.hypotheses(lines, **search)
    for number, hypotheses in enumerate(results, start=1):
        if number == 1:
            first = hypotheses
        if options.n_best:
            for hypothesis in hypotheses:
                text = translator.text(hypothesis)
                print(f"{number}\t{hypothesis.score:.4f}\t{text}", flush=True)
        else:
            print(translator.text(hypotheses[0]) if hypotheses else "", flush=True)
    if options.attention and lines:
        draw(translator, lines[0], first, options.attention)


def results_on_ranks(translator, lines, search, ranks):
    """Yield the hypotheses of each line, in order. Rank 0 reads the lines, and each rank translates
    a part of them.
    """
    ranks.agree(lambda: {"model": translator.checksum()})
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
    labels = "source piece", "piece being said"
    plot_attention([mean[None]], keys, queries, path, title, *labels)


def as_label(piece):
    """A piece as a label: the space before a word goes without saying, a piece within a word gets a
    dash before it.
    """
    if piece.startswith("▁"):
        return piece[1:] or "(space)"
    return piece if piece.startswith("<") else f"-{piece}"


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    add_lines(parser, "sentence")
    add_model(parser)
    add_search(parser)
    parser.add(
        "--n-best", "write the N best of each sentence, with scores", type=positive, metavar="N"
    )
    parser.add(
        "--attention",
        "draw the cross-attention weights of the first sentence",
        type=picture_file,
        metavar="PNG",
    )
    add_backend(parser, int8=True)
    options = parser.parse_args(argv)
    choose_lines(parser, options, "sentence")
    if options.n_best and options.n_best > options.beam_size:
        expected = f"expected at most --beam {options.beam_size}"
        parser.error(f"argument --n-best: {options.n_best}, {expected}")
    return options
