"""Conversion of models to dicts that JSON can hold, and back."""

import json
from dataclasses import asdict, is_dataclass

import numpy as np

from npformer.models.autoencoder import SequenceAutoencoder
from npformer.models.bytenet import ByteNet
from npformer.models.recurrent import Recurrent
from npformer.models.transformer import Transformer

MODELS = {model.__name__: model for model in (ByteNet, Recurrent, SequenceAutoencoder, Transformer)}


def describe(model):
    """Return the class name and the settings of a model as one dict.

    Examples
    --------
    >>> description = describe(Transformer(11, 11, n_layers=(2, 1)))
    >>> description["name"], description["n_layers"], from_description(description).depths
    ('Transformer', [2, 1], (2, 1))
    """
    if not is_dataclass(model):
        raise TypeError(
            f"the model is a {type(model).__name__}, expected a dataclass: its fields are saved as settings"
        )
    return {"name": type(model).__name__} | as_json(asdict(model))


def as_json(settings):
    """What JSON makes of a dict: lists of tuples, and numbers of NumPy's."""
    return json.loads(json.dumps(settings, default=np.generic.item))


def from_description(description):
    """Build the model from a dict that ``describe`` returned."""
    name, settings = description.get("name"), {k: v for k, v in description.items() if k != "name"}
    if name not in MODELS:
        raise ValueError(
            f"the model is a {name!r}, expected one of {list(MODELS)}; make one of your own class yourself, and "
            "take its parameters with npformer.tree.from_arrays(arrays, 'params')"
        )
    return MODELS[name](**settings)
