"""The settings of the training of a language model: text, model, recipe."""

from dataclasses import dataclass, field

from npformer.training.settings import RunSettings


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
    seed, label_smoothing, clip_norm, frozen, precision, n_shards
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
        if unknown := self.model.keys() & {"name", "vocab", "max_len"}:
            why = "which follow from the text and from length: leave them out"
            raise ValueError(f"model has {sorted(unknown)}, {why}")
