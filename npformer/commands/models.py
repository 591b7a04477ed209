"""What kind of model a path leads to, and which commands take it."""

from typing import NamedTuple

from npformer.errors import UserError
from npformer.files.checkpoint import BEST, LAST, RESULT, description_in
from npformer.files.paths import MISSING, kind_of_file
from npformer.translation.translator import SUBWORDS


class Kind(NamedTuple):
    """A kind of model, and the commands that take it."""

    what: str
    commands: tuple[str, ...]


LANGUAGE = Kind("a language model of train-gpt", ("generate",))
TRANSLATION = Kind("a translation model", ("translate", "evaluate", "export"))
FOREIGN = Kind(
    "a model as the library transformers writes it", ("generate", "chat", "classify", "search")
)
WITHOUT_TEXT = Kind("a model without the tokens of its texts", ())


def check_kind(path, command):
    """Raise if a path leads to a model of a kind that a command does not take.

    What is no model at all is left to the function that loads it, which says why.
    """
    kind = kind_of_model(path)
    if kind is None or command in kind.commands:
        return
    *others, last = kind.commands or ("",)
    if others:
        advice = f"npformer {', '.join(others)} and {last} take it"
    elif last:
        advice = f"npformer {last} takes it"
    else:
        advice = "no command takes it, but npformer.training.load_checkpoint in Python"
    raise UserError(f"{path} holds {kind.what}: {advice}")


def kind_of_model(path):
    """The ``Kind`` of model that lies at a path, by names and settings alone; None if none does."""
    if kind_of_file(path) == MISSING:
        return None
    if path.suffix == ".gguf" or (path / "config.json").exists():
        return FOREIGN
    if path.is_dir():
        names = [name for name in (RESULT, BEST, LAST) if (path / name).exists()]
        if not names:
            return None
        path = path / names[0]
    description, arrays = description_in(path)
    if not isinstance(description, dict):
        return None
    if description.get("name") == "LanguageModel":
        return LANGUAGE
    return TRANSLATION if SUBWORDS.keys() <= arrays else WITHOUT_TEXT
