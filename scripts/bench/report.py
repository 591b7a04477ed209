"""What a benchmark reports: statistics of its times, numbers as they are shown, tables."""

import math
import statistics
import sys

import numpy as np


def summary(values):
    """Median, min, max and spread, which is (max - min) / median."""
    median = statistics.median(values)
    return {
        "median": median,
        "min": min(values),
        "max": max(values),
        "spread": (max(values) - min(values)) / median,
    }


def times_as_long(theirs, ours):
    """Median over the rounds of their time divided by ours: whatever slows down a round affects
    both.
    """
    return statistics.median(their / our for their, our in zip(theirs, ours, strict=True))


def timing(turns, name, first=None):
    """The times of one contender: a summary of its seconds, their ratio to those of the first, and
    all rounds.

    ``first`` is the contender to compare with, by default the first in ``turns``. If it has failed,
    the ratio is None.
    """
    seconds = [second for second, _ in turns[name]]
    ours = [second for second, _ in turns.get(first or next(iter(turns)), ())]
    ratio = times_as_long(seconds, ours) if ours else None
    return {"seconds": summary(seconds), "times_as_long": ratio, "rounds": seconds}


def rated(found, flops, facts):
    """A ``timing`` with its GFLOP/s and their share of the best sgemm, and with the share of its
    own limit or None.
    """
    seconds = found["seconds"]["median"]
    rate = flops / seconds / 1e9
    share = facts["own_limit"]["seconds"] / seconds if "own_limit" in facts else None
    return found | {
        "gflops": rate,
        "share_of_sgemm": rate / facts["limits"]["sgemm"],
        "share_of_own_limit": share,
    }


def fit_power(x, y):
    """(p, c) of the power law c xᵖ that fits the upper half of the points (a straight line on
    logarithmic axes).
    """
    points = upper_half(sorted(zip(x, y, strict=True)))
    if len(points) < 2 or min(y for _, y in points) <= 0:
        return math.nan, math.nan
    p, log_c = np.polyfit(*np.log(np.array(points)).T, deg=1)
    return float(p), float(np.exp(log_c))


def upper_half(points):
    """The upper half of sorted points, where constant costs no longer count; all points if there
    are up to three.
    """
    return points[len(points) // 2 :] if len(points) > 3 else points


def short(number):
    """A number with three significant digits: 0.0123, 12.3, 1,234; "–" for None and NaN."""
    if number is None or math.isnan(number):
        return "–"
    decimals = 2 - math.floor(math.log10(abs(number))) if number else 0
    return f"{number:,.{min(max(decimals, 0), 6)}f}"


def percent(share):
    """A share as whole per cent; "–" for None."""
    return "–" if share is None else f"{100 * share:.0f} %"


def milliseconds(figures, which="median"):
    """The median of ``timing``, or another of its statistics."""
    return short(1e3 * figures["seconds"][which])


def time_cells(figures):
    """The cells of a table for ``timing``: milliseconds, their spread, the ratio to the first
    contender.
    """
    return [
        milliseconds(figures),
        percent(figures["seconds"]["spread"]),
        f"{figures['times_as_long']:.2f}",
    ]


def print_shares(results, shares, with_memory=False):
    """Print a line for each contender of each result: its times, and these of its figures, which
    are shares; ``shares`` has the title of each.
    """
    memory = ["MB"] if with_memory else []
    rows = []
    for result in results:
        for name, found in result["contenders"].items():
            row = [result["what"], name, *time_cells(found)]
            row += [percent(found[share]) for share in shares.values()]
            if with_memory:
                row.append(f"{found['memory'] / 1e6:,.0f}")
            rows.append(row)
    print_table(["", "", "ms", "spread", "× first", *shares, *memory], rows)


def note(text):
    """Show the progress in a terminal, in a line that the next call overwrites."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def print_table(header, rows):
    """Print an aligned Markdown table: the first column to the left, the others to the right."""
    cells = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(_aligned(row, widths)) + " |" for row in cells]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    print("\n".join([lines[0], "| " + " | ".join(rule) + " |", *lines[1:]]), flush=True)


def _aligned(row, widths):
    return [
        row[0].ljust(widths[0]),
        *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
    ]
