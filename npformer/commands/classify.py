"""Classify texts with a model that was fine-tuned for it: print labels and their probabilities.

npformer classify --model runs/reviews "What a film!" "Too long."
npformer classify --model runs/reviews --file reviews.txt --json classes.json
cat reviews.txt | npformer classify --model runs/reviews

Each line of a file or of standard input is a text. A line of the output has the label, a tab and
the probability, in the order of the texts. A blank line, or one that is not UTF-8, has an empty
line there; what is not UTF-8 is also named on standard error, and the exit code is then 1. The
model is what npformer.pretrained.save or the library transformers has written; with --json, a file
has the probabilities of all labels. Without --model, the first argument is the model.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from npformer.commands.shared import (
    Backend,
    JsonFile,
    Text,
    UsageError,
    command_line,
    refuse_overwriting,
    write_json,
)
from npformer.commands.shared.lines import Lines
from npformer.commands.shared.models import load_of_others

from npformer.errors import UserError
from npformer.pretrained.families.bert import labels_of, output_names
from npformer.pretrained.vectors import class_probabilities

AT_ONCE = 256  # texts, of a file or a pipe


@command_line
def main(
    lines: Sequence[Text] = (),
    *,
    model: Path | None = None,
    file: Path | None = None,
    json: JsonFile | None = None,
    backend: Backend = "auto",
):
    """Classify texts.

    Parameters
    ----------
    lines : TEXT
        each in quotes (default: the lines of --file or of standard input)
    model : DIR
        a classifier, as npformer.pretrained.save writes it (default: the first argument)
    file : FILE
        text file with one text per line, plain or .gz; - is standard input
    """
    if model is None:
        if not lines or not lines[0]:  # an empty name is not the current folder
            raise UsageError("expected --model DIR")
        model, lines = Path(lines[0]), lines[1:]
    texts = Lines(lines, file, "text")
    if not model.exists():
        raise UserError(f"there is no {model}: expected --model DIR, or DIR before the texts")
    refuse_overwriting([model, texts.file])
    classifier, params, tokenizer = load_of_others(model, "classify")
    # Raises, before a text is read, if it is no classifier.
    class_probabilities(classifier, params, tokenizer, [])
    at_once = 1 if texts.is_typed else AT_ONCE
    classes = []
    unread = iter(texts)
    try:
        while some := list(islice(unread, at_once)):
            not_blank = [text for text in some if text.strip()]
            rows = iter(class_probabilities(classifier, params, tokenizer, not_blank, backend))
            for text in some:
                if text.strip():
                    classes.append(answer(text, next(rows), classifier))
                else:
                    print(flush=True)
    finally:
        figures = {"model": str(model), "labels": labels_of(classifier), "texts": classes}
        write_json(json, figures)
    return texts.exit_code


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
