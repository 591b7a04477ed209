"""Check that the tests notice when a kernel does not run.

Replace each kernel by the reference, one at a time.

    python tests/tools/sabotage_kernels.py  # every kernel of npformer.cpu and npformer.gpu
    python tests/tools/sabotage_kernels.py --only layer_norm  # or cpu.layer_norm
    python tests/tools/sabotage_kernels.py --sample 10

Without a GPU the kernels of ``npformer.gpu`` run on the tests' simulation of a GPU.
"""

import os
import subprocess
import sys
from pathlib import Path

from npformer import cpu, reference
from tests.tools.tool import Natural, Seed, sampled, tool

ROOT = Path(__file__).resolve().parents[2]
# environment variable of the test process, for example "cpu.layer_norm"
SABOTAGED = "NPFORMER_SABOTAGED"


@tool
def main(*, only: str = "", sample: Natural | None = None, seed: Seed = 0):
    """Sabotage kernels.

    Parameters
    ----------
    only
        only the kernels whose names begin with this
    sample
        so many of them, drawn at random
    """
    from tests.on_gpu import gpu

    names = [f"cpu.{name}" for name in sorted(cpu.ops.kernels)]
    names += [f"gpu.{name}" for name in sorted(gpu.ops.kernels)]
    begins = only, f"cpu.{only}", f"gpu.{only}"
    chosen = [name for name in names if name.startswith(begins)]
    kernels = sampled(chosen, sample, seed)
    for backend in sorted({name.partition(".")[0] for name in kernels}):
        if not passes(f"{backend}."):
            sys.exit("the tests fail without any sabotage, so no kernel can be tested")
    survivors = []
    for name in kernels:
        is_noticed = not passes(name)
        print(f"{name}: {'noticed' if is_noticed else 'NOT NOTICED'}", flush=True)
        if not is_noticed:
            survivors.append(name)
    print(f"{len(kernels)} kernels were sabotaged, without any test noticing:")
    return survivors


def passes(sabotaged):
    """Whether the tests of an operation pass without its kernel.

    Without a name after the backend, all tests with every kernel.
    """
    backend, name = sabotaged.split(".")
    tests = [sys.executable, "-m", "pytest", "-q", "-x"]
    tests += ["-p", "tests.tools.sabotage_kernels", "-p", "no:cacheprovider"]
    tests += ["tests/operations/test_parity.py", "-k", f"{name} and {backend}" if name else backend]
    environment = {**os.environ, SABOTAGED: sabotaged, "PYTHONPATH": str(ROOT)}
    status = subprocess.run(tests, cwd=ROOT, env=environment, capture_output=True).returncode
    if status not in (0, 1):
        sys.exit(f"{' '.join(tests)} ended with {status}: tests could not be run")
    return status == 0


def pytest_configure():
    """Replace a kernel by the reference, when this file is used as a pytest plugin."""
    backend, _, name = os.environ.get(SABOTAGED, "").partition(".")
    if not name:
        return
    # the name by which the tests import it: under another it would be another backend
    from on_gpu import ON_GPU, gpu

    assert name in (gpu if backend == "gpu" else cpu).ops.kernels
    for ops in (gpu.ops, ON_GPU) if backend == "gpu" else (cpu.ops,):
        setattr(ops, name, getattr(reference, name))


if __name__ == "__main__":
    sys.exit(main())
