"""How a family of models names its parameters and its settings: tables, read in both directions."""

import math
import re
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import numpy as np

from npformer import tree
from npformer.arrays import Array, on_host
from npformer.checks import shown
from npformer.models.description import check_size_of
from npformer.models.encoder import Encoder
from npformer.models.language_model import LanguageModel
from npformer.operations.options import check_expressed
from npformer.pretrained.keys import (
    CONFIG,
    Rules,
    check_complete,
    check_keys,
    check_supported,
    listed,
    read,
    refused_unless,
    table,
)

BLOCK = 2**20  # numbers that are converted at a time
# Names of theirs, and those of ours.
ACTIVATIONS = table("""
    gelu               gelu_erf
    gelu_new           gelu
    gelu_pytorch_tanh  gelu
    relu               relu
    silu               silu
    swish              silu
    """)
THEIRS = table("""
    gelu_erf  gelu
    gelu      gelu_new
    relu      relu
    silu      swish
    """)
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
OF_ALL = "dtype", "final_norm", "dropout", "inner_dropout"
LIKE_2017 = {
    "norm_type": "layer_norm",
    "bias": True,
    "n_kv_heads": None,
    "window": None,
    "rotary": None,
}


class Stored(NamedTuple):
    """A tensor of a file, which is read when it is used."""

    shape: tuple[int, ...]
    rows: Callable[[Any], Array]  # the floats of some of its rows

    @classmethod
    def of(cls, array):
        """An array that is in memory."""
        return cls(array.shape, array.__getitem__)

    def parts(self):
        """Slices of some rows, one after another."""
        step = max(1, BLOCK // max(1, math.prod(self.shape[1:])))
        for begin in range(0, self.shape[0], step):
            yield slice(begin, begin + step)

    def into(self, out):
        """Write it into an array of the same shape, some rows at a time."""
        for part in self.parts():
            out[part] = self.rows(part)

    def equals(self, other):
        """Whether another tensor has the same shape and numbers."""
        if other.shape != self.shape:
            return False
        return all(np.array_equal(self.rows(part), other.rows(part)) for part in self.parts())

    def numbers(self):
        """The numbers of its rows, for ``take``."""
        if 0 in self.shape:  # of which a file of any size may have any number
            raise ValueError(f"a tensor has the shape {self.shape}, expected no axis of length 0")
        return np.arange(self.shape[0])

    def take(self, numbers):
        """The rows with these numbers, as a tensor."""
        return Stored((len(numbers), *self.shape[1:]), lambda rows: self.rows(numbers[rows]))


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
    own_settings: Sequence[str] = ()  # which ``read_own`` and ``own_keys`` convert
    supported: dict[str, Any] = {}  # keys of config.json that may have one value only, here
    other_keys: Rules = {}  # what else config.json says in files of the family
    prefix = "model."  # begins the names of all tensors but those of ``heads``, in some files
    heads: tuple[str, ...] = ("lm_head",)
    unneeded = r"$^"  # names of tensors that hold no parameter
    has_linear_transposed = True  # a linear map of theirs is (out, in)

    # -- settings

    def rules(self, config: dict) -> Rules:
        """What each key of config.json means, in a file of this family."""
        rules = CONFIG | self.other_keys | refused_unless(self.supported)
        rules |= read(" ".join(self.settings.values()))
        if self.architectures:
            rules |= refused_unless({"architectures": tuple([name] for name in self.architectures)})
        return rules | self.own_rules(self.defaults | config)

    def own_rules(self, config: dict) -> Rules:
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
        return self.constants | settings | self.read_own(config, tensors)

    def read_own(self, config: dict, tensors: dict) -> dict:
        """Settings of ours that are no single keys of config.json."""
        return {}

    def config_of(self, model: Any) -> dict:
        """What config.json says of a model of ours, which has to be of this family."""
        self.check(model)
        if model.has_final_norm != (model.norm == "pre"):
            raise ValueError(f"final_norm={model.final_norm}, expected None")
        config = {"model_type": self.name, "architectures": [*self.architectures[:1]]}
        config |= self.supported
        if self.model is LanguageModel and model.pad_id is not None:
            config["pad_id"] = model.pad_id  # always padding, which transformers does not know
        for ours, key in self.settings.items():
            config[key] = value_for_others(model, ours)
        return config | self.own_keys(model)

    def own_keys(self, model: Any) -> dict:
        """The keys of config.json that ``read_own`` reads."""
        return {}

    def check(self, model: Any) -> None:
        """Raise if a model of ours has a setting that no model of the family has."""
        for name, value in self.constants.items():
            if getattr(model, name) != value:
                setting = f"{name}={shown(getattr(model, name))}"
                raise ValueError(f"{setting}, expected {shown(value)}")
        check_expressed(model, {*self.settings, *self.constants, *self.own_settings, *OF_ALL})

    # -- parameters

    def names_of(self, model: Any) -> dict:
        """The table of names, for a model of ours."""
        return self.names

    def arriving(self, tensors: dict, config: dict) -> dict:
        """The tensors of a file by the names of the table."""
        arriving = {}
        for name, x in tensors.items():
            name = name.removeprefix(self.prefix)
            if not re.fullmatch(self.unneeded, name):
                arriving[name] = x
        return arriving

    def leaving(self, tensors: dict, model: Any) -> dict:
        """The tensors of the table by the names of a file."""
        leaving = {}
        for name, x in tensors.items():
            leaving[name if name.startswith(self.heads) else self.prefix + name] = x
        return leaving

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

    def read(self, model: Any, tensors: dict[str, Stored], dtype: Any) -> dict:
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

    def advice(self, model: Any, tensors: dict[str, Stored]) -> str:
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


def value_for_others(model: Any, name: str) -> Any:
    """A setting of ours as others write it: they have no None that stands for another number."""
    value = getattr(model, name)
    if name == "activation":
        if value not in THEIRS:
            raise ValueError(f"activation={shown(value)}, expected {', '.join(THEIRS)}")
        return THEIRS[value]
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
