"""Conversion of models to dicts that JSON can hold, and back."""

import json
from dataclasses import asdict

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
    return {"name": type(model).__name__} | json.loads(json.dumps(asdict(model)))


def from_description(description):
    """Build the model from a dict that ``describe`` returned."""
    name, settings = description.get("name"), {k: v for k, v in description.items() if k != "name"}
    if name not in MODELS:
        raise ValueError(f"the model is a {name!r}, expected one of {list(MODELS)}")
    return MODELS[name](**settings)
