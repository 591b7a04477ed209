"""Call every operation with random arguments.

Kernels and reference have to agree, in results and in errors.

    python tests/tools/fuzz_operations.py
    python tests/tools/fuzz_operations.py --calls 1000 --seed 1 --only attention

Draws what ``tests/operations/test_fuzz.py`` draws, but more of it: sizes of 0 and 1, layouts, masks
that broadcast, large and tiny numbers, NaN and infinity. No call may crash, change its input or
raise anything but ``TypeError`` or ``ValueError``. A call that fails is printed with its arguments.
The exit status is 1 if any failed.
"""

import os
import subprocess
import sys
from pathlib import Path

from npformer.commands.arguments import natural, new_parser, positive  # needs pip install -e .
from npformer.commands.command import command

ROOT = Path(__file__).resolve().parents[2]


@command
def main(argv=None):
    parser = new_parser(__doc__)
    parser.add_argument(
        "--calls",
        type=positive,
        default=1000,
        metavar="N",
        help="of each operation (default: 1000)",
    )
    parser.add_argument("--seed", type=natural, default=0)
    parser.add_argument(
        "--only", default="", metavar="NAME", help="operations whose name contains this"
    )
    options = parser.parse_args(argv)
    arguments = [sys.executable, "-m", "pytest", "-q"]
    arguments += ["-p", "no:cacheprovider", "tests/operations/test_fuzz.py"]
    arguments += [f"--hypothesis-seed={options.seed}", "-k", options.only]
    environment = {**os.environ, "NPFORMER_FUZZ": str(options.calls)}
    status = subprocess.run(arguments, cwd=ROOT, env=environment).returncode
    print(f"{options.calls} calls of each operation were drawn with seed {options.seed}")
    return status


if __name__ == "__main__":
    sys.exit(main())
