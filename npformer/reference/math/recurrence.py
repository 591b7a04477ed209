"""What the recurrent cells share: the order of the steps.

The linear map of the input, ``x_gates``, is computed for all steps at once before the recurrence;
the recurrence does only what must be done step by step. Where ``keep_mask`` is False, the state
does not change.
"""

import numpy as np


def steps(T, reverse):
    """The order of the steps."""
    forward = range(T)
    return forward[::-1] if reverse else forward


def state_before(t, states, first, reverse):
    """The state before step t, (B, D), from the states (B, T, D); ``first`` is the state before the
    first step.
    """
    _, T, _ = states.shape
    before = t + 1 if reverse else t - 1
    if 0 <= before < T:
        return states[:, before]
    return first


def states_before(states, first, reverse):
    """The state before each step, (B, T, D), as one array."""
    before = np.empty_like(states)
    if reverse:
        before[:, :-1] = states[:, 1:]
        before[:, -1] = first
    else:
        before[:, 1:] = states[:, :-1]
        before[:, 0] = first
    return before
