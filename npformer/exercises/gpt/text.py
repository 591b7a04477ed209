"""The text on which a person's GPT is trained: one of theirs, or sentences of npformer itself."""

import ast
import re
from pathlib import Path

import npformer
from npformer.errors import UserError
from npformer.text.lines import read_lines

LEAST = 2_000  # characters, of which a tenth is held out
FEW = 100_000  # with fewer, the loss of new text rises again in the 1,000 steps of a training
MOST = 10_000_000  # characters; a training of some minutes reads a part of them


def read_text(path):
    """The characters of a file in UTF-8. Raises OSError, ValueError or UserError, with words."""
    try:
        text = _beginning(path)
    except ValueError as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            raise UserError(
                f"{error}: save the text as UTF-8 in your editor, or leave out --text"
            ) from None
        raise
    if len(text) < LEAST:
        raise UserError(
            f"{path} has {len(text):,} characters, expected at least {LEAST:,}: take a longer "
            f"text, best one of {FEW:,} or more, or leave out --text"
        )
    if len(text) < FEW:
        print(
            f"{path} has {len(text):,} characters: with fewer than {FEW:,} it learns them by "
            "heart; --steps 300 helps"
        )
    return text


def _beginning(path):
    lines = []
    n = 0
    for line in read_lines(path):
        lines.append(line)
        n += len(line) + 1
        if n >= MOST:
            print(f"{path} is long: its first {MOST:,} characters are read")
            break
    return "\n".join(lines)[:MOST].strip()


def sentences_of_npformer():
    """The sentences of the docstrings in the package, each once and on a line of its own."""
    sentences: dict[str, None] = {}
    for path in sorted(Path(npformer.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                sentences |= dict.fromkeys(sentences_of(ast.get_docstring(node) or ""))
    return "\n".join(sentences)


def sentences_of(docstring):
    """The sentences of a docstring, without its examples."""
    prose = re.sub(r"(?m)^ *(>>>|\.\.\.).*", "", docstring)
    return [
        " ".join(sentence.split())
        for sentence in re.findall(r"(?a)[A-Z][\w\s,;:'\"()-]+[.?!]", prose)
    ]
