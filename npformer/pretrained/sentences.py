"""Folders of the library sentence-transformers: what makes one vector of a text."""

from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from npformer.checks import shown
from npformer.errors import UserError
from npformer.files.strict_json import parse_json
from npformer.models.pooling import VectorMap
from npformer.pretrained.files import (
    TENSORS_FILE,
    Files,
    Tensors,
    json_or_empty,
    read_bytes,
    read_json,
    tensors_in,
    text_in,
)
from npformer.pretrained.keys import MODULE_KEYS, PROMPTS_KEYS, TEXTS_KEYS
from npformer.pretrained.rules import check_keys, check_supported, parse_table, refused_unless

MODULES_FILE = "modules.json"
TEXTS_FILE = "sentence_bert_config.json"
PROMPTS_FILE = "config_sentence_transformers.json"
FILES_OF_MODULE = "config.json", TENSORS_FILE, "pytorch_model.bin"
POOLING_FOLDER = "1_Pooling"  # in folders that have no modules.json
# Theirs -> ours, in the order in which the old format puts several of them side by side.
POOLINGS = parse_table("""
    cls                   first
    max                   max
    mean                  mean
    mean_sqrt_len_tokens  mean_sqrt_length
    weightedmean          weighted_mean
    lasttoken             last
    """)
THEIR_POOLINGS = {ours: theirs for theirs, ours in POOLINGS.items()}
# The old format has a key for each of them, which is true or false.
OLD_KEYS = parse_table("""
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
DENSE_ACTIVATIONS = parse_table("""
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


class Module(NamedTuple):
    """A module that modules.json lists."""

    kind: str  # its class
    folder: str  # the name of its folder; "" if its files lie beside modules.json


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
            raise UserError(f"prompt={shown(name)}, expected one of {list(self.prompts)}")
        own = [self.prompts[each] for each in PROMPTS.get(name, (name,)) if self.prompts.get(each)]
        return own[0] if own else ""


def sentence_texts(files: Files) -> SentenceTexts:
    """How texts become tokens, by the files of a tokenizer."""
    of_texts = json_or_empty(files, TEXTS_FILE)
    check_keys(of_texts, TEXTS_KEYS, TEXTS_FILE)
    of_all = json_or_empty(files, PROMPTS_FILE)
    check_keys(of_all, PROMPTS_KEYS, PROMPTS_FILE)
    longest = of_texts.get("max_seq_length")
    if longest is None:
        longest = json_or_empty(files, "tokenizer_config.json").get("model_max_length")
    is_number = isinstance(longest, (int, float)) and not isinstance(longest, bool)
    if longest is not None and not (is_number and longest >= 1):
        raise UserError(
            f"max_seq_length or model_max_length={shown(longest)}, expected a number of tokens"
        )
    prompts = of_all.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str | None) for text in prompts.values()
    ):
        raise UserError(f"{PROMPTS_FILE}: prompts={shown(prompts)}, expected texts by their names")
    lower_case = bool(of_texts.get("do_lower_case"))
    texts = SentenceTexts(longest, prompts, of_all.get("default_prompt_name"), lower_case)
    texts.prompt()  # raises if there is none of the default name
    return texts


def sentence_modules(folder: Path, files: Files, width) -> tuple[dict, Tensors]:
    """What a folder says of the vector of a text: keys for config.json, and the tensors that belong
    to them.

    ``width`` is that of the model. Without modules, or where config.json says it itself, both are
    empty.
    """
    modules = _modules(folder)
    _check_order(modules)
    if len(modules) < 2:
        return {}, {}
    _, pooling, *after = modules
    about = _settings(pooling, folder, width)
    modes = _modes(about, pooling.folder)
    texts = sentence_texts(files)  # raises also where no tokenizer prepares the texts
    if about.get("include_prompt") is False and any(texts.prompts.values()):
        raise UserError(
            f"{pooling.folder}: include_prompt=False, supported is True where there are prompts"
        )
    maps, tensors = _maps(folder, after, width * len(modes))
    similarity = json_or_empty(files, PROMPTS_FILE).get("similarity_fn_name") or "cosine"
    if similarity != "cosine" and not (maps and maps[-1]["kind"] == "unit"):
        raise UserError(
            f"{PROMPTS_FILE}: similarity_fn_name={shown(similarity)}, "
            "supported is 'cosine'; delete the key if the cosine will do"
        )
    # The output layer, if there is one, is not used: the class is that of the model without one.
    keys = {"architectures": [], "pooling": {"pooling_mode": modes}, "after_pooling": maps}
    return keys, tensors


def _check_order(modules):
    """Raise unless there is a model, and then a pooling, before other modules; or none at all."""
    if modules and modules[0] != Module("Transformer", ""):
        raise UserError(
            f"{MODULES_FILE} begins with {shown(modules[0].kind)} in {shown(modules[0].folder)}, "
            "supported is Transformer in ''"
        )
    if len(modules) > 1 and modules[1].kind != "Pooling":
        raise UserError(
            f"{MODULES_FILE} has {shown(modules[1].kind)} after the Transformer, "
            "supported is Pooling"
        )


