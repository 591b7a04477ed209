"""Schedules: the learning rate as a function of the step; the first step is 1."""

import math
from dataclasses import dataclass
from typing import Annotated

from npformer.errors import UserError
from npformer.operations.options import Option, check_fields, check_option, names_checked


@dataclass(frozen=True)
class Schedule:
    """The base class of all schedules: their settings are checked, and so are the steps."""

    def __post_init__(self):
        check_fields(self)

    def __call__(self, step: int) -> float:
        """Return the learning rate of a step."""
        return self._rate(check_option("step", step))

    def _rate(self, step):
        raise NotImplementedError


@names_checked
@dataclass(frozen=True)
class noam(Schedule):
    """The paper's schedule (section 5.3): factor · D^-½ · min(step^-½, step · warmup^-3/2).

    It rises linearly for ``warmup`` steps, then falls with the inverse square root of the step.

    Parameters
    ----------
    d_model, warmup : int
    factor : float

    Examples
    --------
    >>> rate = noam(d_model=512, warmup=4000)
    >>> [round(rate(step), 6) for step in (1, 4000, 16000)]
    [0.0, 0.000699, 0.000349]
    """

    d_model: int
    warmup: int = 4000
    factor: float = 1.0

    def _rate(self, step):
        return self.factor * self.d_model**-0.5 * min(step**-0.5, step * self.warmup**-1.5)


@names_checked
@dataclass(frozen=True)
class inverse_sqrt(Schedule):
    """Rise linearly to ``peak`` in ``warmup`` steps, then fall as the step's inverse square root.

    It is ``noam``, parametrised by its highest learning rate.

    Parameters
    ----------
    peak : float
    warmup : int

    Examples
    --------
    >>> rate = inverse_sqrt(peak=0.005, warmup=2000)
    >>> [rate(step) for step in (1000, 2000, 8000)]
    [0.0025, 0.005, 0.0025]
    """

    peak: float
    warmup: int

    def _rate(self, step):
        return self.peak * min(step / self.warmup, (self.warmup / step) ** 0.5)


@names_checked
@dataclass(frozen=True)
class warmup_cosine(Schedule):
    """Rise linearly to ``peak`` in ``warmup`` steps, then fall along half a cosine.

    It reaches ``floor`` at step ``total``.

    Parameters
    ----------
    peak : float
    warmup, total : int
    floor : float

    Examples
    --------
    >>> rate = warmup_cosine(peak=1.0, warmup=10, total=110)
    >>> [round(rate(step), 3) for step in (1, 10, 60, 110, 200)]
    [0.1, 1.0, 0.5, 0.0, 0.0]
    """

    peak: float
    warmup: Annotated[int, Option(int)]  # may be 0 here
    total: int
    floor: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.warmup < self.total:
            raise UserError(
                f"warmup={self.warmup}, total={self.total}: expected 0 <= warmup < total"
            )

    def _rate(self, step):
        if step < self.warmup:
            return self.peak * step / self.warmup
        progress = min((step - self.warmup) / (self.total - self.warmup), 1.0)
        return self.floor + (self.peak - self.floor) * 0.5 * (1 + math.cos(math.pi * progress))
