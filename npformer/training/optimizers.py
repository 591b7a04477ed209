"""Optimizers: the state that each needs, and its update.

All parameters are one flat array, so an update is one call. The state is a dict of flat arrays, which the trainer owns;
an optimizer object holds only settings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from npformer.arrays import Array
from npformer.checks import check_in_dtype
from npformer.operations.options import OPTIONS, check_fields, check_option
from npformer.reference import Ops


@dataclass(frozen=True)
class Optimizer:
    """The base class of all optimizers; ``lr`` is a number, or a schedule ``lr(step)`` whose first step is 1."""

    lr: float | Callable[[int], float]

    init: ClassVar[Callable[..., dict]]
    _update: ClassVar[Callable[..., None]]  # (ops, param, grad, state, decay, *, step, lr, grad_scale)
    weight_decay = 0.0  # no field, which would come before those of the subclasses

    def __post_init__(self):
        check_fields(self)
        if not callable(self.lr):
            object.__setattr__(self, "lr", check_option("lr", self.lr))

    def check_dtype(self, dtype: np.dtype) -> None:
        """Check that no setting is rounded to 0 or infinity in the dtype of the parameters."""
        for name, value in vars(self).items():
            if isinstance(value, float):
                check_in_dtype(name, value, dtype)

    def decays(self, x: Array) -> bool:
        """Return whether weight decay applies to an array of the parameters."""
        return self.weight_decay > 0

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        if not callable(self.lr):
            return self.lr
        return OPTIONS["lr"].check(f"lr({step})", self.lr(step))

    def update(
        self,
        ops: Ops,
        param: Array,
        grad: Array,
        state: dict,
        step: Any,
        grad_scale: Any = 1.0,
        lr: Any = None,
        decay: bool = True,
    ) -> None:
        """Update ``param`` and ``state`` in place; ``lr`` defaults to the learning rate of this step."""
        lr = self.learning_rate(step) if lr is None else lr
        self._update(ops, param, grad, state, decay, step=step, lr=lr, grad_scale=grad_scale)


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, optionally with (Nesterov) momentum.

    Parameters
    ----------
    lr : float or callable
    momentum : float
        0 <= momentum < 1.
    nesterov : bool

    Examples
    --------
    >>> SGD(lr=0.1, momentum=0.9, nesterov=True)
    SGD(lr=0.1, momentum=0.9, nesterov=True)
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov=True with momentum=0, expected momentum > 0")

    def init(self, param: Array) -> dict:
        """Return the state before the first step."""
        return {"velocity": np.zeros_like(param)} if self.momentum else {}

    def _update(self, ops, param, grad, state, decay, *, step, **numbers):
        ops.sgd_update(param, grad, state.get("velocity"), momentum=self.momentum, nesterov=self.nesterov, **numbers)


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015).

    Parameters
    ----------
    lr : float or callable
    betas : (float, float)
        Decay rates of the running means of g and g²; the Transformer paper uses (0.9, 0.98).
    eps : float

    Examples
    --------
    >>> Adam(lr=0.001).learning_rate(step=1)
    0.001
    """

    lr: float | Callable[[int], float] = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            raise ValueError(f"betas={self.betas!r}, expected two numbers such as (0.9, 0.98)")
        betas = tuple(OPTIONS[f"beta{i + 1}"].check(f"betas[{i}]", beta) for i, beta in enumerate(self.betas))
        object.__setattr__(self, "betas", betas)

    def init(self, param: Array) -> dict:
        """Return the state before the first step."""
        return {"m": np.zeros_like(param), "v": np.zeros_like(param)}

    def _update(self, ops, param, grad, state, decay, **numbers):
        beta1, beta2 = self.betas
        settings = {"beta1": beta1, "beta2": beta2, "eps": self.eps}
        settings["weight_decay"] = self.weight_decay if decay else 0.0
        ops.adam_update(param, grad, state["m"], state["v"], **settings, **numbers)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Each step also does param -= lr · weight_decay · param.

    Parameters
    ----------
    lr, betas, eps
        As for ``Adam``.
    weight_decay : float
    decay_all : bool
        If False, matrices and embedding tables decay, but not biases and gains, which are arrays with one axis.

    Examples
    --------
    >>> from npformer import reference
    >>> optimizer, param = AdamW(lr=0.1, weight_decay=0.5), np.array([2.0])
    >>> optimizer.update(reference, param, np.zeros(1), optimizer.init(param), step=1)
    >>> param  # no gradient, so only the decay: 2 - 0.1 · 0.5 · 2
    array([1.9])
    """

    weight_decay: float = 0.01
    decay_all: bool = False

    def decays(self, x: Array) -> bool:
        """Return whether weight decay applies to an array of the parameters."""
        return self.weight_decay > 0 and (self.decay_all or x.ndim > 1)
