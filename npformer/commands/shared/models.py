"""What kind of model a path leads to, which commands take it, and how they load it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from npformer.commands.shared.signature import Backend

from npformer.errors import UserError
from npformer.files.checkpoint import BEST, LAST, RESULT, description_in
from npformer.files.paths import MISSING, kind_of_file
from npformer.models import Encoder, LanguageModel, Transformer
from npformer.pretrained.families import FAMILIES
from npformer.pretrained.files import read_json
from npformer.pretrained.loading import load_merged
from npformer.pretrained.opening import is_of_others
from npformer.quantized import quantize
from npformer.text.translator import SUBWORDS


class Kind(NamedTuple):
    """A kind of model, the commands that take it, and what does if there is none."""

    what: str
    commands: tuple[str, ...]
    function: str = ""


LANGUAGE = Kind("a language model of train-gpt", ("generate",))
TRANSLATION = Kind("a translation model", ("translate", "evaluate", "export"))
WITHOUT_TEXT = Kind(
    "a model without the tokens of its texts", (), "npformer.training.load_checkpoint"
)
# By the class that ``pretrained.load`` makes of it:
OF_TRANSFORMERS = {
    LanguageModel: Kind("a language model of the library transformers", ("generate", "chat")),
    Encoder: Kind("an encoder of the library transformers", ("classify", "search")),
    Transformer: Kind(
        "a translation model of the library transformers", (), "npformer.pretrained.load"
    ),
}


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A model of train-gpt or of train-translation.

    Parameters
    ----------
    model : DIR
        output of a training, or a model file
    int8
        decode with weights of 8 bits, a quarter of what is read for a token
    """

    model: Path
    int8: bool = False
    backend: Backend = "auto"

    def load(self, loader, command):
        """What ``Translator`` or ``Writer`` loads, with 8-bit weights after --int8."""
        check_kind(self.model, command)
        loaded = loader.load(self.model, self.backend)
        return replace(loaded, params=quantize(loaded.params)) if self.int8 else loaded


def load_of_others(path, command):
    """The model, the parameters and the tokenizer of a path for a command."""
    check_kind(path, command)
    return load_merged(path)


def check_kind(path, command):
    """Raise if a path leads to a model of a kind that a command does not take.

    What is no model at all is left to the function that loads it, which says why.
    """
    kind = kind_of_model(path)
    if kind is None or command in kind.commands:
        return
    if not kind.commands:
        advice = f"no command takes it, but {kind.function} in Python"
    elif len(kind.commands) == 1:
        advice = f"npformer {kind.commands[0]} takes it"
    else:
        *others, last = kind.commands
        advice = f"npformer {', '.join(others)} and {last} take it"
    raise UserError(f"{path} holds {kind.what}: {advice}")


def kind_of_model(path):
    """The ``Kind`` of model that lies at a path, by names and settings alone; None if none does."""
    if kind_of_file(path) == MISSING:
        return None
    if is_of_others(path):
        has_settings = (path / "config.json").exists()
        return _kind_in_folder(path) if has_settings else OF_TRANSFORMERS[LanguageModel]
    files = [path / name for name in (RESULT, BEST, LAST) if (path / name).exists()]
    description, arrays = description_in(files[0] if files else path)
    if not isinstance(description, dict):
        return None
    if description.get("name") == "LanguageModel":
        return LANGUAGE
    return TRANSLATION if SUBWORDS.keys() <= arrays else WITHOUT_TEXT


def _kind_in_folder(path):
    """The kind of a model of transformers; None if its family is not known."""
    try:
        config = read_json(path / "config.json")
    except (OSError, ValueError):
        return None
    family = FAMILIES.get(config.get("model_type"))
    return family and OF_TRANSFORMERS[family.model]
