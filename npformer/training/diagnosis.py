"""Why a loss is not finite, for the error that stops the training."""

import math

from npformer import tree


class NonFiniteError(FloatingPointError):
    """The loss or the gradient became NaN or infinite; the parameters are those from before the step."""


def diagnosis(loss, state, sums, ranks, lr, clip_norm):
    """The text of a ``NonFiniteError``: what is not finite on any rank, and what to try."""
    bad_params, bad_grads = map(ranks.union, (tree.not_finite(state.params), sums.not_finite()))
    advice = f"Try a lower learning rate (now {lr:g}), clip_norm=1.0 (now {clip_norm}), or a longer warm-up."
    where = "no parameter or gradient is NaN or inf"
    if math.isfinite(loss):
        where += ", but the gradient's norm is too large for its dtype"
    if bad_params:
        where = f"parameter {bad_params[0]} holds NaN or inf (one of {len(bad_params)})"
        advice = "It did so before this step: go on from a checkpoint. " + advice
    elif bad_grads:
        where = f"the gradient of {bad_grads[0]} holds NaN or inf (one of {len(bad_grads)})"
    return (
        f"step {state.n_steps + 1}: the loss is {loss:g}; {where}. The step was not taken: parameters are those "
        f"of step {state.n_steps}. {advice}"
    )
