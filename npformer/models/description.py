"""Conversion of models to dicts that JSON can hold, and back."""

import json
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import numpy as np

from npformer import tree
from npformer.errors import UserError
from npformer.models.autoencoder import SequenceAutoencoder
from npformer.models.bytenet import ByteNet
from npformer.models.encoder import Encoder
from npformer.models.language_model import LanguageModel
from npformer.models.recurrent import Recurrent
from npformer.models.transformer import Transformer

MOST_POSITIONS = 2**26  # numbers of a positional encoding, if the parameters are fewer
MODELS = {
    model.__name__: model
    for model in (ByteNet, Encoder, LanguageModel, Recurrent, SequenceAutoencoder, Transformer)
}


def describe(model: Any) -> dict[str, Any]:
    """Return the class name and the settings of a model as one dict.

    >>> description = describe(Transformer(11, 11, n_layers=(2, 1)))
    >>> description["name"], description["n_layers"], from_description(description).depths
    ('Transformer', [2, 1], (2, 1))
    """
    if not is_dataclass(model) or isinstance(model, type):
        expected = "a dataclass: its fields are saved as settings"
        raise TypeError(f"the model is a {type(model).__name__}, expected {expected}")
    return {"name": type(model).__name__} | as_json(asdict(model))


def as_json(settings):
    """What JSON makes of a dict: lists of tuples, dicts of settings, and numbers of NumPy's."""
    return json.loads(json.dumps(settings, default=_plain))


def _plain(value):
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if not isinstance(value, np.generic):
        expected = "what JSON can hold: numbers, texts, lists"
        raise TypeError(f"{value!r:.60} is a {type(value).__name__}, expected {expected}")
    return value.item()


def from_description(description: dict[str, Any], arrays: dict[str, Any] | None = None) -> Any:
    """Build the model from a dict that ``describe`` returned.

    Parameters
    ----------
    description : dict
    arrays : dict of arrays, optional
        The arrays of the checkpoint from which the description comes: see ``check_params``.

    Raises
    ------
    UserError, TypeError
        If it describes none of npformer's models, has settings that the model does not have, or
        wrong ones, or if ``arrays`` do not hold its parameters.
    """
    if not isinstance(description, dict) or not isinstance(description.get("name"), str):
        raise UserError(
            f"the model is described by {description!r:.60}, expected a dict that describe returned"
        )
    name, settings = description["name"], {k: v for k, v in description.items() if k != "name"}
    if name not in MODELS:
        advice = "make one of your own class yourself, and take its parameters with "
        advice += "npformer.tree.from_arrays(arrays, 'params')"
        raise UserError(f"the model is a {name!r:.60}, expected one of {list(MODELS)}; {advice}")
    names = [field.name for field in fields(MODELS[name])]
    if others := sorted(settings.keys() - set(names)):
        expected = f"try a newer npformer, or leave them out; expected some of {names}"
        raise UserError(f"the {name} has settings {others!s:.200}, {expected}")
    model = MODELS[name](**settings)
    if arrays is not None:
        check_params(model, arrays)
    return model


def check_params(model, arrays):
    """Check that arrays of a checkpoint are a model's parameters, and that its positions fit.

    This allocates nothing, so that a checkpoint that describes a model of terabytes, or of 10**12
    layers, is refused at once. The parameters are the arrays whose names begin with "params.".

    >>> model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> arrays = tree.to_arrays(model.init(0), "params")
    >>> check_params(model, arrays)
    >>> check_params(Transformer(11, 11, d_model=8, n_heads=2, n_layers=10**5, d_ff=8), arrays)
    Traceback (most recent call last):
    npformer.UserError: the model has 200000 layers, \
expected at most as many as the 40 arrays of parameters
    """
    params = tree.leaves_under(arrays, "params")
    check_size_of(model, len(params), sum(x.size for x in params.values()))
    tree.check_like(params, dict(tree.leaves(model.shapes())), dtypes=False)
    dtypes = {x.dtype for x in params.values()}
    if len(dtypes) == 1 and dtypes.pop().kind == "f":
        return
    for path, x in params.items():
        if x.dtype != model.dtype:
            raise UserError(f"parameter {path}: given {x.dtype}, expected {model.dtype}")


def check_size_of(model, n_arrays, n_numbers):
    """Check that a model has no more layers than arrays, and few positions beside its parameters.

    A model whose layers share parameters may have more of them: its ``_check_settings`` limits
    their number.
    """
    n_layers = sum(model.depths)
    if model.share_layers is None and n_layers > n_arrays:
        expected = f"at most as many as the {n_arrays} arrays of parameters"
        raise UserError(f"the model has {n_layers} layers, expected {expected}")
    try:
        model.shapes()
        n_of_positions = model.n_positions * model.d_model
    except (OverflowError, ValueError) as error:
        raise UserError(f"the model has a size that no array can have: {error}") from error
    most = max(MOST_POSITIONS, n_numbers)
    if n_of_positions > most:
        needed = f"max_len={model.max_len} needs {n_of_positions:,} numbers for the positions"
        raise UserError(f"{needed}, expected at most {most:,}")
