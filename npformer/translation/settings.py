"""What a training of a translation model is told: text, model, recipe, and how often it validates and saves."""

import json
import numbers
import os
from dataclasses import dataclass, field, fields
from typing import get_type_hints

import numpy as np

from npformer.checks import check_fraction, check_int, check_not_negative, check_positive
from npformer.host import EVERY_PRECISION

CHOICES = {
    "vocab": ("joint", "separate"),
    "norm": ("pre", "post"),
    "schedule": ("inverse_sqrt", "noam", "cosine"),
    "average": ("last", "best"),
    "precision": EVERY_PRECISION,
}
COUNTS = (
    "vocab_size",
    "max_tokens",
    "max_len",
    "warmup",
    "steps",
    "validate_every",
    "save_every",
    "patience",
    "n_average",
)
PRESETS: dict[str, dict] = {  # what each says otherwise than the defaults
    "tiny": {},  # the model of Wu et al. 2021 for the 29,000 sentences of Multi30k
    "small": {
        "model": {"d_model": 256, "n_heads": 4, "n_layers": 4, "d_ff": 1024},
        "lr": 0.002,
        "warmup": 2000,
        "steps": 20_000,
        "validate_every": 500,
    },
    "base": {  # the paper's, with its recipe
        "model": {"d_model": 512, "n_heads": 8, "n_layers": 6, "d_ff": 2048},
        "dropout": 0.1,
        "norm": "post",
        "vocab_size": 32_000,
        "max_tokens": 25_000,
        "schedule": "noam",
        "lr": 1.0,
        "warmup": 4000,
        "steps": 100_000,
        "validate_every": 1000,
    },
}


