"""Optimizers: the state that each needs, and its update.

An optimizer object holds only settings; ``init`` returns its state, and ``step`` updates parameters
and state. The trainer has all parameters in one flat array, which one call of ``update`` changes.
"""

import math
from collections.abc import Callable, Iterator, ValuesView
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from npformer import tree
from npformer.arrays import Array
from npformer.backends import AnyBackend, get_backend
from npformer.checks import check_in_dtype, check_int
from npformer.errors import UserError
from npformer.operations.options import (
    OPTIONS,
    check_fields,
    check_option,
    names_checked,
)
from npformer.quantized import check_trainable
from npformer.reference import Ops
from npformer.reference.math.update import norm_of
from npformer.runtime.blas_threads import one_blas_thread

T = TypeVar("T")
# PyTorch's optimizers take the parameters of a model first, as ``params``.
WHERE_PARAMETERS_GO = "parameters are given to Trainer, or to init(params)"


def _settings_checked(optimizer: type[T]) -> type[T]:
    """``names_checked``; parameters at the place of ``lr`` are what PyTorch's optimizers take."""
    return names_checked(optimizer, {"lr": _check_no_parameters}, {"params": WHERE_PARAMETERS_GO})


def _check_no_parameters(name, value):
    """Check that a value is none of what PyTorch's optimizers take first."""
    if isinstance(value, (dict, list, ValuesView, Iterator)):
        problem = f"{name} is a {type(value).__name__}, expected a number or a schedule"
        raise TypeError(f"{problem}; {WHERE_PARAMETERS_GO}")


