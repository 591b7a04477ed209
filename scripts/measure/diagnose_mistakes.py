"""Plant mistakes into models, batches, trainers and decoders, and count which of them
npformer.diagnose finds.

python scripts/measure/diagnose_mistakes.py             # minutes
python scripts/measure/diagnose_mistakes.py --only causal

A mistake is found if there is any finding, and named rightly if one of the first two has a name
that a user would call right; no finding has a name for those without one. Some are seen only while
a model trains, with ``watch``. Beside them are healthy trainings and new models, in which every
finding is a false alarm.
"""

import sys
import time
import warnings
from collections import Counter

from npformer.commands.shared import (  # needs pip install -e .
    JsonFile,
    command_line,
    write_json,
)
from scripts.bench.report import print_table
from scripts.measure.diagnosed.healthy import healthy
from scripts.measure.diagnosed.mistakes import MISTAKES

import npformer as nf


@command_line
def main(*, only: str = "", verbose: bool = False, json: JsonFile | None = None):
    """Diagnose the mistakes.

    Parameters
    ----------
    only : WORD
        mistakes and healthy models whose title has this word
    verbose
        print each report
    """
    warnings.simplefilter("ignore")
    mistakes = diagnosed_mistakes(only, verbose)
    alarms = false_alarms(only, verbose)
    write_json(json, {"mistakes": mistakes, "healthy": alarms})


def diagnosed_mistakes(only, verbose):
    """The findings for each mistake; prints a table of them, and how many were found."""
    figures = {}
    rows = []
    counts = Counter()
    for title, names, make, _ in MISTAKES:
        if only not in title:
            continue
        findings = examined(make(), verbose).names
        is_named = bool(names & set(findings[:2]))
        outcome = "named" if is_named else "found" if findings else "MISSED"
        counts[outcome] += 1
        figures[title] = {"findings": findings, "named": is_named}
        rows.append((title, outcome, ", ".join(findings[:4])))
    print_table(["mistake", "", "findings"], rows)
    n_found = counts["named"] + counts["found"]
    named = f"{counts['named']} named rightly, {counts['MISSED']} missed"
    print(f"{len(rows)} mistakes: {n_found} found, {named}\n")
    return figures


def false_alarms(only, verbose):
    """The findings for each healthy training and new model; prints those that have any."""
    figures = {}
    for title, make in healthy():
        if only not in title:
            continue
        figures[title] = findings = examined(make(), verbose).names
        if findings:
            print(f"false alarm: {title}: {', '.join(findings)}")
    n_alarms = sum(map(bool, figures.values()))
    print(f"{n_alarms} false alarms in {len(figures)} healthy trainings and new models")
    return figures


def examined(case, verbose):
    """The findings for the arguments of ``diagnose``, or of ``fit``."""
    start = time.perf_counter()
    if "fit" in case:
        with warnings.catch_warnings(action="ignore"):
            case["trainer"].fit(*case["fit"], **case["options"])
        found = case["trainer"].watched.findings
    else:
        found = nf.diagnose(**case)
    if verbose:
        print(found, f"\n{time.perf_counter() - start:.1f} s\n")
    return found


if __name__ == "__main__":
    sys.exit(main())