@dataclass(frozen=True, kw_only=True)
class TranslationSettings:
    """The settings of a ``TranslationRun``, checked when they are made; the defaults are the preset "tiny".

    ``dataclasses.asdict`` makes a dict of them that JSON can hold, ``TranslationSettings(**dict)`` settings again, and
    ``dataclasses.replace`` others that differ in some. Numbers of NumPy become Python's.

    Parameters
    ----------
    data : str or path
        Folder with the aligned files, ``train`` and ``val``, plain or ``.gz``.
    src, tgt : str
        Languages of the source and of the target, the endings of their files.
    preset : str
        The name of the recipe, for titles; ``from_preset`` makes the settings that belong to it.
    model : dict
        The model, as ``npformer.models.describe`` describes it. A name that is missing is "Transformer", a size that
        is missing the model's default. The vocabularies, ``max_len``, ``dropout``, ``tie_embeddings`` and a
        Transformer's ``norm`` and ``inner_dropout`` are those of the training.
    seed : int
        Of parameters, dropout and the order of the data: 0 or more.
    vocab : "joint" or "separate"
        One vocabulary and embedding for both languages, or two.
    vocab_size : int
        Subword pieces of a vocabulary, 1 or more; a small text has not enough for 8,000.
    max_tokens : int
        Of a batch on either side, padding included: ``max_len`` or more.
    max_len : int
        In pieces, 1 or more: longer pairs are left out.
    skip_empty : bool
        Leave out pairs with an empty line, which is an error otherwise.
    schedule : "inverse_sqrt", "noam" or "cosine"
        Of the learning rate, as in ``npformer.training.schedules``; "cosine" ends at the last of ``steps``.
    lr : float
        The highest learning rate, and for "noam" a factor: above 0.
    warmup : int
        Steps until the highest learning rate, 1 or more.
    dropout : float
        Rate on embeddings and the output of each sublayer, from 0 to below 1.
    inner_dropout : float
        Rate on a Transformer's attention weights and hidden layers, from 0 to below 1.
    norm : "pre" or "post"
        A Transformer's layer normalisation, before or after each sublayer.
    label_smoothing : float
        How much of a target's probability the other pieces share, from 0 to below 1.
    consistency : float
        Weight of R-Drop, 0 or more: what the model says under two draws of dropout shall agree, which takes twice as
        long. 1 is usual, 0 is without.
    clip_norm : float, optional
        The largest norm of a gradient, above 0.
    precision : "float32", "tf32", "bfloat16" or "float16"
        What steps are computed in; all but "float32" need a GPU.
    steps : int
        Updates in all, 1 or more.
    validate_every : int
        Loss and BLEU on the validation text are computed after so many steps, again and again: 1 or more.
    save_every : int
        The same for the checkpoint from which an interrupted training goes on.
    patience : int
        The training ends after so many validations without a better BLEU, 1 or more.
    average : "last" or "best"
        The parameters of which validations make the result: the last, of the last third of the steps, or those with
        the best BLEU.
    n_average : int
        Of how many validations, 1 or more.

    Raises
    ------
    TypeError, ValueError
        If a setting is of another type, or out of its range.

    Examples
    --------
    >>> settings = TranslationSettings.from_preset("small", data="data/multi30k", tgt="de")
    >>> settings.model["d_model"], settings.lr, settings.label_smoothing
    (256, 0.002, 0.1)
    >>> from dataclasses import asdict, replace
    >>> TranslationSettings(**asdict(settings)) == settings
    True
    >>> replace(settings, dropout=1.5)
    Traceback (most recent call last):
        ...
    ValueError: dropout=1.5, expected 0 <= dropout < 1
    """

    # A checkpoint that is older than a setting takes its default: a new one's is what was done before.
    data: str
    src: str = "en"
    tgt: str = "fr"
    preset: str = "tiny"
    model: dict = field(default_factory=lambda: {"d_model": 128, "n_heads": 4, "n_layers": 4, "d_ff": 256})
    seed: int = 1
    vocab: str = "joint"
    vocab_size: int = 8000
    max_tokens: int = 4096
    max_len: int = 256
    skip_empty: bool = False
    schedule: str = "inverse_sqrt"
    lr: float = 0.005
    warmup: int = 1000
    dropout: float = 0.3
    inner_dropout: float = 0.0
    norm: str = "pre"
    label_smoothing: float = 0.1
    consistency: float = 0.0
    clip_norm: float | None = None
    precision: str = "float32"
    steps: int = 16_000
    validate_every: int = 200
    save_every: int = 100
    patience: int = 20
    average: str = "last"
    n_average: int = 10

    def __post_init__(self):
        kinds = get_type_hints(type(self))
        for name in (each.name for each in fields(self)):
            object.__setattr__(self, name, _as(kinds[name], name, getattr(self, name)))
        check_int("seed", self.seed, at_least=0)
        for name in COUNTS:
            check_int(name, getattr(self, name), at_least=1)
        check_fraction(dropout=self.dropout, inner_dropout=self.inner_dropout, label_smoothing=self.label_smoothing)
        check_not_negative(consistency=self.consistency)
        check_positive(lr=self.lr)
        if self.clip_norm is not None:
            check_positive(clip_norm=self.clip_norm)
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r}, expected one of {choices}")

    @classmethod
    def from_preset(cls, preset="tiny", **changes):
        """The settings of a preset, "tiny", "small" or "base", but for some; ``data`` has to be among them."""
        if preset not in PRESETS:
            raise ValueError(f"preset={preset!r}, expected one of {tuple(PRESETS)}")
        return cls(preset=preset, **PRESETS[preset] | changes)


TAKEN = {  # for each type of a field what is taken for it, in code and in words
    str: ((str, os.PathLike), "a str"),
    int: ((int, np.integer), "an int"),
    float: (numbers.Real, "a number"),
    bool: ((bool, np.bool_), "a bool"),
    dict: (dict, "a dict"),
}


def _as(kind, name, value):
    """The value of a field in the type that JSON gives back."""
    if kind == float | None:
        if value is None:
            return None
        kind = float
    taken, words = TAKEN[kind]
    if not isinstance(value, taken) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}, expected {words}")
    if kind is dict:
        try:
            return json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name}={value!r}, expected what JSON can hold: {error}") from error
    return os.fspath(value) if kind is str else kind(value)
