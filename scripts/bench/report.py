"""What a benchmark reports: statistics of its times, numbers as they are shown, tables."""

import math
import statistics
import sys


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


def timing(times, name, first):
    """The times of one contender: a summary of its seconds, their ratio to those of the first, and
    all rounds. The ratio is None if the first has failed.
    """
    seconds = [second for second, _ in times[name]]
    ours = [second for second, _ in times.get(first, ())]
    ratio = times_as_long(seconds, ours) if ours else None
    return {"seconds": summary(seconds), "times_as_long": ratio, "rounds": seconds}


def short(number):
    """A number with three significant digits: 0.0123, 12.3, 1,234; "–" for None and NaN."""
    if number is None or math.isnan(number):
        return "–"
    decimals = 2 - math.floor(math.log10(abs(number))) if number else 0
    return f"{number:,.{min(max(decimals, 0), 6)}f}"


def percent(share):
    """A share as whole per cent; "–" for None."""
    return "–" if share is None else f"{100 * share:.0f} %"


def milliseconds(seconds):
    return short(1e3 * seconds["median"])


def fastest(seconds):
    return short(1e3 * seconds["min"])


def spread(seconds):
    return percent(seconds["spread"])


def hundredths(number):
    return f"{number:.2f}"


def megabytes(n_bytes):
    return f"{n_bytes / 1e6:,.0f}"


def small_megabytes(n_bytes):
    return f"{n_bytes / 1e6:,.1f}"


CELLS = {  # a column: what of the figures of a contender it shows, and how
    "ms": ("seconds", milliseconds),
    "min": ("seconds", fastest),
    "spread": ("seconds", spread),
    "× first": ("times_as_long", short),
    "GFLOP/s": ("gflops", short),
    "GB/s": ("gb_per_second", short),
    "of sgemm": ("share_of_sgemm", percent),
    "of own limit": ("share_of_own_limit", percent),
    "fastest": ("best_share_of_own_limit", percent),
    "of reading": ("share_of_reading", percent),
    "tokens/s": ("tokens_per_second", short),
    "first loss": ("first_value", hundredths),
    "libraries MB": ("libraries_bytes", megabytes),
    "training MB": ("training_bytes", megabytes),
    "MB": ("running_bytes", megabytes),
    "step MB": ("step_bytes", small_megabytes),
}


def print_figures(results, columns):
    """Print a line for each contender of each result: the title ``what`` of the result, the
    contender's name, and columns of CELLS.
    """
    rows = []
    for result in results:
        for name, figures in result["contenders"].items():
            row = [result["what"], name]
            for column in columns:
                key, show = CELLS[column]
                row.append(show(figures[key]))
            rows.append(row)
    print_table(["", "", *columns], rows)


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
