"""How a family of models names its parameters and its settings: tables, read in both directions."""

import math
import re
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from npformer import tree
from npformer.arrays import Array, on_host
from npformer.checks import shown, warn
from npformer.models.description import check_size_of
from npformer.models.encoder import Encoder
from npformer.models.language_model import LanguageModel
from npformer.operations.options import check_expressed
from npformer.pretrained.files import Tensors, ends_in
from npformer.pretrained.keys import (
    CONFIG_KEYS,
    Rules,
    check_complete,
    check_keys,
    check_supported,
    listed,
    parse_table,
    read,
    refused_unless,
)

# Names of theirs, and those of ours. Of several with one meaning, the last is written.
ACTIVATIONS = parse_table("""
    gelu               gelu_erf
    gelu_pytorch_tanh  gelu
    gelu_new           gelu
    relu               relu
    silu               silu
    swish              silu
    """)
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
# Sizes of most families: settings of ours, and their keys in config.json.
SIZES = """
    vocab     vocab_size
    d_model   hidden_size
    n_heads   num_attention_heads
    n_layers  num_hidden_layers
    d_ff      intermediate_size
    max_len   max_position_embeddings
    """
# Settings of ours that are checked or written for each family, or that say nothing of a model that
# has been trained.
SHARED_SETTINGS = {"dtype", "final_norm", "dropout", "inner_dropout"}
LIKE_2017 = {
    "norm_type": "layer_norm",
    "bias": True,
    "n_kv_heads": None,
    "window": None,
    "rotary": None,
}


