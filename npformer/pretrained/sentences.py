"""Folders of the library sentence-transformers: what makes one vector of a text."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from npformer.checks import shown
from npformer.files.strict_json import parse_json
from npformer.models.pooling import VectorMap
from npformer.pretrained.files import (
    TENSORS,
    Files,
    Tensors,
    json_or_empty,
    read_bytes,
    read_json,
    tensors_in,
    text_in,
)
from npformer.pretrained.keys import (
    MODULES,
    SENTENCES,
    TEXTS,
    check_keys,
    check_supported,
    refused_unless,
    table,
)

LIST = "modules.json"
OF_TEXTS, OF_ALL = "sentence_bert_config.json", "config_sentence_transformers.json"
POOLING = "1_Pooling"  # the folder of the pooling, in folders that have no modules.json
# Theirs -> ours, in the order in which the old format puts several of them side by side.
POOLINGS = table("""
    cls                   first
    max                   max
    mean                  mean
    mean_sqrt_len_tokens  mean_sqrt_length
    weightedmean          weighted_mean
    lasttoken             last
    """)
THEIRS = {ours: theirs for theirs, ours in POOLINGS.items()}
# The old format has a key for each of them, which is true or false.
OLD_KEYS = table("""
    pooling_mode_cls_token             cls
    pooling_mode_max_tokens            max
    pooling_mode_mean_tokens           mean
    pooling_mode_mean_sqrt_len_tokens  mean_sqrt_len_tokens
    pooling_mode_weightedmean_tokens   weightedmean
    pooling_mode_lasttoken             lasttoken
    """)
# The keys that have the width of what a module reads.
WIDTHS = {
    "Pooling": ("embedding_dimension", "word_embedding_dimension"),  # in both formats
    "Dense": ("in_features",),
    "LayerNorm": ("dimension",),
}
ACTIVATIONS = table("""
    torch.nn.modules.linear.Identity  identity
    torch.nn.modules.activation.Tanh  tanh
    torch.nn.modules.activation.ReLU  relu
    torch.nn.modules.activation.GELU  gelu_erf
    torch.nn.modules.activation.SiLU  silu
    """)
PROMPTS = {
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}  # by their names in folders


class SentenceTexts(NamedTuple):
    """How a text becomes the tokens of which a model makes one vector."""

    longest: float | None = None  # tokens of a text
    prompts: dict[str, str] = {}
    default_prompt: str | None = None  # its name
    lower_case: bool = False  # whether a text becomes lower case before the tokenizer reads it

    def prompt(self, name: str | None = None) -> str:
        """What is put before a text: the prompt of this name, or the default one.

        "query" and "document" are texts to search with and to search in; a folder need not have
        prompts for them.
        """
        name = self.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in (*PROMPTS, *self.prompts):
            raise ValueError(f"prompt={shown(name)}, expected one of {list(self.prompts)}")
        own = [self.prompts[each] for each in PROMPTS.get(name, (name,)) if self.prompts.get(each)]
        return own[0] if own else ""


def sentence_texts(files: Files) -> SentenceTexts:
    """How texts become tokens, by the files of a tokenizer."""
    of_texts = json_or_empty(files, OF_TEXTS)
    check_keys(of_texts, TEXTS, OF_TEXTS)
    of_all = json_or_empty(files, OF_ALL)
    check_keys(of_all, SENTENCES, OF_ALL)
    longest = of_texts.get("max_seq_length")
    if longest is None:
        longest = json_or_empty(files, "tokenizer_config.json").get("model_max_length")
    is_number = isinstance(longest, (int, float)) and not isinstance(longest, bool)
    if longest is not None and not (is_number and longest >= 1):
        setting = f"max_seq_length or model_max_length={shown(longest)}"
        raise ValueError(f"{setting}, expected a number of tokens")
    prompts = of_all.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str | None) for text in prompts.values()
    ):
        raise ValueError(f"{OF_ALL}: prompts={shown(prompts)}, expected texts by their names")
    lower_case = bool(of_texts.get("do_lower_case"))
    texts = SentenceTexts(longest, prompts, of_all.get("default_prompt_name"), lower_case)
    texts.prompt()  # raises if there is none of the default name
    return texts


def sentence_modules(folder: Path, files: Files, width: Any) -> tuple[dict, Tensors]:
    """What a folder says of the vector of a text: keys for config.json, and the tensors that belong
    to them.

    ``width`` is that of the model. Without modules, or where config.json says it itself, both are
    empty.
    """
    modules = _modules(folder)
    _check_order(modules)
    if len(modules) < 2:
        return {}, {}
    place, after = modules[1][1], modules[2:]
    about = _settings("Pooling", folder / place, width)
    modes = _modes(about, place)
    texts = sentence_texts(files)  # raises also where no tokenizer prepares the texts
    if about.get("include_prompt") is False and any(texts.prompts.values()):
        raise ValueError(
            f"{place}: include_prompt=False, supported is True where there are prompts"
        )
    maps, tensors = _maps(folder, after, width * len(modes))
    similarity = json_or_empty(files, OF_ALL).get("similarity_fn_name") or "cosine"
    if similarity != "cosine" and not (maps and maps[-1]["kind"] == "unit"):
        setting = f"{OF_ALL}: similarity_fn_name={shown(similarity)}"
        raise ValueError(f"{setting}, supported is 'cosine'; delete the key if the cosine will do")
    # The output layer, if there is one, is not used: the class is that of the model without one.
    keys = {"architectures": [], "pooling": {"pooling_mode": modes}, "after_pooling": maps}
    return keys, tensors


def _check_order(modules):
    """Raise unless there is a model, and then a pooling, before other modules; or none at all."""
    if modules and modules[0] != ("Transformer", ""):
        kind, place = modules[0]
        raise ValueError(
            f"{LIST} begins with {shown(kind)} in {shown(place)}, supported is Transformer in ''"
        )
    if len(modules) > 1 and modules[1][0] != "Pooling":
        after = f"{shown(modules[1][0])} after the Transformer"
        raise ValueError(f"{LIST} has {after}, supported is Pooling")


def _maps(folder, modules, width):
    """The maps after the pooling, as dicts, and their tensors."""
    maps: list[dict] = []
    tensors: Tensors = {}
    for kind, place in modules:
        made, own = _map(kind, folder / place, width)
        if made is not None:
            tensors |= {f"after_pooling.{len(maps)}.{name}": x for name, x in own.items()}
            maps.append(asdict(made))
            width = made.width or width
    return maps, tensors


def pooling_of(about: Any) -> str | tuple[str, ...]:
    """Our pooling, of what a folder says of it; the mean if it says nothing."""
    modes = [POOLINGS[mode] for mode in _modes(about, "pooling")]
    return modes[0] if len(modes) == 1 else tuple(modes)


def their_pooling(pooling: str | tuple[str, ...]) -> dict:
    """What ``pooling_of`` reads."""
    ours = [pooling] if isinstance(pooling, str) else pooling
    if "none" in ours:
        raise ValueError(f"pooling={shown(pooling)}, expected some of {', '.join(THEIRS)}")
    return {"pooling_mode": [THEIRS[each] for each in ours]}


def _modules(folder):
    """(class, name of its folder) of each module, in order."""
    if not (folder / LIST).is_file():
        has_pooling = (folder / POOLING / "config.json").is_file()
        return [("Transformer", ""), ("Pooling", POOLING)] if has_pooling else []
    modules = []
    for about in parse_json(text_in({LIST: read_bytes(folder / LIST)}, LIST), LIST):
        library, _, kind = about["type"].rpartition(".")
        place = about["path"]
        if not library.startswith("sentence_transformers"):
            setting = f"type={shown(about['type'])}"
            raise ValueError(f"{LIST} has {setting}, supported are those of sentence_transformers")
        if Path(place).name != place or place == "..":
            raise ValueError(
                f"{LIST} has path={shown(place)}, expected the name of a folder in this one"
            )
        modules.append((kind, place))
    return modules


def files_of_vector(folder: Path) -> list[str]:
    """What says in a folder how a text becomes one vector: files there and in folders of modules.

    The name of each of these folders comes after those of the files in it.
    """
    try:
        places = [place for kind, place in _modules(folder) if kind in MODULES]
    except (AttributeError, KeyError, TypeError, ValueError):
        places = []  # nothing reads such a list
    names = [LIST, OF_TEXTS, OF_ALL]
    for place in places:
        if not (folder / place).is_symlink():  # else the link goes, and what it leads to stays
            names += [f"{place}/{name}" for name in ("config.json", TENSORS, "pytorch_model.bin")]
        names.append(place)
    return [name for name in names if (folder / name).exists()]


def _modes(about, place):
    """The modes of a pooling, in both formats."""
    modes = about.get("pooling_mode")
    if modes is None:
        modes = [mode for key, mode in OLD_KEYS.items() if about.get(key)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    for mode in modes:
        check_supported(f"{place}: pooling_mode", mode, POOLINGS)
    return modes


def _map(kind, folder, width):
    """The map that a module is, or None if it changes nothing, and its tensors by our names."""
    after_pooling = [each for each in MODULES if each != "Pooling"]
    check_supported(f"{LIST}: after Pooling, type", kind, after_pooling)
    about = _settings(kind, folder, width)
    if kind == "Dropout":  # which is one of trainings alone
        return None, {}
    if kind == "Normalize":
        return VectorMap("unit"), {}
    if kind == "LayerNorm":
        return VectorMap("layer_norm"), _tensors(folder, "norm.")
    name = about.get("activation_function", "torch.nn.modules.activation.Tanh")
    check_supported(f"{folder.name}: activation_function", name, ACTIVATIONS)
    made = VectorMap("linear", about["out_features"], about.get("bias", True), ACTIVATIONS[name])
    return made, _tensors(folder, "linear.")


def _tensors(folder, prefix):
    if not (folder / TENSORS).is_file():
        others = "weights in other files, such as pytorch_model.bin, are not read"
        raise ValueError(f"{folder.name} has no {TENSORS}; {others}")
    return {name.removeprefix(prefix): x for name, x in tensors_in(folder / TENSORS).items()}


def _settings(kind, folder, width):
    """The settings in the folder of a module that reads this width, {} if they are not there."""
    path = folder / "config.json"
    about = read_json(path) if path.is_file() else {}
    has_width = refused_unless(dict.fromkeys(WIDTHS.get(kind, ()), width))
    check_keys(about, MODULES[kind] | has_width, f"{folder.name}/config.json")
    return about
