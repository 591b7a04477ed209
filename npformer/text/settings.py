"""The settings of trainings on text: where the text is, the model, the recipe."""

import os
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Literal

from npformer.errors import UserError
from npformer.files.checkpoint import CheckpointError, refusing
from npformer.models.description import as_json
from npformer.operations.options import ABOVE_0, Count, Option, brief
from npformer.training.settings import Smoothing, TrainingSettings

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


# The number of pieces of a vocabulary, of which four are special.
NumberOfPieces = Annotated[int, Option(int, lambda x: x >= 5, "at least 5")]


@dataclass(frozen=True, kw_only=True, repr=False)
class RunSettings(TrainingSettings):
    """The settings of a training on files, which a checkpoint holds.

    Paths become texts, and the model what JSON can hold. The first sentence of what a docstring
    says of a setting is the help of its option.
    """

    model: dict
    lr: Annotated[float, ABOVE_0]  # the largest: a training cannot do without, an optimizer can

    def __post_init__(self):
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
                raise UserError(
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
    src : str
        Language of the source, which is the ending of its files.
    tgt : str
        Language of the target.
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
        Number of subword pieces of a vocabulary; fewer, all that there are, if the text has fewer.
        It is 5 or more.
    max_tokens : int
        Most tokens of a batch on either side, padding included.
    max_len : int
        Leave out pairs with more pieces than this on a side.
    skip_empty : bool
        Leave out pairs with an empty line, which is an error otherwise.
    schedule : "inverse_sqrt", "noam" or "cosine"
        Schedule of the learning rate; "cosine" ends at the last step. See
        ``npformer.training.schedules``.
    lr : float
        Largest learning rate, or with "noam" a factor. It is above 0.
    warmup : int
        Number of steps until the largest learning rate.
    dropout : float
        Rate of dropout on embeddings and on the output of each sublayer.
    inner_dropout : float
        Rate of dropout on a Transformer's attention weights and hidden layers.
    norm : "pre" or "post"
        A Transformer's layer normalisation is before or after each sublayer.
    label_smoothing : float
    clip_norm : float, optional
    frozen : sequence of str
    precision : str
    n_shards : int, optional
        As of ``TrainingSettings``.
    consistency : float
        Weight of R-Drop: predictions under two draws of dropout agree, in twice the time; 1 is
        usual. As of ``TrainingSettings``.
    steps : int
        Number of updates.
    validate_every : int
        Number of steps between validations, which compute loss and BLEU on the validation text.
    save_every : int
        Number of steps between saves of the checkpoint from which an interrupted training resumes.
    patience : int
        The training ends after this number of validations without a better BLEU.
    average : "last" or "best"
        The validations whose parameters are averaged for the final model: the last ones, of the
        last third of the steps, or the ones with the best BLEU.
    n_average : int
        Most validations that are averaged.

    Raises
    ------
    TypeError, UserError
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
    npformer.UserError: dropout=1.5, expected 0 <= dropout < 1
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
    vocab_size: NumberOfPieces = 8000
    max_tokens: Count = 4096
    max_len: int = 256
    skip_empty: bool = False
    schedule: Literal["inverse_sqrt", "noam", "cosine"] = "inverse_sqrt"
    lr: Annotated[float, ABOVE_0] = 0.005
    warmup: int = 1000
    dropout: float = 0.3
    inner_dropout: float = 0.0
    norm: Literal["pre", "post"] = "pre"
    label_smoothing: Smoothing = 0.1
    steps: int = 16_000
    validate_every: Count = 200
    save_every: Count = 100
    patience: Count = 20
    average: Literal["last", "best"] = "last"
    n_average: Count = 10

    def __post_init__(self):
        super().__post_init__()
        self._make_texts("data", "src", "tgt", "preset")

    @classmethod
    def from_preset(cls, preset="tiny", **changes):
        """Return the settings of a preset with changes, which must include ``data``."""
        if preset not in PRESETS:
            raise UserError(f"preset={preset!r}, expected one of {tuple(PRESETS)}")
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
        Number of pieces of words, the tokens; fewer, all that there are, if the text has fewer; the
        tokens are characters if not given. It is 5 or more.
    model : dict
        Fields of ``LanguageModel``, of which ``vocab`` and ``max_len`` follow from the other
        settings.
    batch_size : int
        Number of passages B in a step.
    length : int
        Number of tokens T that are predicted in a passage, which is the context of the model.
    lr : float
        Largest learning rate. It is reached after ``warmup`` steps; then the rate falls as a cosine
        until the last step.
    warmup : int
        Number of steps until the largest learning rate.
    steps : int
        Number of updates.
    every : int
        Number of steps between validations.
    save_every : int
        Number of steps between checkpoints.
    seed : int
        Seed of the parameters, of dropout and of the passages.
    label_smoothing, consistency, clip_norm, frozen, precision, n_shards
        As of ``TrainingSettings``.

    Examples
    --------
    >>> LanguageSettings(text="train.en", model={"n_kv_heads": 2}).length
    128
    """

    text: str
    held_out: str | None = None
    subwords: NumberOfPieces | None = None
    model: dict = field(default_factory=dict)
    batch_size: Count = 32
    length: int = 128
    lr: Annotated[float, ABOVE_0] = 4e-3
    warmup: int = 100
    steps: int = 1500
    every: Count = 250
    save_every: Count = 100
    clip_norm: float | None = 1.0

    def __post_init__(self):
        super().__post_init__()
        self._make_texts("text")
        if self.held_out is not None:
            self._make_texts("held_out")
        if unknown := self.model.keys() & {"name", "vocab", "max_len"}:
            raise UserError(
                f"model has {sorted(unknown)}, "
                "which follow from the text and from length: leave them out"
            )
