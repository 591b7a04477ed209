"""A model with adapters in files: the model as others write it, and what npformer alone reads."""

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.models.low_rank import LowRank
from npformer.pretrained.families.naming import check_names
from npformer.pretrained.files import Tensors

ADAPTER_PREFIX = "adapters."  # with which the names of their tensors begin
ADAPTED_MODEL = "npformer_adapters"  # the model_type in config.json, which no other library knows
ADAPTER_SETTINGS = "rank", "alpha", "targets", "whole"


def config_of(model: LowRank, family: str) -> dict:
    """The keys of config.json for the adapters of a model of a family."""
    settings = {name: getattr(model, name) for name in ADAPTER_SETTINGS}
    return {"model_type": ADAPTED_MODEL, "base_model_type": family, "adapters": settings}


def config_of_model(config: dict) -> dict:
    """A copy of config.json, as it is for the model itself."""
    of_model = dict(config)
    if config.get("model_type") == ADAPTED_MODEL:
        of_model["model_type"] = of_model.pop("base_model_type")
    return of_model


def tensors_of(model: LowRank, params: dict) -> dict:
    """The tensors of adapters for a file."""
    tree.check_like(params, model.shapes(), dtypes=False)
    tensors = tree.to_arrays(params, ADAPTER_PREFIX.rstrip("."))
    return {name: on_host(x) for name, x in tensors.items()}


def split_adapters(tensors: Tensors) -> tuple[Tensors, Tensors]:
    """The tensors of a file: those of the model, and those of its adapters by our names."""
    of_model = {}
    of_adapters = {}
    for name, x in tensors.items():
        if name.startswith(ADAPTER_PREFIX):
            of_adapters[name.removeprefix(ADAPTER_PREFIX)] = x
        else:
            of_model[name] = x
    return of_model, of_adapters


def adapted(model, params: dict, about: dict) -> LowRank:
    """A model with adapters, as the key of config.json describes them."""
    targets = about["targets"]
    if targets is not None:
        targets = tuple(targets)
    whole = tuple(about["whole"])
    return LowRank(model, params, about["rank"], about["alpha"], targets, whole)


def params_of_adapters(model: LowRank, tensors: Tensors) -> dict:
    """The parameters of adapters, of their tensors."""
    shapes = model.shapes()
    check_names(tree.leaves(shapes), tensors)
    params = tree.view_as(np.empty(tree.count(shapes), model.model.dtype), shapes)
    for path, out in tree.leaves(params):
        tensors[path].into(out)
    return params
