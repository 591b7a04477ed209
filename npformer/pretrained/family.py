"""How a family of models names its parameters and its settings: tables, which are read in both directions."""

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from npformer import tree
from npformer.arrays import Array
from npformer.checks import shown
from npformer.models.description import check_size_of

BLOCK = 2**20  # numbers that are converted at a time
MOST_NAMES = 6  # in an error
ACTIVATIONS = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
ACTIVATIONS |= {"silu": "silu", "swish": "silu"}  # theirs -> ours
THEIRS = {ours: theirs for theirs, ours in ACTIVATIONS.items() if theirs != "gelu_pytorch_tanh"}
LIKE_2017 = {"norm_type": "layer_norm", "bias": True, "n_kv_heads": None, "window": None}


class Stored(NamedTuple):
    """A tensor of a file, which is read when it is used."""

    shape: tuple[int, ...]
    rows: Callable[[slice], Array]  # the floats of some of its rows

    def into(self, out):
        """Write it into an array of the same shape, some rows at a time."""
        step = max(1, BLOCK // max(1, int(np.prod(self.shape[1:]))))
        for begin in range(0, len(out), step):
            part = slice(begin, begin + step)
            out[part] = self.rows(part)


class Entry(NamedTuple):
    """A parameter of ours, and the tensors of theirs that it consists of, side by side."""

    path: str
    shape: tuple[int, ...]
    theirs: list[tuple[str, tuple[int, ...]]]
    is_transposed: bool


class Family:
    """One architecture, as the library transformers writes it: the base class.

    Attributes
    ----------
    name : str
        Theirs of the family, as config.json has it.
    model : type
        The class of npformer.
    names : dict
        The path of a layer of ours, and the module of theirs that it is, or the modules whose outputs lie side by side.
        "{}" is the number of a layer. A path of a parameter gives the name of a tensor.
    settings : dict
        Our setting, and its key in config.json, also with what it means if it is missing there.
    constants : dict
        Settings that all models of the family have.
    architecture : str
        The class of theirs.
    supported : dict
        Keys of config.json that may have one value only, here.
    prefix : str
        Begins the names of all tensors but those of ``heads``, in some files.
    """

    name = ""
    model: Any
    names: dict[str, str]
    settings: dict[str, str | tuple[str, Any]]
    constants: dict[str, Any] = {}
    architecture = ""
    supported: dict[str, Any] = {}
    prefix = "model."
    heads: tuple[str, ...] = ("lm_head",)
    unneeded = r"$^"  # names of tensors that hold no parameter
    has_linear_transposed = True  # a linear map of theirs is (out, in)

    # -- settings

    def settings_of(self, config: dict, tensors: dict) -> dict:
        """Our settings, of what config.json says and of the tensors by the names of the table."""
        for key, value in self.supported.items():
            if (given := config.get(key, value)) != value:
                raise ValueError(f"{key}={shown(given)}, supported is {shown(value)}")
        keys = {ours: (key, ()) if isinstance(key, str) else (key[0], key[1:]) for ours, key in self.settings.items()}
        if missing := sorted(key for key, default in keys.values() if key not in config and not default):
            raise ValueError(f"config.json has no {', '.join(missing)}")
        found = self.constants | {ours: config.get(key, *default) for ours, (key, default) in keys.items()}
        if found["activation"] not in ("swiglu", *ACTIVATIONS):
            given = f"{keys['activation'][0]}={shown(found['activation'])}"
            raise ValueError(f"{given}, supported are {', '.join(ACTIVATIONS)}")
        return found | {"activation": ACTIVATIONS.get(found["activation"], found["activation"])}

    def config_of(self, model: Any) -> dict:
        """What config.json says of a model of ours, which has to be of this family."""
        for name, value in self.constants.items():
            if getattr(model, name) != value:
                raise ValueError(f"{name}={shown(getattr(model, name))}, expected {shown(value)}")
        about = {"model_type": self.name, "architectures": [self.architecture]} | self.supported
        for name, key in self.settings.items():
            value = getattr(model, name)
            about[key if isinstance(key, str) else key[0]] = THEIRS[value] if name == "activation" else value
        return about

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

    def entries(self, model: Any) -> Iterator[Entry]:
        """The parameters of a model of ours, each with the tensors of theirs."""
        names = self.names_of(model)
        for path, x in tree.leaves(model.shapes()):
            layer, place = re.search(r"\.(\d+)\.", path), re.sub(r"\.\d+\.", ".{}.", path)
            module, _, leaf = place.rpartition(".")
            if module not in names and place not in names:
                raise ValueError(f"these models have no parameter {path}")
            has_leaf, is_table = place not in names, leaf not in ("weight", "bias", "gain")
            theirs = names[module if has_leaf else place].format(layer and layer[1]).split()
            is_transposed = x.ndim == 2 and not is_table and (self.has_linear_transposed or module == "output")
            if has_leaf or is_table:
                theirs = [f"{name}.{'bias' if leaf == 'bias' else 'weight'}" for name in theirs]
            widths = [x.shape[-1] // len(theirs)] * len(theirs)
            if len(theirs) == 3:
                widths = model.layer_settings.attention.widths(model.d_model)
            shapes = [(*x.shape[:-1], width)[:: -1 if is_transposed else 1] for width in widths]
            yield Entry(path, x.shape, list(zip(theirs, shapes, strict=True)), is_transposed)

    def read(self, model: Any, tensors: dict[str, Stored], dtype: Any) -> dict:
        """The parameters of a model of ours, if the tensors are those of such a model."""
        check_size_of(model, len(tensors), sum(int(np.prod(x.shape)) for x in tensors.values()))
        entries, params = list(self.entries(model)), {}
        if model.tie_embeddings:  # which some files hold twice
            output = f"{self.names_of(model)['output']}.weight"
            tensors = {name: x for name, x in tensors.items() if name != output}
        check_names({name: shape for entry in entries for name, shape in entry.theirs}, tensors)
        for entry in entries:
            params[entry.path] = out = np.empty(entry.shape, dtype)
            begin = 0
            for name, shape in entry.theirs:
                end = begin + shape[0 if entry.is_transposed else -1]
                part = out[..., begin:end]
                tensors[name].into(part.T if entry.is_transposed else part)
                begin = end
        return tree.from_leaves(params.items())

    def write(self, model: Any, params: dict) -> dict[str, Array]:
        """The tensors of the table, of a model of ours."""
        arrays, tensors = dict(tree.leaves(params)), {}
        for entry in self.entries(model):
            ends = accumulate((shape[0 if entry.is_transposed else -1] for _, shape in entry.theirs), initial=0)
            for (name, _), (begin, end) in zip(entry.theirs, pairwise(ends), strict=True):
                part = np.asarray(arrays[entry.path])[..., begin:end]
                tensors[name] = part.T if entry.is_transposed else part
        return tensors


def check_names(expected: dict, tensors: dict) -> None:
    """Check that tensors have these names and shapes."""
    missing, additional = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    wrong = [
        f"{name} {tensors[name].shape} and not {shape}"
        for name, shape in expected.items()
        if name in tensors and tensors[name].shape != shape
    ]
    found = {"missing": missing, "additional": additional, "of another shape": wrong}
    parts = [f"{what}: {listed(names)}" for what, names in found.items() if names]
    if parts:
        raise ValueError(f"its tensors are not those that its settings ask for; {'; '.join(parts)}")


def listed(names: list[str]) -> str:
    """Some of many names, for an error.

    >>> listed(["a", "b"])
    'a, b'
    """
    more = len(names) - MOST_NAMES
    return ", ".join(f"{name:.80}" for name in names[:MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def given_settings(model: Any, settings: dict) -> None:
    """Check that settings that a user gives are known to a class of models."""
    known = {field.name for field in fields(model)}
    if unknown := sorted(settings.keys() - known):
        raise ValueError(f"{model.__name__} has no settings {listed(unknown)}")