@dataclass(frozen=True)
class Optimizer:
    """The base class of all optimizers.

    ``lr`` is a number, or a schedule ``lr(step)`` whose first step is 1.

    Examples
    --------
    >>> params = {"weight": np.array([[3.0]]), "bias": np.array([1.0])}
    >>> optimizer = Adam(lr=0.5)
    >>> state = optimizer.init(params)
    >>> for _ in range(20):
    ...     grads = {name: 2 * x for name, x in params.items()}  # of Σ x²
    ...     optimizer.step(params, grads, state)
    >>> state["n_steps"], bool(abs(params["weight"]) < 0.5)
    (20, True)
    """

    lr: float | Callable[[int], float]

    # Defaults of what only some optimizers have as fields.
    weight_decay = 0.0
    decay_all = False

    @property
    def moments(self) -> tuple[str, ...]:
        """The names of what the optimizer keeps for each parameter, in arrays of its shape."""
        return ()

    def __post_init__(self):
        check_fields(self)
        _check_no_parameters("lr", self.lr)
        if not callable(self.lr):
            object.__setattr__(self, "lr", check_option("lr", self.lr))

    def init(self, params: Any) -> dict:
        """Return the state before the first step.

        Parameters
        ----------
        params : nested dict, or an array

        Returns
        -------
        state : dict
            "n_steps", the number of steps made, 0; and for each name in ``moments`` zeros like the
            parameters.

        Raises
        ------
        TypeError
            If a parameter is no array of float32 or float64.
        UserError
            If two parameters are one array, or have one path.
        """
        check_trainable(params)
        _check_parameters(tree.leaves(params))
        for _, x in tree.leaves(params):
            self.check_dtype(x.dtype)
        state = {"n_steps": 0}
        for name in self.moments:
            state[name] = tree.map_leaves(lambda x: np.zeros_like(x, order="C"), params)
        return state

    def step(self, params: dict, grads: dict, state: dict, *, backend: AnyBackend = "auto") -> None:
        """Make one step: update the parameters and the state in place.

        The gradient is used as it is: ``clip_by_global_norm`` limits its norm, and a gradient with
        NaN makes the parameters NaN. An update that is interrupted is half made: ``Trainer`` guards
        against both.

        Parameters
        ----------
        params : nested dict of contiguous arrays
        grads : nested dict
            With the paths and shapes of ``params``, in any order.
        state : dict
            What ``init(params)`` has returned.
        backend : str or backend
            As of ``Trainer``.

        Raises
        ------
        UserError
            If a gradient is missing or has another shape, or the state is that of another optimizer
            or of other parameters.
        """
        ops = get_backend(backend, params)
        self._check_step(params, grads, state)
        step = check_int("state['n_steps']", state["n_steps"], at_least=0) + 1
        lr = self.learning_rate(step, *{x.dtype for _, x in tree.leaves(params)})
        grad_of = dict(tree.leaves(grads))  # a dict that is empty need not be in each of them
        moments_of = {name: dict(tree.leaves(state[name])) for name in self.moments}
        updates = []  # all are checked before the first is made
        for path, param in tree.leaves(params):
            flat = _written("parameter", path, param)
            flat_grad = _flat_gradient(path, grad_of[path])
            flat_moments = {}
            for name, moments in moments_of.items():
                flat_moments[name] = _written(f"{name} of", path, moments[path])
            updates.append((flat, flat_grad, flat_moments, self.decays(param)))
        with one_blas_thread():  # once for all of them: parameters may be many and small
            for flat, flat_grad, flat_moments, decay in updates:
                self.update(ops, flat, flat_grad, flat_moments, step, lr=lr, decay=decay)
        state["n_steps"] = step

    def _check_step(self, params, grads, state):
        """Check that gradients and state are those of the parameters and of this optimizer."""
        expected = ["n_steps", *self.moments]
        if not isinstance(state, dict) or state.keys() != set(expected):
            there = list(state) if isinstance(state, dict) else f"a {type(state).__name__}"
            init = f"{type(self).__name__}.init(params)"
            raise UserError(f"state has {there}, expected what {init} returns, with {expected}")
        for name, argument in (("params", params), ("grads", grads)):
            if not isinstance(argument, dict):
                given = tree.described(argument)
                raise TypeError(f"{name} is {given}, expected a nested dict of arrays")
        for name in self.moments:
            tree.check_like(state[name], params, dtypes=False, what=f"{name} of")
        tree.check_like(grads, params, dtypes=False, what="the gradient of")

    def check_dtype(self, dtype: np.dtype) -> None:
        """Check that no setting is rounded to 0 or infinity in the dtype of the parameters."""
        for name, value in vars(self).items():
            if isinstance(value, float):
                check_in_dtype(name, value, dtype)

    def decays(self, x: Array) -> bool:
        """Return whether weight decay applies to an array of the parameters."""
        return self.weight_decay > 0 and (self.decay_all or x.ndim > 1)

    def learning_rate(self, step: int, *dtypes: np.dtype) -> float:
        """Return the learning rate of a step, which is not too large for these dtypes."""
        lr = self.lr
        if callable(lr):
            lr = OPTIONS["lr"].check(f"lr({step})", lr(step))
        for dtype in dtypes:
            if lr > 1:  # a small one may become 0 at the end of a schedule
                check_in_dtype(f"lr({step})", lr, dtype)
        return lr

    def update(
        self,
        ops: Ops,
        param: Array,
        grad: Array,
        moments: dict,
        step: Any,
        grad_scale: Any = 1.0,
        lr: Any = None,
        decay: bool = True,
    ) -> None:
        """Update ``param`` and ``moments`` in place, by the gradient times ``grad_scale``.

        ``lr`` defaults to that of this step.
        """
        if lr is None:
            lr = self.learning_rate(step)
        weight_decay = self.weight_decay if decay else 0.0
        self._update(ops, param, grad, moments, step, lr, grad_scale, weight_decay)

    def _update(self, ops, param, grad, moments, step, lr, grad_scale, weight_decay):
        """Call the operation of the optimizer, with those of the numbers that it needs."""
        raise NotImplementedError


@_settings_checked
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
            raise UserError("nesterov=True with momentum=0, expected momentum > 0")

    @property
    def moments(self) -> tuple[str, ...]:
        """The velocity, if there is momentum."""
        return ("velocity",) if self.momentum else ()

    def _update(self, ops, param, grad, moments, step, lr, grad_scale, weight_decay):
        ops.sgd_update(
            param,
            grad,
            moments.get("velocity"),
            lr=lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            grad_scale=grad_scale,
        )


@_settings_checked
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
        object.__setattr__(self, "betas", _checked_betas(self.betas))

    @property
    def moments(self) -> tuple[str, ...]:
        """The running means of g and g²."""
        return ("m", "v")

    def _update(self, ops, param, grad, moments, step, lr, grad_scale, weight_decay):
        beta1, beta2 = self.betas
        ops.adam_update(
            param,
            grad,
            moments["m"],
            moments["v"],
            lr=lr,
            step=step,
            beta1=beta1,
            beta2=beta2,
            eps=self.eps,
            weight_decay=weight_decay,
            grad_scale=grad_scale,
        )


@_settings_checked
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
        If False, matrices and embedding tables decay, but not biases and gains, which are arrays
        with one axis.

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


