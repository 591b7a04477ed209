"""What recurrent cells share: the order of the steps, and the door.

What the input says to the gates, ``linear(x, ...)``, is computed for all steps at once before; a recurrence does what
has to be done step after step. At a step that ``keep_mask`` leaves out the state stays as it is.
"""

from npformer.reference.checks import check_keep_mask, check_shape


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


def check_recurrence(n_gates, x_gates, keep_mask, weight, **first):
    """x_gates (B, T, n_gates D), weight (D, n_gates D), first states (B, D), keep_mask bool (B, T)."""
    if x_gates.ndim != 3 or x_gates.shape[2] % n_gates:
        raise ValueError(f"x_gates has shape {x_gates.shape}, expected (B, T, {n_gates}D)")
    B, T, width = x_gates.shape
    _check(B, T, width // n_gates, n_gates, weight, keep_mask, first)


def check_recurrence_backward(n_gates, weight, keep_mask, states, gates, first, along):
    """The same for the way back; ``first`` are named arrays (B, D), ``along`` ones like the states (B, T, D)."""
    if states.ndim != 3:
        raise ValueError(f"states has shape {states.shape}, expected (B, T, D)")
    B, T, D = states.shape
    check_shape(gates=(gates, (B, T, 4 * D)))
    check_shape(**{name: (x, states.shape) for name, x in along.items() if x is not None})
    _check(B, T, D, n_gates, weight, keep_mask, first)


def _check(B, T, D, n_gates, weight, keep_mask, first):
    check_shape(weight=(weight, (D, n_gates * D)))
    check_shape(**{name: (x, (B, D)) for name, x in first.items()})
    if keep_mask is not None:
        check_keep_mask(keep_mask)
        check_shape(keep_mask=(keep_mask, (B, T)))
