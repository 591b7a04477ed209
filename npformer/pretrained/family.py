"""How a family of models names its parameters and its settings: tables, which are read in both directions."""

import math
import re
from collections.abc import Callable, Container
from typing import Any, NamedTuple

import numpy as np

from npformer import tree
from npformer.arrays import Array, on_host
from npformer.checks import shown
from npformer.models.description import check_size_of
from npformer.models.language_model import LanguageModel
from npformer.operations.options import check_expressed
from npformer.pretrained.keys import CONFIG, Rules, check_keys, listed, read, refused_unless

BLOCK = 2**20  # numbers that are converted at a time
ACTIVATIONS = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
ACTIVATIONS |= {"silu": "silu", "swish": "silu"}  # theirs -> ours
THEIRS = {ours: theirs for theirs, ours in ACTIVATIONS.items() if theirs != "gelu_pytorch_tanh"}
SIZES = {"vocab": "vocab_size", "d_model": "hidden_size", "n_heads": "num_attention_heads"}  # ours -> theirs, of most
SIZES |= {"n_layers": "num_hidden_layers", "d_ff": "intermediate_size", "max_len": "max_position_embeddings"}
# Settings of ours that are checked or written for each family, or that say nothing of a trained model.
OF_ALL = "dtype", "final_norm", "dropout", "inner_dropout"
LIKE_2017 = {"norm_type": "layer_norm", "bias": True, "n_kv_heads": None, "window": None, "rotary": None}


