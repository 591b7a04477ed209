"""The settings of a training, but for the model, the optimizer and the data."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace

from npformer.checks import check_paths
from npformer.files.checkpoint import CheckpointError, refusing
from npformer.models.description import as_json
from npformer.operations.host import PrecisionName
from npformer.operations.options import FRACTION, OPTIONS, brief, check_fields


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The settings of a ``Trainer``, checked when they are made; numbers of NumPy become Python's.

    Parameters
    ----------
    seed : int
        Seed of the initial parameters and of dropout.
    label_smoothing : float
    consistency : float
        Weight α of R-Drop: if not 0, each sentence passes through the model twice, with different
        dropout, and the loss penalises differences between the two predictions (see
        ``paired_cross_entropy``).
    clip_norm : float, optional
        Gradients with a larger global norm are multiplied by clip_norm / norm (PyTorch's
        ``clip_grad_norm_`` divides by norm + 1e-6). The gradients of frozen parameters are not part
        of the norm.
    frozen : sequence of str
        Paths of parameters that are never updated, such as "encoder" or "decoder.0.attention". A
        path includes all parameters below it.
    precision : "float32", "tf32", "bfloat16" or "float16"
        Number format in which steps are computed; all but "float32" need a GPU. Parameters and
        moments are float32. (On a GPU batches are padded to multiples of 8, so dropout draws other
        bits than on a CPU.)
    n_shards : int, optional
        Number of parts of a batch that are computed in parallel by the threads of all ranks. The
        default is one for each thread of each rank, or fewer if the step is too small. The same
        number gives bitwise identical results on any number of threads, and if it is 2 or more, of
        ranks (``docs/guides/same-bits.md``); another draws other dropout bits and rounds
        differently.

    Examples
    --------
    >>> TrainingSettings(label_smoothing=0.1, clip_norm=1).clip_norm
    1.0
    >>> TrainingSettings(label_smoothing=1)
    Traceback (most recent call last):
    ValueError: label_smoothing=1, expected 0 <= label_smoothing < 1
    """

    seed: int = 0
    label_smoothing: float = 0.0
    consistency: float = 0.0
    clip_norm: float | None = None
    frozen: Iterable[str] = field(default_factory=list)
    precision: PrecisionName = "float32"
    n_shards: int | None = None

    def __post_init__(self):
        FRACTION.check("label_smoothing", self.label_smoothing)  # of 1, nothing would be learned
        check_fields(self)
        object.__setattr__(self, "frozen", listed(self.frozen))

    @property
    def of_trainer(self):
        """These settings as arguments of ``Trainer``, without those that a subclass adds."""
        return {each.name: getattr(self, each.name) for each in fields(TrainingSettings)}

    @property
    def of_loss(self):
        """The options of the model's ``loss_and_grad`` that are not 0."""
        options = {"label_smoothing": self.label_smoothing, "consistency": self.consistency}
        return {name: value for name, value in options.items() if value}


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
        for each in fields(self):
            name, value = each.name, getattr(self, each.name)
            if each.type in (str, str | None) and value is not each.default:
                if not isinstance(value, (str, os.PathLike)):
                    raise TypeError(f"{name}={value!r} is a {type(value).__name__}, expected a str")
                object.__setattr__(self, name, os.fspath(value))
        model = self.model
        if not isinstance(model, dict):
            raise TypeError(f"model={model!r} is a {type(model).__name__}, expected a dict")
        try:
            object.__setattr__(self, "model", as_json(model))
        except (TypeError, ValueError) as error:
            raise TypeError(f"model={model!r}, expected what JSON can hold: {error}") from error

    def __repr__(self):
        return brief(self)

    @classmethod
    def of_checkpoint(cls, info, path):
        """The settings in the ``info`` of the checkpoint ``path``."""
        settings = info.get("settings")
        if not isinstance(settings, dict):
            expected = "expected a dict; try another file"
            raise CheckpointError(f"{path}: settings={settings!r:.60}, {expected}")
        if unknown := sorted(settings.keys() - {field.name for field in fields(cls)}):
            what = "has settings that this version of npformer does not know"
            raise CheckpointError(f"{path} {what}: {unknown!s:.200}")
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
                advice = "leave it out, or start anew in another folder"
                what = f"{name}={value!r}, but {path} was begun with {begun[name]!r}"
                raise ValueError(f"{what}: {advice}")
        return replace(self, **changes)


def listed(frozen):
    """The paths of frozen parameters in one order: a set has another one in each process."""
    return sorted(check_paths("frozen", frozen), key=str)