@_settings_checked
@dataclass(frozen=True)
class Lion(Optimizer):
    """Lion (Chen et al. 2023), which moves by the sign of a running mean of the gradient.

    It keeps one array where Adam keeps two. A good rate is three to ten times lower than that of
    AdamW, and a good weight decay that many times larger.

    Parameters
    ----------
    lr : float or callable
    betas : (float, float)
        Decay rates of the running mean: in the direction of a step, and from step to step.
    weight_decay : float
        Each step also does param -= lr · weight_decay · param, except for biases and gains, which
        have one axis.

    Examples
    --------
    >>> from npformer import reference
    >>> optimizer, param = Lion(lr=0.1), np.array([2.0, -3.0])
    >>> optimizer.update(reference, param, np.array([0.001, -7.0]), optimizer.init(param), step=1)
    >>> param
    array([ 1.9, -2.9])
    """

    lr: float | Callable[[int], float] = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "betas", _checked_betas(self.betas))

    @property
    def moments(self) -> tuple[str, ...]:
        """The running mean of g."""
        return ("m",)

    def _update(self, ops, param, grad, moments, step, lr, grad_scale, weight_decay):
        beta1, beta2 = self.betas
        ops.lion_update(
            param,
            grad,
            moments["m"],
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            grad_scale=grad_scale,
        )


# by their names in checkpoints
OPTIMIZERS = {optimizer.__name__: optimizer for optimizer in (SGD, Adam, AdamW, Lion)}


def clip_by_global_norm(
    grads: dict, max_norm: float, *, backend: AnyBackend = "auto"
) -> tuple[dict, float]:
    """Multiply gradients by max_norm / norm if their global norm is larger (Pascanu et al. 2013).

    Parameters
    ----------
    grads : nested dict
    max_norm : float
    backend : str or backend

    Returns
    -------
    grads : nested dict
        The same arrays if the norm is not larger, or not finite; else new ones.
    norm : float
        √Σ g² over all gradients, before clipping.

    Examples
    --------
    >>> clip_by_global_norm({"weight": np.array([3.0]), "bias": np.array([4.0])}, max_norm=1.0)
    ({'weight': array([0.6]), 'bias': array([0.8])}, 5.0)
    """
    max_norm = OPTIONS["clip_norm"].check("max_norm", max_norm)
    ops = get_backend(backend, grads)
    norms = [float(ops.global_norm(_flat_gradient(path, x))) for path, x in tree.leaves(grads)]
    norm = norm_of(np.array(norms))
    if norm <= max_norm or not math.isfinite(norm):
        return grads, norm
    factor = np.float64(max_norm / norm)  # which may be too small for float32
    return tree.map_leaves(lambda x: (x * factor).astype(x.dtype), grads), norm


def _checked_betas(betas):
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise UserError(f"betas={betas!r}, expected two numbers such as (0.9, 0.98)")
    return tuple(OPTIONS[f"beta{i + 1}"].check(f"betas[{i}]", beta) for i, beta in enumerate(betas))


def _check_parameters(leaves):
    """Check that each parameter can be updated, once in a step."""
    paths: dict[int, str] = {}  # of the arrays so far
    for path, x in leaves:
        tree.check_leaf(path, x)
        if isinstance(x, np.generic):  # an update would be lost
            raise TypeError(f"parameter {path} is a {type(x).__name__}, expected an array")
        # In half precision a running mean stands still.
        if x.dtype.kind != "f" or x.dtype.itemsize < 4:
            raise TypeError(f"parameter {path} has dtype {x.dtype}, expected float32 or float64")
        if path in paths.values():
            raise UserError(f"two parameters have the path {path}, expected names that differ")
        if id(x) in paths:
            what = f"parameter {path} is the array of {paths[id(x)]}"
            raise UserError(f"{what}, expected arrays of their own")
        paths[id(x)] = path


def _written(what, path, x):
    """An array that is updated in place, as a vector that shares its memory."""
    if not x.flags.c_contiguous:
        expected = "np.ascontiguousarray(…): it is updated in place"
        raise UserError(f"{what} {path} is not contiguous, expected {expected}")
    if not getattr(x.flags, "writeable", True):
        expected = "a copy of it: it is updated in place"
        raise UserError(f"{what} {path} is read-only, expected {expected}")
    return x.reshape(-1)


def _flat_gradient(path, grad):
    if grad is None:
        raise TypeError(f"the gradient of {path} is None, expected an array")
    if grad.dtype.kind != "f":
        raise TypeError(f"the gradient of {path} has dtype {grad.dtype}, expected floats")
    return grad.reshape(-1)
