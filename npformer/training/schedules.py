"""Schedules: the learning rate as a function of the step; the first step is 1."""

import math

from npformer.checks import check_int
from npformer.operations.options import check_option


def constant(lr):
    """The same learning rate at every step.

    Examples
    --------
    >>> constant(0.1)(1000)
    0.1
    """
    lr = check_option("lr", lr)
    return lambda step: lr


def noam(d_model, warmup=4000, factor=1.0):
    """The paper's schedule (section 5.3): factor · D^-½ · min(step^-½, step · warmup^-3/2).

    It rises linearly for ``warmup`` steps, then falls with the inverse square root of the step.

    Examples
    --------
    >>> rate = noam(d_model=512, warmup=4000)
    >>> [round(rate(step), 6) for step in (1, 4000, 16000)]
    [0.0, 0.000699, 0.000349]
    """
    d_model, warmup = check_option("d_model", d_model), check_option("warmup", warmup)
    factor = check_option("factor", factor)
    return lambda step: factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def inverse_sqrt(peak, warmup):
    """Rise linearly to ``peak`` in ``warmup`` steps, then fall with the inverse square root of the step.

    It is ``noam``, parametrised by its highest learning rate.

    Examples
    --------
    >>> rate = inverse_sqrt(peak=0.005, warmup=2000)
    >>> [rate(step) for step in (1000, 2000, 8000)]
    [0.0025, 0.005, 0.0025]
    """
    peak, warmup = check_option("peak", peak), check_option("warmup", warmup)
    return lambda step: peak * min(step / warmup, (warmup / step) ** 0.5)


def warmup_cosine(peak, warmup, total, floor=0.0):
    """Rise linearly to ``peak`` in ``warmup`` steps, then fall along half a cosine to ``floor`` at step ``total``.

    Examples
    --------
    >>> rate = warmup_cosine(peak=1.0, warmup=10, total=110)
    >>> [round(rate(step), 3) for step in (1, 10, 60, 110, 200)]
    [0.1, 1.0, 0.5, 0.0, 0.0]
    """
    peak, total = check_option("peak", peak), check_option("total", total)
    warmup, floor = check_int("warmup", warmup), check_option("floor", floor)
    if not 0 <= warmup < total:
        raise ValueError(f"warmup={warmup}, total={total}: expected 0 <= warmup < total")

    def rate(step):
        if step < warmup:
            return peak * step / warmup
        progress = min((step - warmup) / (total - warmup), 1.0)
        return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * progress))

    return rate
