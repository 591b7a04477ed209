"""The settings of trainings on text: where the text is, the model, the recipe."""

import os
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from npformer.files.checkpoint import CheckpointError, refusing
from npformer.models.description import as_json
from npformer.operations.options import OPTIONS, brief
from npformer.training.settings import TrainingSettings

PRESETS: dict[str, dict] = {  # the settings that differ from the defaults
    "tiny": {},  # the model of Wu et al. 2021 for the 29,000 sentences of Multi30k
    "small": {
        "model": {"d_model": 256, "n_heads": 4, "n_layers": 4, "d_ff": 1024},
        "lr": 0.002,
        "warmup": 2000,
        "steps": 20_000,
        "validate_every": 500,
    },
    "base": {  # the model and the recipe of the Transformer paper
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


@dataclass(frozen=True, kw_only=True, repr=False)
class RunSettings(TrainingSettings):
    """The settings of a training on files, which a checkpoint holds.

    Paths become texts, and the model what JSON can hold.
    """

    model: dict
    lr: float

    def __post_init__(self):
        OPTIONS["peak"].check("lr", self.lr)  # of its schedule
        super().__post_init__()
        model = self.model
        if not isinstance(model, dict):
            raise TypeError(f"model={model!r} is a {type(model).__name__}, expected a dict")
        try:
            object.__setattr__(self, "model", as_json(model))
        except (TypeError, ValueError) as error:
            raise TypeError(f"model={model!r}, expected what JSON can hold: {error}") from error

    def _make_texts(self, *names):
        """Make texts of fields that are texts or paths; raise if one is neither."""
        for name in names:
            value = getattr(self, name)
            if not isinstance(value, (str, os.PathLike)):
                raise TypeError(f"{name}={value!r} is a {type(value).__name__}, expected a str")
            object.__setattr__(self, name, os.fspath(value))

    def __repr__(self):
        return brief(self)

    @classmethod
    def of_checkpoint(cls, info, path):
        """The settings in the ``info`` of the checkpoint ``path``."""
        settings = info.get("settings")
        if not isinstance(settings, dict):
            raise CheckpointError(
                f"{path}: settings={settings!r:.60}, expected a dict; try another file"
            )
        if unknown := sorted(settings.keys() - {field.name for field in fields(cls)}):
            raise CheckpointError(
                f"{path} has settings that this version of npformer does not know: {unknown!s:.200}"
            )
        with refusing(path):
            return cls(**settings)

    def changed(self, changes, may_change, path):
        """The settings of the checkpoint ``path`` with changes of settings in ``may_change``."""
        changes = dict(changes)
        of_model = as_json(changes.pop("model", {}))
        fixed = {name: value for name, value in changes.items() if name not in may_change}
        begun = {name: getattr(self, name, None) for name in fixed}
        begun |= {name: self.model.get(name) for name in of_model}
        for name, value in sorted((fixed | of_model).items()):
            if value != begun[name]:
                raise ValueError(
                    f"{name}={value!r}, but {path} was begun with {begun[name]!r}: "
                    "leave it out, or start anew in another folder"
                )
        return replace(self, **changes)


@dataclass(frozen=True, kw_only=True, repr=False)
class TranslationSettings(RunSettings):
    """The settings of a ``TranslationRun`` and its trainer, checked when they are made.

    The defaults are the preset "tiny".

    ``dataclasses.asdict`` converts them to a dict that JSON can hold,
    ``TranslationSettings(**dict)`` converts it back, and ``dataclasses.replace`` returns a copy
    with some settings changed. NumPy numbers become Python numbers.

    Parameters
    ----------
    data : str or path
        Folder with the aligned files of ``train`` and ``val``, such as ``train.en``, plain or
        ``.gz``.
    src, tgt : str
        Languages of the source and of the target, which are the suffixes of their files.
    preset : str
        The name of the preset, for titles only; ``from_preset`` returns the settings of a preset.
    model : dict
        The model, in the format of ``npformer.models.describe``. A missing name means
        "Transformer", a missing size the model's default. The vocabularies, ``max_len``,
        ``dropout``, ``tie_embeddings`` and a Transformer's ``norm`` and ``inner_dropout`` follow
        from the other settings.
    seed : int
        Seed of the parameters, of dropout and of the order of the data.
    vocab : "joint" or "separate"
        One vocabulary and embedding for both languages, or two.
    vocab_size : int
        Number of subword pieces of a vocabulary, 5 or more; if the text has fewer, all that it has.
    max_tokens, max_len : int
        As of ``TokenBatches``: tokens of a batch, and of the longest pair.
    skip_empty : bool
        Leave out pairs with an empty line, which is an error otherwise.
    schedule : "inverse_sqrt", "noam" or "cosine"
        Schedule of the learning rate, see ``npformer.training.schedules``; "cosine" ends at step
        ``steps``.
    lr : float
        The highest learning rate, or with "noam" a factor: above 0.
    warmup : int
        Number of steps until the highest learning rate, 1 or more.
    dropout, inner_dropout : float
        Dropout rates, from 0 to below 1: on embeddings and the output of each sublayer, and on a
        Transformer's attention weights and hidden layers.
    norm : "pre" or "post"
        Position of a Transformer's layer normalisation: before or after each sublayer.
    label_smoothing, consistency : float
        As of ``TrainingSettings``. With R-Drop, a ``consistency`` above 0, a step takes twice as
        long; 1 is usual.
    clip_norm : float, optional
    frozen : sequence of str
    precision : str
    n_shards : int, optional
        As of ``TrainingSettings``.
    steps, validate_every, save_every : int
        Total number of updates; number of updates between validations, which compute loss and BLEU
        on the validation text, and between saves of the checkpoint from which an interrupted
        training resumes: 1 or more.
    patience : int
        The training ends after this number of validations without a better BLEU, 1 or more.
    average : "last" or "best"
        The validations whose parameters are averaged for the final model: the last ones, of the
        last third of the steps, or the ones with the best BLEU.
    n_average : int
        Maximum number of validations to average, 1 or more.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type or is out of range.

    Examples
    --------
    >>> TranslationSettings(data="data/multi30k", tgt="de", model={"d_model": 64}, dropout=0.1)
    TranslationSettings(model={'d_model': 64}, data='data/multi30k', tgt='de', dropout=0.1)
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

    # An older checkpoint has no value for a new setting and takes its default, so that must be the
    # old behaviour.
    data: str
    src: str = "en"
    tgt: str = "fr"
    preset: str = "tiny"
    model: dict = field(
        default_factory=lambda: {"d_model": 128, "n_heads": 4, "n_layers": 4, "d_ff": 256}
    )
    seed: int = 1
    vocab: Literal["joint", "separate"] = "joint"
    vocab_size: int = 8000
    max_tokens: int = 4096
    max_len: int = 256
    skip_empty: bool = False
    schedule: Literal["inverse_sqrt", "noam", "cosine"] = "inverse_sqrt"
    lr: float = 0.005
    warmup: int = 1000
    dropout: float = 0.3
    inner_dropout: float = 0.0
    norm: Literal["pre", "post"] = "pre"
    label_smoothing: float = 0.1
    steps: int = 16_000
    validate_every: int = 200
    save_every: int = 100
    patience: int = 20
    average: Literal["last", "best"] = "last"
    n_average: int = 10

    def __post_init__(self):
        super().__post_init__()
        self._make_texts("data", "src", "tgt", "preset")

    @classmethod
    def from_preset(cls, preset="tiny", **changes):
        """Return the settings of a preset with changes, which must include ``data``."""
        if preset not in PRESETS:
            raise ValueError(f"preset={preset!r}, expected one of {tuple(PRESETS)}")
        return cls(preset=preset, **PRESETS[preset] | changes)


@dataclass(frozen=True, kw_only=True, repr=False)
class LanguageSettings(RunSettings):
    """The settings of a ``LanguageRun`` and its trainer, checked when they are made.

    The defaults train a model of 0.8 million parameters in two to three minutes on two cores.

    Parameters
    ----------
    text : str or path
        A file of UTF-8 text, plain or ``.gz``.
    held_out : str or path, optional
        A file to measure on; the last tenth of the text if not given.
    subwords : int, optional
        Number of pieces of words, the tokens; fewer, all that there are, if the text does not have
        as many. The tokens are characters if not given.
    model : dict
        Fields of ``LanguageModel``, of which ``vocab`` and ``max_len`` follow from the other
        settings.
    batch_size, length : int
        Number of passages B in a step, and of tokens T that are predicted in each, which is the
        context of the model.
    lr : float
        Largest learning rate, after ``warmup`` steps; it falls as a cosine until the last step.
    warmup, steps, every, save_every : int
        Numbers of steps: until the largest learning rate, in all, between validations, and between
        checkpoints.
    seed, label_smoothing, consistency, clip_norm, frozen, precision, n_shards
        As of ``TrainingSettings``.

    Examples
    --------
    >>> LanguageSettings(text="train.en", model={"n_kv_heads": 2}).length
    128
    """

    text: str
    held_out: str | None = None
    subwords: int | None = None
    model: dict = field(default_factory=dict)
    batch_size: int = 32
    length: int = 128
    lr: float = 4e-3
    warmup: int = 100
    steps: int = 1500
    every: int = 250
    save_every: int = 100
    clip_norm: float | None = 1.0

    def __post_init__(self):
        super().__post_init__()
        self._make_texts("text")
        if self.held_out is not None:
            self._make_texts("held_out")
        if unknown := self.model.keys() & {"name", "vocab", "max_len"}:
            raise ValueError(
                f"model has {sorted(unknown)}, "
                "which follow from the text and from length: leave them out"
            )
