"""The turns of contenders with one workload, and the figures that they give."""

import statistics
from typing import NamedTuple

import numpy as np

from scripts.bench.contenders import agreeing, alternate, build_all
from scripts.bench.limits import best_of
from scripts.bench.report import timing

# The limit is made of best times: on a noisy machine a median is further from it by noise alone.
SHARES_OF_OWN_LIMIT = {"share_of_own_limit": "median", "best_share_of_own_limit": "min"}


class Workload(NamedTuple):
    """What contenders are built for, and what is known about a step of it."""

    arguments: tuple  # of their ``build``
    flops: float | None = None
    own_limit_of: object = None  # builds the step whose own limit is measured
    differs: object = None  # of first values, and contenders that may differ: see ``agreeing``
    inexact: tuple = ()
    warm_up: int = 2  # calls


def measured(contenders, workload, turns, limits=None):
    """Let contenders, built for a workload, and ``limits`` take turns: the best limits, the cores
    of other programs, and the ``figures_of`` each contender.
    """
    able = build_all(contenders, *workload.arguments, warm_up=workload.warm_up)
    if workload.differs:
        able = agreeing(able, workload.differs, workload.inexact)
    if workload.own_limit_of:
        limits.measure_own(workload.own_limit_of)
    both = [*able, limits] if limits else able
    times, others = alternate(both, turns)
    facts = {"other_programs_cores": others}
    if limits:
        facts |= limits_of(value for _, value in times.pop(limits.name))
    first = contenders[0].name if contenders else None
    figures = {one.name: figures_of(one, times, first) for one in able if one.name in times}
    if workload.flops:
        for of_contender in figures.values():
            add_rates(of_contender, workload.flops, facts)
    return facts | {"contenders": figures}


def limits_of(values):
    """The best limits of all turns; of the speed of reading the median. With the seconds of the
    step's own limit, and those of each operation, if they were measured.
    """
    values = list(values)
    operations = [of.pop("own_limit", None) for of in values][-1]  # each is at most the one before
    # Memory is faster at one time than at another, and a contender's time is a median, too.
    best = best_of(values) | {"read": statistics.median([of["read"] for of in values])}
    if not operations:
        return {"limits": best}
    seconds = sum(of["products"] + of["bytes"] for of in operations.values())
    return {"limits": best, "own_limit": {"seconds": seconds, "operations": operations}}


def figures_of(contender, times, first):
    """The figures of a contender after its turns, by name."""
    value = contender.built.first_value
    about = {
        "first_value": value if np.isscalar(value) else None,
        "build_seconds": contender.built.build_seconds,
    }
    return timing(times, contender.name, first) | about | contender.memory()


def add_rates(figures, flops, facts):
    """Add to figures the GFLOP/s, their share of the best sgemm, and those of the own limit: of the
    median, and of the fastest round.
    """
    seconds = figures["seconds"]["median"]
    figures["gflops"] = flops / seconds / 1e9
    figures["share_of_sgemm"] = figures["gflops"] / facts["limits"]["sgemm"]
    own_limit = facts.get("own_limit")
    for share, which in SHARES_OF_OWN_LIMIT.items():
        figures[share] = own_limit["seconds"] / figures["seconds"][which] if own_limit else None
