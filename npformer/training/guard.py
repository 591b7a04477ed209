"""What keeps a training whole: a step is made and counted, or not made at all.

While a trainer is changed or saved, ``Guard`` lets other threads and Ctrl-C wait. A step whose loss
or gradient is not usable changes nothing, and raises ``NonFiniteError`` with the reason.
"""

import contextlib
import math
import os
import threading

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.models.batch import names_of_batch
from npformer.runtime.interrupts import deferred_interrupts


class Guard:
    """A block in which one thread uses a trainer: others wait, and so do exceptions of signals."""

    def __init__(self):
        self._begin()

    def _begin(self):
        self.lock = threading.RLock()
        self.process = os.getpid()
        # Whether the thread that has the lock changes the trainer; None if no thread has it.
        self.changing: bool | None = None

    @contextlib.contextmanager
    def __call__(self, changing=False):
        """Change the trainer inside, or only read it.

        A handler of a signal that came in the middle of a change is refused.
        """
        if self.process != os.getpid():  # a fork, which does not have the thread that had the lock
            self._begin()
        with self.lock, deferred_interrupts():
            outside = self.changing
            if outside or (outside is not None and changing):
                raise RuntimeError(
                    "a signal handler called the trainer in the middle of a step or a save: set a "
                    "flag in the handler, and call the trainer after the step, as "
                    "npformer.training.StopSignals does"
                )
            self.changing = changing
            try:
                yield
            finally:
                self.changing = outside


class NonFiniteError(FloatingPointError):
    """The loss or the gradient became NaN or infinite; the step has changed no parameter."""


def are_usable(loss, norm, clip_norm, dtype):
    """Whether the loss is finite, and so are the squares of the clipped gradient.

    Adam keeps the mean of these squares, which must not overflow: what is clipped to ``clip_norm``
    has smaller ones, and how large they may be depends on ``dtype``, that of the parameters. Those
    of half precision are updated in float32.
    """
    clipped = norm if clip_norm is None else np.minimum(norm, clip_norm)
    largest = np.sqrt(np.finfo(np.promote_types(dtype, np.float32)).max)
    return np.isfinite(loss) & np.isfinite(norm) & (clipped < largest)


def not_finite_in(model, batches):
    """The first number of the batches that is not finite, as text; else "".

    What a ``keep_mask`` masks does not count.
    """
    for batch in batches:
        arrays = dict(zip(names_of_batch(model), map(on_host, batch), strict=False))
        mask = arrays.get("keep_mask")
        for name, x in arrays.items():
            if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
                continue
            wrong = ~np.isfinite(x)
            advice = ""
            if mask is not None and x.ndim > mask.ndim and x.shape[: mask.ndim] == mask.shape:
                wrong[~mask] = False
                advice = " where keep_mask is True"
            if wrong.any():
                index = list(map(int, np.argwhere(wrong)[0]))
                return f"{name}{index} is {x[tuple(index)]}{advice}"
    return ""


def why_not_finite(trainer, batches, loss, lr):
    """The text of a ``NonFiniteError``: what is not finite on any rank, and what to try."""
    state, ranks = trainer.state, trainer.ranks
    bad_params = ranks.union(tree.not_finite(state.params))
    bad_grads = ranks.union(tree.not_finite(state.grads))
    clip_norm = trainer.settings.clip_norm
    now = f"(now {lr:g}), clip_norm=1.0 (now {clip_norm})"
    advice = f"Try a lower learning rate {now}, or a longer warm-up."
    where = "no parameter or gradient is NaN or inf"
    if math.isfinite(loss):
        where += ", but the square of the gradient's norm is too large for its dtype"
    if bad_params:
        where = f"parameter {bad_params[0]} holds NaN or inf (one of {len(bad_params)})"
        advice = f"It did so before this step: go on from a checkpoint. {advice}"
    elif of_data := not_finite_in(trainer.model, batches):
        where = of_data
        advice = "Mask what is missing, if the model takes a keep_mask, or leave it out."
    elif bad_grads:
        where = f"the gradient of {bad_grads[0]} holds NaN or inf (one of {len(bad_grads)})"
        if state.n_steps == 0:  # no update can be the reason
            advice = f"trainer.diagnose(*batch) examines loss and gradients. {advice}"
    return (
        f"step {state.n_steps + 1}: the loss is {loss:g}; {where}. The step was not taken: "
        f"parameters are those of step {state.n_steps}. {advice}"
    )
