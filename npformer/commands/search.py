"""Search in your own files by meaning: print the sentences whose vectors have the largest cosine
with that of a query.

npformer search README.md docs --query "how fast is it?"
npformer search notes.txt --query "when does the train leave?" --n 3 --json found.json

A folder stands for all text files in it and in its folders, except for hidden ones. A file that is
no text is skipped, and so is a line that is not UTF-8. Standard error says what is skipped; the
exit code is then 1, unless it is a file that was not named but found in a folder.

A sentence ends with . ! or ?, at a line that is empty or short, before a mark such as that of a
list, or, if nothing else ends it, after 2,000 characters. The vectors are kept in a file, by their
sentences: only those of new sentences are computed.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from npformer.commands.shared import (
    Backend,
    JsonFile,
    OutputFile,
    Positive,
    Words,
    command_line,
    message_or_raise,
    print_note,
    refuse_overwriting,
    write_json,
)
from npformer.commands.shared.lines import (
    BAD_LINES,
    in_short,
    is_standard_input,
    name_of,
    read,
    standard_input,
)
from npformer.commands.shared.models import load_of_others

from npformer import tree
from npformer.errors import UserError
from npformer.files.checkpoint import CheckpointError, checksum
from npformer.models import Encoder, describe
from npformer.pretrained.packages import check_there, in_models
from npformer.pretrained.vector_index import CHUNK, VectorIndex
from npformer.pretrained.vectors import sentence_vectors, text_settings
from npformer.text.lines import text_of
from npformer.text.sentences import sentences

MODEL = in_models("minilm")


@command_line
def main(
    files: Sequence[Path],
    *,
    query: Words,
    model: Path = MODEL,
    index: OutputFile | None = None,
    n: Positive = 5,
    json: JsonFile | None = None,
    backend: Backend = "auto",
):
    """Search.

    Parameters
    ----------
    files : FILE
        text in UTF-8, plain or .gz, or a folder; - is standard input
    query
        a question, or a sentence of the same meaning
    model : DIR
        BERT of transformers
    index
        the vectors (default: beside the model)
    n
        number of sentences
    """
    if any(map(is_standard_input, files)):
        standard_input()  # raises, before a model is read, if there is none
    index = index or model.parent / f"{model.absolute().name}.vectors.safetensors"
    texts = SearchedTexts()
    for path in files:
        texts.add(path)
    refuse_overwriting([*files, *texts.by_file], index=index)
    places = places_of(texts.by_file)
    if not places:
        raise UserError(in_short(texts.skipped) or "the files have no words, expected sentences")
    for reason in texts.skipped:
        print_note(f"skipped: {reason}")
    cosines, figures = cosines_of(query, list(places), load_encoder(model), index, backend)
    rows = list(places.values())
    nearest = np.argsort(-cosines, kind="stable")[:n]
    results = [{"cosine": float(cosines[i]), **rows[i]} for i in nearest]
    write_json(json, {"query": query, "found": results, **figures})
    for each in results:
        print("{cosine:.3f}  {file}:{line}: {sentence}".format(**each))
    return int(texts.has_errors)


def cosines_of(query, texts, loaded, index, backend):
    """The cosine of each of some sentences with a query, and figures of the vectors that were
    computed for that.
    """
    model, params, tokenizer = loaded

    def vectors_of(texts, prompt):
        return sentence_vectors(model, params, tokenizer, texts, backend, prompt=prompt)

    settings = {"settings": describe(model), "texts": text_settings(tokenizer)}
    of_model = checksum(dict(tree.leaves(params)), settings)
    start = time.perf_counter()
    try:
        vectors = VectorIndex(index, of_model)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; --index names the file") from error
    new = vectors.missing(texts)
    if len(new) > CHUNK:
        print_note(f"computing the vectors of {len(new):,} sentences")
    vectors.add(new, lambda chunk: vectors_of(chunk, "document"))
    seconds = time.perf_counter() - start
    [of_query] = vectors_of([query], "query")
    figures = {"n_sentences": len(texts), "n_new": len(new), "seconds": seconds}
    return vectors.vectors_of(texts) @ of_query, figures


def load_encoder(model):
    """What a path leads to; raises if its vectors are not made to compare meanings."""
    if model == MODEL:
        check_there("minilm")
    loaded = load_of_others(model, "search")
    encoder = loaded.model
    if isinstance(encoder, Encoder) and encoder.task in ("classes", "numbers"):
        raise UserError(
            f"{model} holds a classifier, "
            "whose vectors were trained for its outputs, not to compare meanings: "
            "give the folder of a model without an output, such as models/minilm"
        )
    return loaded


def places_of(texts):
    """The place of each sentence of some texts, the first if it has several."""
    places = {}
    for file, text in texts.items():
        for line, sentence in sentences(text):
            places.setdefault(sentence, {"file": str(file), "line": line, "sentence": sentence})
    return places


@dataclass
class SearchedTexts:
    """The texts of files, and what is skipped of them.

    Attributes
    ----------
    by_file : dict
        The texts by their paths.
    skipped : list of str
        Lines that say what is skipped.
    has_errors : bool
        Whether a file that was named, or a line of a text, is skipped.
    """

    by_file: dict[Path, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    has_errors: bool = False

    def add(self, path):
        """Add the text of a file, or those in a folder, whose files without a text are only
        counted.
        """
        files = files_in(path) if path.is_dir() else [path]
        without_text = []
        for file in files:
            try:
                text, bad_lines = text_in(file)
                self.by_file[file] = text
                self.skip(bad_lines)
            except (OSError, ValueError) as error:
                without_text.append(message_or_raise(error))
        if not path.is_dir():
            self.skip(without_text)
        elif without_text:
            self.skipped.append(
                f"{path}: {len(without_text):,} of {len(files):,} files hold no text in UTF-8"
            )

    def skip(self, messages):
        """Note messages about a file that was named, or about lines of a text."""
        if messages:
            self.skipped.append(in_short(messages))
            self.has_errors = True


def text_in(file):
    """The text of a file, or of standard input, without the lines that are not UTF-8, and a message
    about each of them.

    Raises if the file cannot be read to its end, or if it holds no text.
    """
    bad_lines = []

    def refuse(message):
        bad_lines.append(message)
        if len(bad_lines) > BAD_LINES:
            raise UserError(bad_lines[0])

    lines = list(read(file, refuse))
    if bad_lines and not any(map(str.strip, lines)):
        raise UserError(bad_lines[0])  # why nothing is left
    return text_of(lines, name_of(file)), bad_lines


def files_in(folder):
    """The files in a folder and in its folders, except for hidden ones."""
    files = []
    for file in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.is_file() and not is_hidden:
            files.append(file)
    return files