def _maps(folder, modules, width):
    """The maps after the pooling, as dicts, and their tensors."""
    maps: list[dict] = []
    tensors: Tensors = {}
    for module in modules:
        made, own = _map(module, folder, width)
        if made is not None:
            tensors |= {f"after_pooling.{len(maps)}.{name}": x for name, x in own.items()}
            maps.append(asdict(made))
            width = made.width or width
    return maps, tensors


def pooling_of(about) -> str | tuple[str, ...]:
    """Our pooling, of what a folder says of it; the mean if it says nothing."""
    modes = [POOLINGS[mode] for mode in _modes(about, "pooling")]
    return modes[0] if len(modes) == 1 else tuple(modes)


def their_pooling(pooling: str | tuple[str, ...]) -> dict:
    """What ``pooling_of`` reads."""
    ours = [pooling] if isinstance(pooling, str) else pooling
    if "none" in ours:
        raise UserError(f"pooling={shown(pooling)}, expected some of {', '.join(THEIR_POOLINGS)}")
    return {"pooling_mode": [THEIR_POOLINGS[each] for each in ours]}


def _modules(folder):
    """The modules of a folder, in order."""
    if not (folder / MODULES_FILE).is_file():
        has_pooling = (folder / POOLING_FOLDER / "config.json").is_file()
        both = [Module("Transformer", ""), Module("Pooling", POOLING_FOLDER)]
        return both if has_pooling else []
    files = {MODULES_FILE: read_bytes(folder / MODULES_FILE)}
    modules = []
    for about in parse_json(text_in(files, MODULES_FILE), MODULES_FILE):
        library, _, kind = about["type"].rpartition(".")
        if not library.startswith("sentence_transformers"):
            setting = f"{MODULES_FILE} has type={shown(about['type'])}"
            raise UserError(f"{setting}, supported are those of sentence_transformers")
        name = about["path"]
        if Path(name).name != name or name == "..":
            setting = f"{MODULES_FILE} has path={shown(name)}"
            raise UserError(f"{setting}, expected the name of a folder in this one")
        modules.append(Module(kind, name))
    return modules


def files_of_vector(folder: Path) -> list[str]:
    """What says in a folder how a text becomes one vector: files there and in folders of modules.

    The name of each of these folders comes after those of the files in it.
    """
    try:
        modules = _modules(folder)
    except (AttributeError, KeyError, TypeError, ValueError):
        modules = []  # nothing reads such a list
    names = [MODULES_FILE, TEXTS_FILE, PROMPTS_FILE]
    for kind, name in modules:
        if kind not in MODULE_KEYS:
            continue
        if not (folder / name).is_symlink():  # else the link goes, and what it leads to stays
            names += [f"{name}/{file}" for file in FILES_OF_MODULE]
        names.append(name)
    return [name for name in names if (folder / name).exists()]


def _modes(about, where):
    """The modes of a pooling, in both formats; ``where`` is for errors."""
    modes = about.get("pooling_mode")
    if modes is None:
        modes = [mode for key, mode in OLD_KEYS.items() if about.get(key)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    for mode in modes:
        check_supported(f"{where}: pooling_mode", mode, POOLINGS)
    return modes


def _map(module, folder, width):
    """The map that a module is, or None if it changes nothing, and its tensors by our names."""
    after_pooling = [kind for kind in MODULE_KEYS if kind != "Pooling"]
    check_supported(f"{MODULES_FILE}: after Pooling, type", module.kind, after_pooling)
    about = _settings(module, folder, width)
    if module.kind == "Dropout":  # which is one of trainings alone
        return None, {}
    if module.kind == "Normalize":
        return VectorMap("unit"), {}
    if module.kind == "LayerNorm":
        return VectorMap("layer_norm"), _tensors(folder / module.folder, "norm.")
    name = about.get("activation_function", "torch.nn.modules.activation.Tanh")
    check_supported(f"{module.folder}: activation_function", name, DENSE_ACTIVATIONS)
    activation = DENSE_ACTIVATIONS[name]
    made = VectorMap("linear", about["out_features"], about.get("bias", True), activation)
    return made, _tensors(folder / module.folder, "linear.")


def _tensors(folder, prefix):
    if not (folder / TENSORS_FILE).is_file():
        raise UserError(
            f"{folder.name} has no {TENSORS_FILE}; "
            "weights in other files, such as pytorch_model.bin, are not read"
        )
    return {name.removeprefix(prefix): x for name, x in tensors_in(folder / TENSORS_FILE).items()}


def _settings(module, folder, width):
    """The settings of a module that reads this width, {} if its folder has none."""
    path = folder / module.folder / "config.json"
    about = read_json(path) if path.is_file() else {}
    has_width = refused_unless(dict.fromkeys(WIDTHS.get(module.kind, ()), width))
    check_keys(about, MODULE_KEYS[module.kind] | has_width, f"{module.folder}/config.json")
    return about
