"""The mean of the parameters over many steps (Polyak and Juditsky 1992).

It has less noise than the parameters of the last step.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from npformer import tree
from npformer.arrays import underflow_is_zero
from npformer.checks import check_int
from npformer.errors import UserError
from npformer.runtime.interrupts import deferred_interrupts


class ParameterAverage:
    """A callback of ``Trainer.fit``: the mean of the parameters from ``first_step`` on.

    With a high learning rate the parameters fluctuate around an optimum, and their mean is closer
    to it. The paper averages its last checkpoints for the same reason (section 6.1).

    Parameters
    ----------
    first_step : int
        The first step to include, counted from 1.

    Attributes
    ----------
    params : nested dict or None
        The mean so far; None before ``first_step``.
    n : int
        Number of steps averaged.

    Examples
    --------
    >>> from npformer import SGD, Trainer, Transformer
    >>> trainer = Trainer(Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8), SGD(0.1))
    >>> average = ParameterAverage(first_step=3)
    >>> src, tgt = np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]])
    >>> history = trainer.fit([(src, tgt)] * 5, callbacks=[average], progress=False)
    >>> average.n
    3
    """

    def __init__(self, first_step: int) -> None:
        self.first_step = check_int("first_step", first_step, at_least=1)
        self.n = 0
        self.params = None
        self._mean: Any = None  # the numbers of ``params``, one after another

    def __repr__(self):
        return f"<ParameterAverage of {self.n:,} steps, from step {self.first_step:,} on>"

    def __setstate__(self, state):
        """Go on after a copy, whose ``params`` are no views of the mean."""
        vars(self).update(state)
        if self.params is not None:
            self._mean, self.params = tree.flatten(self.params)

    @underflow_is_zero()
    def __call__(self, trainer: Any, info: Any) -> None:
        """Add this step's parameters to the mean."""
        if info.step < self.first_step:
            return
        with deferred_interrupts():
            self.n += 1
            if self.params is None:
                self._mean, self.params = tree.flatten(trainer.params)
            else:
                self._mean += (trainer.flat_params - self._mean) * (1 / self.n)


@underflow_is_zero()
def average(trees: Iterable[dict]) -> dict:
    """Return the mean of several parameter trees, which are read one after the other.

    They are summed in float64.

    Examples
    --------
    >>> average([{"w": np.array([1.0])}, {"w": np.array([3.0])}])
    {'w': array([2.])}
    """
    if isinstance(trees, dict) or not isinstance(trees, Iterable):
        advice = ": try [params]" if isinstance(trees, dict) else ""
        expected = f"a list of trees such as model.init(seed){advice}"
        raise TypeError(f"trees is {tree.described(trees)}, expected {expected}")
    total = None
    n = 0
    for params in trees:
        tree.count(params)  # raises if it holds anything but arrays
        wide = tree.map_leaves(lambda x: x.astype(np.float64), params)
        total = wide if total is None else tree.map_leaves(np.add, total, wide)
        n += 1
    if total is None:
        raise UserError("trees is empty, expected one or more")
    return tree.map_leaves(lambda x, like: (x / n).astype(like.dtype), total, params)
