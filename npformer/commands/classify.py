"""Classify texts with a model that was fine-tuned for it: print labels and their probabilities.

npformer classify runs/reviews "What a film!" "Too long."
npformer classify runs/reviews --file reviews.txt --json classes.json
cat reviews.txt | npformer classify runs/reviews

Each line of a file or of standard input is a text. A line of the output has the label, a tab and
the probability, in the order of the texts. Of a blank line, and of one that is not UTF-8, it is
empty; the latter is named on standard error, and the exit code is then 1. The model is what
npformer.pretrained.save or the library transformers has written; with --json, a file has the
probabilities of all labels.
"""

from itertools import islice
from pathlib import Path

from npformer.commands.arguments import add_backend, new_parser
from npformer.commands.command import command
from npformer.commands.lines import Refusals, add_lines, choose_lines, lines_of
from npformer.commands.models import load_of_others
from npformer.commands.output import add_json, refuse_overwriting, write_json

from npformer.pretrained.bert import labels_of, output_names
from npformer.pretrained.vectors import class_probabilities

AT_ONCE = 256  # texts, of a file or a pipe


@command
def main(argv=None):
    options = parse_arguments(argv)
    refuse_overwriting(options, [options.model, options.file])
    model, params, tokenizer = load_of_others(options.model, "classify")
    # Raises, before a text is read, if it is no classifier.
    class_probabilities(model, params, tokenizer, [])
    refusals = Refusals()
    lines = iter(options.lines or lines_of(options.file, refusals.tell))
    at_once = 1 if options.is_typed else AT_ONCE
    classes = []
    try:
        while some := list(islice(lines, at_once)):
            texts = [line for line in some if line.strip()]
            rows = class_probabilities(model, params, tokenizer, texts, options.backend)
            of_texts = iter(rows)
            for line in some:
                if line.strip():
                    classes.append(answer(line, next(of_texts), model))
                else:
                    print(flush=True)
    finally:
        figures = {"model": str(options.model), "labels": labels_of(model), "texts": classes}
        write_json(options.json, figures)
    return refusals.exit_code


def answer(text, probabilities, model):
    """Print the most probable label of a text, and return its figures."""
    best = int(probabilities.argmax())
    label = labels_of(model)[best]
    # A label may have anything in it: a tab or a line end would break the form of the output.
    printable = "".join(letter if letter.isprintable() else "?" for letter in label)
    values = list(map(float, probabilities))
    print(f"{printable}\t{values[best]:.4f}", flush=True)
    return {
        "text": text,
        "label": label,
        "probability": values[best],
        # By names, as two classes may have one label.
        "probabilities": dict(zip(output_names(model), values, strict=True)),
    }


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    parser.add(
        "model", "a classifier, as npformer.pretrained.save writes it", type=Path, metavar="FOLDER"
    )
    add_lines(parser, "text")
    add_json(parser)
    add_backend(parser)
    options = parser.parse_args(argv)
    choose_lines(parser, options, "text")
    return options
