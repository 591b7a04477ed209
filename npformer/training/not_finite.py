"""Why the loss or the gradient of a step is not finite, and what to try."""

import inspect
import math

import numpy as np

from npformer import tree
from npformer.arrays import on_host


def not_finite_in(model, batches):
    """The first number of the batches that is not finite, as text; else "".

    What a ``keep_mask`` masks does not count.
    """
    names = inspect.signature(model.count).parameters
    for batch in batches:
        arrays = dict(zip(names, map(on_host, batch), strict=False))
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
