"""Classify texts with a model that was fine-tuned for it: print the label of each text, and its probability.

npformer classify runs/reviews "What a film!" "Too long."
npformer classify runs/reviews --file reviews.txt --json classes.json
cat reviews.txt | npformer classify runs/reviews

Each line of a file or of standard input is a text. A line of the output has the label, a tab and the probability, in
the order of the texts. Of a blank line, and of one that is not UTF-8, it is empty; the latter is named on standard
error, and the exit code is then 1. The model is what npformer.pretrained.save or the library transformers has written;
with --json, a file has the probabilities of all labels.
"""

from itertools import islice
from pathlib import Path

from npformer.commands.arguments import add_backend, new_parser, utf_8
from npformer.commands.command import command
from npformer.commands.lines import Refusals, is_standard_input, lines_of, standard_input
from npformer.commands.output import add_json, refuse_overwriting, write_json

from npformer.models import LowRank
from npformer.pretrained import load
from npformer.pretrained.vectors import class_probabilities

AT_ONCE = 256  # texts, of a file or a pipe


@command
def main(argv=None):
    options = parse_arguments(argv)
    inputs = [] if options.texts or is_standard_input(options.file) else [options.file]
    refuse_overwriting({"--json": options.json}, [options.model, *inputs])
    model, params, tokenizer = load(options.model)
    if isinstance(model, LowRank):
        params = model.merged(params)
        model = model.model
    class_probabilities(model, params, tokenizer, [])  # raises, before a text is read, if it is no classifier
    labels = model.labels or [f"LABEL_{i}" for i in range(model.n_outputs)]
    refusals = Refusals()
    lines = iter(options.texts or lines_of(options.file, refusals.tell))
    at_once = 1 if options.is_typed else AT_ONCE
    classes = []
    try:
        while some := list(islice(lines, at_once)):
            texts = [line for line in some if line.strip()]
            rows = iter(class_probabilities(model, params, tokenizer, texts, options.backend))
            for line in some:
                if line.strip():
                    classes.append(answer(line, next(rows), labels))
                else:
                    print(flush=True)
    finally:
        write_json(options.json, {"model": str(options.model), "labels": list(labels), "texts": classes})
    return refusals.exit_code


def answer(text, probabilities, labels):
    """Print the most probable label of a text, and return its figures."""
    best = int(probabilities.argmax())
    # A label of a file may have anything in it: a tab or a line end would break the form of the output.
    label = "".join(letter if letter.isprintable() else "?" for letter in labels[best])
    print(f"{label}\t{probabilities[best]:.4f}", flush=True)
    by_label = {label: float(p) for label, p in zip(labels, probabilities, strict=True)}
    return {"text": text, "label": labels[best], "probability": float(probabilities[best]), "probabilities": by_label}


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("model", type=Path, metavar="FOLDER", help="a classifier, as npformer.pretrained.save writes it")
    texts = "each in quotes (default: the lines of --file or of standard input)"
    add("texts", nargs="*", type=utf_8, metavar="TEXT", help=texts)
    add("--file", type=Path, help="text file with one text per line, plain or .gz; - is standard input")
    add_json(parser)
    add_backend(parser)
    options = parser.parse_args(argv)
    if options.texts and options.file:
        parser.error("texts and --file: expected one of them")
    if options.texts in ([], ["-"]):
        options.texts = []
        options.file = options.file or Path("-")
    options.is_typed = is_standard_input(options.file) and standard_input().isatty()
    return options
