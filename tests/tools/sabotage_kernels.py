"""Check that the tests notice when a kernel does not run.

Replace each kernel by the reference, one at a time.

    python tests/tools/sabotage_kernels.py  # every kernel of npformer.cpu and npformer.gpu
    python tests/tools/sabotage_kernels.py --backend cpu --only layer_norm
    python tests/tools/sabotage_kernels.py --sample 10

Without a GPU the kernels of ``npformer.gpu`` run on the tests' simulation of a GPU. The exit status
is 1 if the tests do not notice the absence of a kernel.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

from npformer.commands.arguments import natural, new_parser, positive
from npformer.commands.command import command  # needs pip install -e .

from npformer import cpu, reference

ROOT = Path(__file__).resolve().parents[2]
# environment variable of the test process, for example "cpu.layer_norm"
SABOTAGED = "NPFORMER_SABOTAGED"


@command
def main(argv=None):
    parser = new_parser(__doc__)
    parser.add_argument("--backend", choices=("cpu", "gpu"), help="only kernels of this backend")
    parser.add_argument("--only", default="", help="only kernels whose name begins with this")
    parser.add_argument(
        "--sample",
        type=positive,
        metavar="N",
        help="so many kernels, drawn at random (default: all)",
    )
    parser.add_argument(
        "--seed", type=natural, default=0, help="of the sample (default: %(default)s)"
    )
    options = parser.parse_args(argv)
    from tests.on_gpu import gpu

    kernels = [
        (backend, name)
        for backend, ops in (("cpu", cpu.ops), ("gpu", gpu.ops))
        for name in sorted(ops.kernels)
        if options.backend in (None, backend) and name.startswith(options.only)
    ]
    if options.sample and options.sample < len(kernels):
        kernels = random.Random(options.seed).sample(kernels, options.sample)
    survivors = []
    if not all(passes(backend, "") for backend in {backend for backend, _ in kernels}):
        sys.exit("the tests fail without any sabotage, so no kernel can be tested")
    for backend, name in kernels:
        noticed = not passes(backend, name)
        survivors += [] if noticed else [f"{backend}.{name}"]
        print(f"{backend}.{name}: {'noticed' if noticed else 'NOT NOTICED'}", flush=True)
    print(
        f"{len(kernels)} kernels were sabotaged, {len(survivors)} without any test noticing",
        *survivors,
    )
    return 1 if survivors else 0


def passes(backend, name):
    """Whether the tests of an operation pass without its kernel.

    If the name is empty, all tests with every kernel.
    """
    tests = [sys.executable, "-m", "pytest", "-q", "-x"]
    tests += ["-p", "tests.tools.sabotage_kernels", "-p", "no:cacheprovider"]
    tests += ["tests/operations/test_parity.py", "-k", f"{name} and {backend}" if name else backend]
    environment = {**os.environ, SABOTAGED: f"{backend}.{name}", "PYTHONPATH": str(ROOT)}
    status = subprocess.run(tests, cwd=ROOT, env=environment, capture_output=True).returncode
    if status not in (0, 1):
        sys.exit(f"{' '.join(tests)} ended with {status}: tests could not be run")
    return status == 0


def pytest_configure():
    """Replace a kernel by the reference, when this file is used as a pytest plugin."""
    if SABOTAGED not in os.environ:
        return
    backend, name = os.environ[SABOTAGED].split(".")
    if not name:
        return
    # the name by which the tests import it: under another it would be another backend
    from on_gpu import ON_GPU, gpu

    assert name in (gpu if backend == "gpu" else cpu).ops.kernels
    for ops in (gpu.ops, ON_GPU) if backend == "gpu" else (cpu.ops,):
        setattr(ops, name, getattr(reference, name))


if __name__ == "__main__":
    sys.exit(main())
