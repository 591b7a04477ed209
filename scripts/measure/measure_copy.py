"""Measure the README's figures for the copy task: run each preset, task and seed in its own
process, and print a table.

python scripts/measure/measure_copy.py   # quick preset, both tasks, seeds 0 to 4: three minutes
python scripts/measure/measure_copy.py --annotated  # and the annotated preset: two minutes more
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from npformer.commands.arguments import new_parser, positive  # needs pip install -e .
from npformer.commands.command import command
from scripts.bench.machine import machine, print_machine
from scripts.bench.report import note, print_table

SCRIPT = Path(__file__).resolve().parents[1] / "train_copy.py"


@command
def main(argv=None):
    parser = new_parser(__doc__)
    parser.add_argument("--annotated", action="store_true", help="the annotated preset too")
    parser.add_argument(
        "--seeds", type=positive, default=5, help="number of seeds, from 0 on (default: 5)"
    )
    parser.add_argument("--backend", default="auto", help="as for train_copy.py (default: auto)")
    options = parser.parse_args(argv)

    cases = [("quick", task, range(options.seeds)) for task in ("copy", "reverse")]
    if options.annotated:
        cases.append(("annotated", "copy", range(1)))
    print_machine(machine())
    rows = []
    for preset, task, seeds in cases:
        note(f"{preset}, {task}")
        figures = [run(preset, task, seed, options.backend) for seed in seeds]
        row = [preset, task, f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"]
        percents = lambda name, figures=figures: spread([100 * of[name] for of in figures])
        row += [f"{percents(name)} %" for name in ("exact_match", "exact_match_longer")]
        row.append(spread([of["seconds"] for of in figures]))
        rows.append(row)
    note("")
    columns = "seeds", "exact match, held out", "longer than in training", "seconds"
    print_table(["preset", "task", *columns], rows)


def run(preset, task, seed, backend):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        arguments = ["--preset", preset, "--task", task, "--seed", str(seed), "--backend", backend]
        train = [sys.executable, SCRIPT, *arguments, "--quiet", "--no-plots", "--json", path]
        if subprocess.run(train, stdout=subprocess.DEVNULL).returncode:
            raise SystemExit(1)  # the script has said why
        return json.loads(path.read_text())


def spread(values):
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} … {high}"


if __name__ == "__main__":
    sys.exit(main())
