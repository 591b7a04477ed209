"""What recurrent cells share: the order of the steps.

What the input says to the gates, ``linear(x, ...)``, is computed for all steps at once before; a recurrence does what
has to be done step after step. At a step that ``keep_mask`` leaves out the state stays as it is.
"""


def steps(T, reverse):
    """The order of the steps.

    Examples
    --------
    >>> list(steps(3, reverse=True))
    [2, 1, 0]
    """
    return range(T - 1, -1, -1) if reverse else range(T)


def state_before(t, states, first, reverse):
    """What the state was when step t began: (B, D), of states (B, T, D)."""
    before = t + 1 if reverse else t - 1
    return states[:, before] if 0 <= before < states.shape[1] else first