class Family:
    """One architecture, as the library transformers writes it: the base class."""

    name = ""  # of the family in config.json
    # Classes of theirs that have the same parameters, the first of which ``save`` names.
    architectures: tuple[str, ...] = ()
    model: Any  # the class of npformer
    # The path of a layer of ours, and the module of theirs that it is, or the modules whose outputs
    # lie side by side. "{}" is the number of a layer. A path of a parameter gives the name of a
    # tensor.
    names: dict[str, str]
    settings: dict[str, str] = {}  # ours, and their keys in config.json
    defaults: dict[str, Any] = {}  # what these keys mean where they are missing
    constants: dict[str, Any] = {}  # settings that all models of the family have
    # Settings of ours that ``extra_settings_from`` and ``extra_keys_for`` convert.
    extra_settings: Sequence[str] = ()
    supported: dict[str, Any] = {}  # keys of config.json that may have one value only, here
    other_keys: Rules = {}  # what else config.json says in files of the family
    # Of these keys of config.json, which generation_config.json decides if it is there.
    of_generation: tuple[str, ...] = ()
    prefix = "model."  # begins the names of all tensors but those of ``heads``, in some files
    heads: tuple[str, ...] = ("lm_head",)
    unneeded = r"$^"  # names of tensors that hold no parameter
    has_linear_transposed = True  # a linear map of theirs is (out, in)

    # -- settings

    def rules(self, config: dict) -> Rules:
        """What each key of config.json means, in a file of this family."""
        rules = CONFIG_KEYS | self.other_keys | refused_unless(self.supported)
        rules |= read(" ".join(self.settings.values()))
        if self.architectures:
            rules |= refused_unless({"architectures": tuple([name] for name in self.architectures)})
        return rules | self.extra_rules(self.defaults | config)

    def extra_rules(self, config: dict) -> Rules:
        """What of this depends on other keys."""
        return {}

    def settings_of(self, config: dict, tensors: dict, instead: Container[str] = ()) -> dict:
        """Our settings, of what config.json says and of the tensors by the names of the table.

        A key may be missing if its setting is one of those that are given ``instead``.
        """
        check_keys(config, self.rules(config), "config.json")
        config = self.defaults | config
        needed = [key for ours, key in self.settings.items() if ours not in instead]
        check_complete(config, needed, "config.json")
        settings: dict[str, Any] = {}
        for ours, key in self.settings.items():
            settings[ours] = config.get(key)
        if "activation" in settings:
            theirs = settings["activation"]
            check_supported(self.settings["activation"], theirs, ACTIVATIONS)
            settings["activation"] = ACTIVATIONS[theirs]
        return self.constants | settings | self.extra_settings_from(config, tensors)

    def extra_settings_from(self, config: dict, tensors: dict) -> dict:
        """Settings of ours that are no single keys of config.json."""
        return {}

    def config_of(self, model: Any) -> dict:
        """What config.json says of a model of ours, which has to be of this family."""
        self.check(model)
        if model.has_final_norm != (model.norm == "pre"):
            raise ValueError(f"final_norm={model.final_norm}, expected None")
        config = {"model_type": self.name, "architectures": [*self.architectures[:1]]}
        config |= self.supported
        for ours, key in self.settings.items():
            config[key] = value_for_others(model, ours)
        return config | self.extra_keys_for(model)

    def extra_keys_for(self, model: Any) -> dict:
        """The keys of config.json that ``extra_settings_from`` reads."""
        return {}

    def padding(self, pad_id: int | None, config: dict, tokenizer: Any) -> int | None:
        """The id that is padding wherever it stands, where config.json says ``pad_id``."""
        return pad_id

    def check(self, model: Any) -> None:
        """Raise if a model of ours has a setting that no model of the family has."""
        for name, value in self.constants.items():
            if getattr(model, name) != value:
                setting = f"{name}={shown(getattr(model, name))}"
                raise ValueError(f"{setting}, expected {shown(value)}")
        own = {*self.settings, *self.constants, *self.extra_settings}
        check_expressed(model, own | SHARED_SETTINGS)

    def begin_id(self, config: dict) -> int | None:
        """The id of the begin token that no file of a tokenizer has, or None."""
        return None

    # -- parameters

    def names_of(self, model: Any) -> dict:
        """The table of names, for a model of ours."""
        return self.names

    def from_file(self, tensors: dict, config: dict) -> dict:
        """The tensors of a file by the names of the table."""
        renamed = {}
        for name, x in tensors.items():
            name = name.removeprefix(self.prefix)
            if not re.fullmatch(self.unneeded, name):
                renamed[name] = x
        return renamed

    def for_file(self, tensors: dict, model: Any) -> dict:
        """The tensors of the table by the names of a file."""
        renamed = {}
        for name, x in tensors.items():
            renamed[name if name.startswith(self.heads) else self.prefix + name] = x
        return renamed

    def views(self, model: Any, params: dict) -> dict[str, Array]:
        """The tensors by the names of the table, as views of the parameters of a model of ours."""
        names = self.names_of(model)
        tensors: dict[str, Array] = {}
        for path, x in tree.leaves(params):
            theirs = tensors_of_path(names, path)
            widths = [x.shape[-1] // len(theirs)] * len(theirs)
            if len(theirs) == 3:  # there may be fewer heads of keys and values than of queries
                widths = model.layer_settings.attention.widths(model.d_model)
            parts = np.split(x, np.cumsum(widths)[:-1], axis=-1)
            is_transposed = self.has_linear_transposed or path.startswith("output")
            if path.endswith(".weight") and is_transposed:
                parts = [part.T for part in parts]
            tensors |= zip(theirs, parts, strict=True)
        return tensors

    def read(self, model: Any, tensors: Tensors, dtype: Any) -> dict:
        """The parameters of a model of ours, if the tensors are those of such a model."""
        n_numbers = sum(math.prod(x.shape) for x in tensors.values())
        check_size_of(model, len(tensors), n_numbers)
        names = self.names_of(model)
        embedding = f"{names.get('embedding')}.weight"
        output = f"{names.get('output')}.weight"
        again = None  # the embedding by the name of the output, which files may have, too, or alone
        if model.tie_embeddings and output in tensors:
            tensors = dict(tensors)
            again = tensors.pop(output)
            tensors.setdefault(embedding, again)
        shapes = model.shapes()
        check_names(self.views(model, shapes), tensors, self.advice(model, tensors))
        if again is not None and not again.equals(tensors[embedding]):
            both = f"its settings say that {output} is {embedding}, and their numbers differ"
            raise ValueError(f"{both}: write tie_word_embeddings=false in config.json to have both")
        # One array has larger pages of memory than many.
        params = tree.view_as(np.empty(tree.count(shapes), dtype), shapes)
        for name, out in self.views(model, params).items():
            tensors[name].into(out)
        return params

    def advice(self, model: Any, tensors: Tensors) -> str:
        """Which settings to give to ``load`` where those of a file are not those of its tensors."""
        if not isinstance(model, (LanguageModel, Encoder)):
            return ""
        names = self.names_of(model)
        table = f"{names['embedding']}.weight"
        n_rows = tensors[table].shape[:1] if table in tensors else ()
        if n_rows and n_rows != (model.vocab,):
            return f"; load(…, vocab={n_rows[0]}) reads all rows of its embedding"
        predicts_words = getattr(model, "task", "words") == "words"
        has_output = model.tie_embeddings or f"{names.get('output')}.weight" in tensors
        if predicts_words and not has_output:
            what = "its output, if its settings should say tie_word_embeddings=true"
            return f"; load(…, tie_embeddings=True) takes the embedding for {what}"
        return ""

    def write(self, model: Any, params: dict) -> dict[str, Array]:
        """The tensors of the table, of a model of ours."""
        return self.views(model, tree.map_leaves(on_host, params))


class LanguageFamily(Family):
    """The families of language models."""

    model = LanguageModel

    def config_of(self, model):
        """Also what is padding wherever it stands, which transformers does not know."""
        config = super().config_of(model)
        return config if model.pad_id is None else config | {"pad_id": model.pad_id}

    def padding(self, pad_id, config, tokenizer):
        """The padding, or None where it may be a token of a text.

        A language model of transformers reads the id ``pad_token_id`` like any other; a mask says
        what is padding. So here it is padding only if texts do not have it, as the tokenizer says.
        """
        if pad_id is None or config.get("pad_id") == pad_id:  # npformer has written the file
            return pad_id
        ends = ends_in(config)
        if tokenizer is not None:
            ends = [*tokenizer.eos_ids, tokenizer.bos_id]
        if pad_id in ends:
            return None  # it ends turns in the middle of a text: there it is read
        why = "it has no tokenizer that says so"
        if tokenizer is not None:
            if tokenizer.pad_id == pad_id and tokenizer.unk_id != pad_id:
                return pad_id
            why = "texts have this token, too"
        setting = f"pad_token_id={shown(pad_id)} is not hidden as padding"
        warn(f"{setting}, as {why}; load(…, pad_id={shown(pad_id)}) hides it")
        return None


def value_for_others(model: Any, name: str) -> Any:
    """A setting of ours as others write it: they have no None that stands for another number."""
    value = getattr(model, name)
    if name == "activation":
        if value not in THEIR_ACTIVATIONS:
            raise ValueError(f"activation={shown(value)}, expected {', '.join(THEIR_ACTIVATIONS)}")
        return THEIR_ACTIVATIONS[value]
    if value is None and name == "eps":
        return model.layer_settings.norm_eps
    if value is None and name == "inner_dropout":
        return model.dropout
    return value


def tensors_of_path(names: dict[str, str], path: str) -> list[str]:
    """The names of theirs for a parameter of ours, by the table of a family."""
    layer = re.search(r"\.(\d+)\.", path)
    place = re.sub(r"\.\d+\.", ".{}.", path)
    module, _, leaf = place.rpartition(".")
    theirs = names.get(place, names.get(module))
    if theirs is None:
        raise ValueError(f"these models have no parameter {path}")
    tensors = theirs.replace("{}", layer[1] if layer else "").split()
    is_table = leaf not in ("weight", "bias", "gain")
    if place in names and not is_table:
        return tensors
    their_leaf = "bias" if leaf == "bias" else "weight"
    return [f"{name}.{their_leaf}" for name in tensors]


def check_names(expected: dict, tensors: dict, advice: str = "") -> None:
    """Check that tensors have the names and shapes of others."""
    wrong = []
    for name, x in expected.items():
        if name in tensors and tensors[name].shape != x.shape:
            wrong.append(f"{name} {tensors[name].shape} and not {x.shape}")
    differences = {
        "missing": sorted(expected.keys() - tensors.keys()),
        "additional": sorted(tensors.keys() - expected.keys()),
        "of another shape": wrong,
    }
    parts = [f"{what}: {listed(names)}" for what, names in differences.items() if names]
    if parts:
        reasons = "; ".join(parts) + advice
        raise ValueError(f"its tensors are not those that its settings ask for; {reasons}")
