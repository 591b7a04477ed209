"""The settings of a training and of its loop, except the model, the optimizer and the data.

The fields of each record are keywords of a function, for which a ``TypedDict`` has them, too: so
type checkers and editors know them. Types stand in both, defaults and what they mean in the record.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Annotated, Literal, TypedDict, TypeVar, get_type_hints

from npformer.checks import check_paths
from npformer.operations.host import PrecisionName
from npformer.operations.options import ABOVE_0, FRACTION, Count, check_fields

F = TypeVar("F", bound=Callable)


Smoothing = Annotated[float, FRACTION]  # of 1, nothing would be learned


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The settings of a ``Trainer``, checked when they are made; numbers of NumPy become Python's.

    Parameters
    ----------
    seed : int
        Seed of the initial parameters and of dropout.
    label_smoothing : float
        Share of each target that is spread over all tokens.
    consistency : float
        Weight α of R-Drop: if not 0, each sentence passes through the model twice, with different
        dropout, and the loss penalises differences between the two predictions (see
        ``paired_cross_entropy``).
    clip_norm : float, optional
        Largest global norm of a gradient. One with a larger norm is multiplied by clip_norm / norm
        (PyTorch's ``clip_grad_norm_`` divides by norm + 1e-6). The gradients of frozen parameters
        are not part of the norm.
    frozen : sequence of str
        Paths of parameters that are never updated, such as "encoder" or "decoder.0.attention". A
        path includes all parameters below it.
    precision : "float32", "tf32", "bfloat16" or "float16"
        Number format in which steps are computed; all but "float32" need a GPU. Parameters and
        moments are float32. (On a GPU batches are padded to multiples of 8, so dropout draws other
        bits than on a CPU.)
    n_shards : int, optional
        Number of parts of a batch, about one per thread if not given. The threads of all ranks
        compute them in parallel; a step that is too small has fewer. The same number gives bitwise
        identical results on any number of threads, and if it is 2 or more, of ranks
        (``docs/guides/same-bits.md``); another draws other dropout bits and rounds differently.

    Examples
    --------
    >>> TrainingSettings(label_smoothing=0.1, clip_norm=1).clip_norm
    1.0
    >>> TrainingSettings(label_smoothing=1)
    Traceback (most recent call last):
    npformer.UserError: label_smoothing=1, expected 0 <= label_smoothing < 1
    """

    seed: int = 0
    label_smoothing: Smoothing = 0.0
    consistency: float = 0.0
    clip_norm: float | None = None
    frozen: Iterable[str] = field(default_factory=list)
    precision: PrecisionName = "float32"
    n_shards: int | None = None

    def __post_init__(self):
        check_fields(self)
        # in one order: a set has another one in each process
        frozen = sorted(check_paths("frozen", self.frozen), key=str)
        object.__setattr__(self, "frozen", frozen)

    @property
    def of_trainer(self):
        """These settings as arguments of ``Trainer``, without those that a subclass adds."""
        return {each.name: getattr(self, each.name) for each in fields(TrainingSettings)}

    @property
    def of_loss(self):
        """The options of the model's ``loss_and_grad`` that are not 0."""
        options = {"label_smoothing": self.label_smoothing, "consistency": self.consistency}
        return {name: value for name, value in options.items() if value}


class TrainingKeywords(TypedDict, total=False):
    """The fields of ``TrainingSettings``."""

    seed: int
    label_smoothing: Smoothing
    consistency: float
    clip_norm: float | None
    frozen: Iterable[str]
    precision: PrecisionName
    n_shards: int | None


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """When ``Trainer.fit`` validates, saves and ends.

    Parameters
    ----------
    every : int, optional
        Validate after each ``every`` steps, and at the end, unless a callback ends the training.
    save_every : int
        Save the last checkpoint after each ``save_every`` steps, before each validation, at the
        end, and in one process also if an error or Ctrl-C ends the training.
    patience : int, optional
        End after this number of validations without a better result.
    monitor : str
        The result that decides which validation is the best.
    mode : "min" or "max"
        Whether a lower or a higher result is better.
    keep : "best and last" or "last"
        The checkpoints.
    minutes : float, optional
        End so early that the last validation is over in this time. (How long one takes is known
        from those before; if there was none in the first half of the time, one is made then.)
    """

    every: Count | None = None
    save_every: Count = 100
    patience: Count | None = None
    monitor: str = "val_loss"
    mode: Literal["min", "max"] = "min"
    keep: Literal["best and last", "last"] = "best and last"
    minutes: Annotated[float, ABOVE_0] | None = None

    def __post_init__(self):
        check_fields(self)


class LoopKeywords(TypedDict, total=False):
    """The fields of ``LoopSettings``."""

    every: Count | None
    save_every: Count
    patience: Count | None
    monitor: str
    mode: Literal["min", "max"]
    keep: Literal["best and last", "last"]
    minutes: Annotated[float, ABOVE_0] | None


def with_fields_of(record: type) -> Callable[[F], F]:
    """Decorate a function whose ``**settings`` are the fields of a record: ``help`` lists them."""
    types = get_type_hints(record)  # without the ranges of the options

    def decorated(function):
        own = signature(function)
        *parameters, _ = own.parameters.values()
        for name, parameter in signature(record).parameters.items():
            parameters.append(parameter.replace(annotation=types[name]))
        function.__signature__ = own.replace(parameters=parameters)
        return function

    return decorated
