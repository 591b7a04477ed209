"""Why a loss is not finite, for the error that stops the training."""

import inspect
import math

import numpy as np

from npformer import tree
from npformer.arrays import on_host


class NonFiniteError(FloatingPointError):
    """The loss or the gradient became NaN or infinite; the parameters are those from before the step."""


def not_finite_in(model, batches):
    """The first number of the batches that is not finite though no ``keep_mask`` masks it, as text; else ""."""
    for batch in batches:
        given = dict(zip(inspect.signature(model.count).parameters, map(on_host, batch), strict=False))
        mask = given.get("keep_mask")
        for name, x in given.items():
            if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
                continue
            wrong = ~np.isfinite(x)
            if is_masked := mask is not None and x.ndim > mask.ndim and x.shape[: mask.ndim] == mask.shape:
                wrong[~mask] = False
            if wrong.any():
                at = tuple(map(int, np.argwhere(wrong)[0]))
                return f"{name}{list(at)} is {x[at]}{' where keep_mask is True' * is_masked}"
    return ""


def diagnosis(loss, state, ranks, lr, clip_norm, of_data=""):
    """The text of a ``NonFiniteError``: what is not finite on any rank, and what to try; in the data, ``of_data``."""
    bad_params, bad_grads = (ranks.union(tree.not_finite(x)) for x in (state.params, state.grads))
    advice = f"Try a lower learning rate (now {lr:g}), clip_norm=1.0 (now {clip_norm}), or a longer warm-up."
    where = "no parameter or gradient is NaN or inf"
    if math.isfinite(loss):
        where += ", but the square of the gradient's norm is too large for its dtype"
    if bad_params:
        where = f"parameter {bad_params[0]} holds NaN or inf (one of {len(bad_params)})"
        advice = "It did so before this step: go on from a checkpoint. " + advice
    elif of_data:
        where, advice = of_data, "Mask what is missing, if the model takes a keep_mask, or leave it out."
    elif bad_grads:
        where = f"the gradient of {bad_grads[0]} holds NaN or inf (one of {len(bad_grads)})"
    return (
        f"step {state.n_steps + 1}: the loss is {loss:g}; {where}. The step was not taken: parameters are those "
        f"of step {state.n_steps}. {advice}"
    )
