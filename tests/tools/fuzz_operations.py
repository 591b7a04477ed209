"""Call every operation with random arguments.

Kernels and reference have to agree, in results and in errors.

    python tests/tools/fuzz_operations.py
    python tests/tools/fuzz_operations.py --calls 1000 --seed 1 --only attention

Draws what ``tests/operations/test_fuzz.py`` draws, but more of it: sizes of 0 and 1, layouts, masks
that broadcast, large and tiny numbers, NaN and infinity. No call may crash, change its input or
raise anything but ``TypeError`` or ``ValueError``. A call that fails is printed with its arguments.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.tools.tool import Natural, Seed, tool

ROOT = Path(__file__).resolve().parents[2]


@tool
def main(*, calls: Natural = 1000, only: str = "", seed: Seed = 0):
    """Call operations.

    Parameters
    ----------
    calls
        of each operation
    only : NAME
        operations whose name contains this
    """
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests += ["tests/operations/test_fuzz.py", "-k", only]
    environment = {**os.environ, "NPFORMER_FUZZ": str(calls)}
    done = subprocess.run([*tests, f"--hypothesis-seed={seed}"], cwd=ROOT, env=environment)
    print(f"{calls} calls of each operation were drawn with seed {seed}")
    return ["the tests"] if done.returncode else []


if __name__ == "__main__":
    sys.exit(main())
