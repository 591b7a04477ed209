"""The turns of contenders with one case, and the figures that they give."""

import statistics

import numpy as np

from scripts.bench.contenders import agreeing, alternate, build_all
from scripts.bench.limits import best_of, measure_own_limit
from scripts.bench.report import timing


def measured(
    contenders,
    case,
    options,
    limits=None,
    *,
    flops=None,
    own_limit_of=None,
    differs=None,
    inexact=(),
    warm_up=2,
):
    """Let contenders, built for a case, and ``limits`` take turns: the best limits, the cores of
    other programs, and the ``figures_of`` each contender.

    ``flops`` are those of a step, and ``own_limit_of()`` returns the step whose own limit is
    measured. ``differs`` and ``inexact`` are explained at ``agreeing``.
    """
    able = build_all(contenders, *case, warm_up=warm_up)
    if differs:
        able = agreeing(able, differs, inexact)
    if own_limit_of:
        measure_own_limit(limits, options.sgemm_sizes, own_limit_of)
    both = [*able, limits] if limits else able
    turns, others = alternate(both, options.rounds, options.seconds)
    facts = {"other_programs_cores": others}
    if limits:
        facts |= limits_of(value for _, value in turns.pop(limits.name))
    first = contenders[0].name if contenders else None
    figures = {one.name: figures_of(one, turns, first) for one in able if one.name in turns}
    if flops:
        for found in figures.values():
            rate(found, flops, facts)
    return facts | {"contenders": figures}


def limits_of(values):
    """The best limits of all turns; of the speed of reading the median. With the seconds of the
    step's own limit, and those of each operation, if they were measured.
    """
    values = list(values)
    own = [of.pop("own_limit", None) for of in values][-1]  # each is at most the one before
    # Memory is faster at one time than at another, and a contender's time is a median, too.
    best = best_of(values) | {"read": statistics.median([of["read"] for of in values])}
    if not own:
        return {"limits": best}
    seconds = sum(of["products"] + of["bytes"] for of in own.values())
    return {"limits": best, "own_limit": {"seconds": seconds, "operations": own}}


def figures_of(contender, turns, first):
    """The figures of a contender after its turns, by name."""
    memory, value = contender.memory(), contender.built.first_value
    return timing(turns, contender.name, first) | {
        "first_value": value if np.isscalar(value) else None,
        "build_seconds": contender.built.build_seconds,
        "libraries_bytes": memory.libraries,
        "training_bytes": memory.peak - memory.libraries,
        "running_bytes": memory.running_peak - memory.libraries,
        "step_bytes": memory.running_peak - memory.built,
    }


def rate(found, flops, facts):
    """Add the GFLOP/s of figures, their share of the best sgemm, and that of the own limit."""
    seconds = found["seconds"]["median"]
    found["gflops"] = flops / seconds / 1e9
    found["share_of_sgemm"] = found["gflops"] / facts["limits"]["sgemm"]
    own = facts.get("own_limit")
    found["share_of_own_limit"] = own["seconds"] / seconds if own else None