class Stored(NamedTuple):
    """A tensor of a file, which is read when it is used."""

    shape: tuple[int, ...]
    rows: Callable[[Any], Array]  # the floats of some of its rows

    def into(self, out):
        """Write it into an array of the same shape, some rows at a time."""
        step = max(1, BLOCK // max(1, math.prod(self.shape[1:])))
        for begin in range(0, len(out), step):
            part = slice(begin, begin + step)
            out[part] = self.rows(part)

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

    name, architecture = "", ""  # theirs: that of the family in config.json, and the class
    architectures: tuple[str, ...] = ()  # other classes of theirs that have the same parameters
    model: Any  # the class of npformer
    # The path of a layer of ours, and the module of theirs that it is, or the modules whose outputs lie side by side.
    # "{}" is the number of a layer. A path of a parameter gives the name of a tensor.
    names: dict[str, str]
    # Settings of ours, and the key in config.json, also with what it means if it is missing.
    settings: dict[str, str | tuple[str, Any]] = {}
    constants: dict[str, Any] = {}  # settings that all models of the family have
    own_settings: tuple[str, ...] = ()  # which its own methods read and write; one that is nowhere has its default
    supported: dict[str, Any] = {}  # keys of config.json that may have one value only, here
    other_keys: Rules = {}  # what else config.json says in files of the family
    prefix = "model."  # begins the names of all tensors but those of ``heads``, in some files
    heads: tuple[str, ...] = ("lm_head",)
    unneeded = r"$^"  # names of tensors that hold no parameter
    has_linear_transposed = True  # a linear map of theirs is (out, in)

    # -- settings

    def rules(self, config: dict) -> Rules:
        """What each key of config.json means, in a file of this family."""
        keys = " ".join(key for key, *_ in self.keys().values())
        architectures = tuple([name] for name in (self.architecture, *self.architectures))
        of_classes = refused_unless({"architectures": architectures}) if self.architecture else {}
        return CONFIG | of_classes | self.other_keys | refused_unless(self.supported) | read(keys)

    def settings_of(self, config: dict, tensors: dict, instead: Container[str] = ()) -> dict:
        """Our settings, of what config.json says and of the tensors by the names of the table.

        A key may be missing if its setting is one of those that are given ``instead``.
        """
        check_keys(config, self.rules(config), "config.json")
        keys = self.keys()
        missing = sorted(
            key for ours, (key, *default) in keys.items() if key not in config and not default and ours not in instead
        )
        if missing:
            raise ValueError(f"config.json has no {', '.join(missing)}")
        found = self.constants | {ours: config.get(*key) for ours, key in keys.items()}
        if found["activation"] not in ("swiglu", *ACTIVATIONS):
            given = f"{keys['activation'][0]}={shown(found['activation'])}"
            raise ValueError(f"{given}, supported are {', '.join(ACTIVATIONS)}")
        return found | {"activation": ACTIVATIONS.get(found["activation"], found["activation"])}

    def config_of(self, model: Any) -> dict:
        """What config.json says of a model of ours, which has to be of this family."""
        self.check(model)
        if model.has_final_norm != (model.norm == "pre"):
            raise ValueError(f"final_norm={model.final_norm}, expected None")
        given = {name: getattr(model, name) for name in self.settings}
        if "activation" in given:
            if model.activation not in THEIRS:
                raise ValueError(f"activation={shown(model.activation)}, expected {', '.join(THEIRS)}")
            given["activation"] = THEIRS[model.activation]
        meant = {"eps": model.layer_settings.norm_eps, "inner_dropout": model.dropout}  # where a setting is None
        given |= {name: value for name, value in meant.items() if name in given and given[name] is None}
        keys, about = self.keys(), {"model_type": self.name, "architectures": [self.architecture]} | self.supported
        if self.model is LanguageModel and model.pad_id is not None:
            about["pad_id"] = model.pad_id  # that it is always padding, which transformers does not know
        return about | {keys[name][0]: value for name, value in given.items()}

    def check(self, model: Any) -> None:
        """Raise if a model of ours has a setting that no model of the family has."""
        for name, value in self.constants.items():
            if getattr(model, name) != value:
                raise ValueError(f"{name}={shown(getattr(model, name))}, expected {shown(value)}")
        check_expressed(model, {*self.settings, *self.constants, *self.own_settings, *OF_ALL})

    def keys(self) -> dict[str, tuple]:
        """The key in config.json for each setting of ours, also with what it means if it is missing there."""
        return {ours: (key,) if isinstance(key, str) else key for ours, key in self.settings.items()}

    # -- parameters

    def names_of(self, model: Any) -> dict:
        """The table of names, for a model of ours."""
        return self.names

    def arriving(self, tensors: dict, config: dict) -> dict:
        """The tensors of a file by the names of the table."""
        needed = {name: x for name, x in tensors.items() if not re.fullmatch(self.unneeded, name)}
        return {name.removeprefix(self.prefix): x for name, x in needed.items()}

    def leaving(self, tensors: dict, model: Any) -> dict:
        """The tensors of the table by the names of a file."""
        return {name if name.startswith(self.heads) else self.prefix + name: x for name, x in tensors.items()}

    def views(self, model: Any, params: dict) -> dict[str, Array]:
        """The tensors by the names of the table, as views of the parameters of a model of ours."""
        names = self.names_of(model)
        found: dict[str, Array] = {}
        for path, x in tree.leaves(params):
            layer, place = re.search(r"\.(\d+)\.", path), re.sub(r"\.\d+\.", ".{}.", path)
            module, _, leaf = place.rpartition(".")
            if (known := names.get(place, names.get(module))) is None:
                raise ValueError(f"these models have no parameter {path}")
            is_table = leaf not in ("weight", "bias", "gain")
            theirs = known.format(layer and layer[1]).split()
            if is_table or place not in names:
                theirs = [f"{name}.{'bias' if leaf == 'bias' else 'weight'}" for name in theirs]
            widths = [x.shape[-1] // len(theirs)] * len(theirs)
            if len(theirs) == 3:
                widths = model.layer_settings.attention.widths(model.d_model)
            parts = np.split(x, np.cumsum(widths)[:-1], axis=-1)
            is_map = x.ndim == 2 and not is_table and (self.has_linear_transposed or module == "output")
            found |= zip(theirs, [part.T for part in parts] if is_map else parts, strict=True)
        return found

    def read(self, model: Any, tensors: dict[str, Stored], dtype: Any) -> dict:
        """The parameters of a model of ours, if the tensors are those of such a model."""
        check_size_of(model, len(tensors), sum(math.prod(x.shape) for x in tensors.values()))
        if model.tie_embeddings:  # which some files hold twice
            output = f"{self.names_of(model)['output']}.weight"
            tensors = {name: x for name, x in tensors.items() if name != output}
        shapes = model.shapes()
        check_names(self.views(model, shapes), tensors)
        params = tree.view_as(np.empty(tree.count(shapes), dtype), shapes)  # one array has larger pages of memory
        for name, out in self.views(model, params).items():
            tensors[name].into(out)
        return params

    def write(self, model: Any, params: dict) -> dict[str, Array]:
        """The tensors of the table, of a model of ours."""
        return self.views(model, tree.map_leaves(on_host, params))


def check_names(expected: dict, tensors: dict) -> None:
    """Check that tensors have the names and shapes of others."""
    missing, additional = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    both = [(name, tensors[name].shape, x.shape) for name, x in expected.items() if name in tensors]
    wrong = [f"{name} {given} and not {shape}" for name, given, shape in both if given != shape]
    found = {"missing": missing, "additional": additional, "of another shape": wrong}
    parts = [f"{what}: {listed(names)}" for what, names in found.items() if names]
    if parts:
        raise ValueError(f"its tensors are not those that its settings ask for; {'; '.join(parts)}")
