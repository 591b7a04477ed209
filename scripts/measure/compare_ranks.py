"""Compare the loss curves of trainings on 1, 2, … ranks of MPI with the same number of shards.

python scripts/measure/compare_ranks.py --data data/multi30k
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.arguments import new_parser, positive  # needs pip install -e .
from scripts.command import command
from scripts.on_ranks import mpiexec

from npformer.training import JsonLog
from npformer.training.loop import LOG

TRAIN = Path(__file__).parents[1] / "train_translation.py"
RECIPE = "--warmup 100 --validate-every 1000000 --minutes 60 --quiet"
N_SHARDS = 12  # which 1, 2, 3 and 4 ranks share evenly


@command
def main(argv=None):
    parser = new_parser(__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help="folder with Multi30k")
    add("--ranks", type=positive, default=4, help="the most ranks (default: 4)")
    add("--steps", type=positive, default=200, help="(default: 200)")
    add("--max-tokens", type=positive, default=1000, help="of a batch (default: 1000)")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        curves = {n: losses_of(n, Path(folder) / str(n), options) for n in range(1, options.ranks + 1)}
    for n, losses in curves.items():
        difference = max(abs(loss - one) / one for loss, one in zip(losses, curves[1], strict=True))
        print(f"{n} ranks: loss {losses[0]:.6f} … {losses[-1]:.6f}, largest relative difference {difference:.1e}")


def losses_of(n, out, options):
    """The loss of each step of a training on n ranks."""
    sizes = f"--steps {options.steps} --max-tokens {options.max_tokens} --n-shards {N_SHARDS} --vocab-size 2000"
    arguments = ["--data", options.data, "--out", out, *f"{sizes} {RECIPE}".split()]
    subprocess.run([*mpiexec(n), sys.executable, TRAIN, *arguments], check=True)
    return [record["loss"] for record in JsonLog.read(out / LOG) if "loss" in record]


if __name__ == "__main__":
    sys.exit(main())
