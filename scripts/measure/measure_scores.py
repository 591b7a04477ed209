"""Compare the cost of the dot-product score and the additive score: operations, memory and time, on one thread.

python scripts/measure/measure_scores.py  # some seconds
"""

import sys
import timeit

import numpy as np

from npformer.commands.arguments import new_parser, positive  # needs pip install -e .
from npformer.commands.command import command
from scripts.bench.report import print_table

from npformer import reference as ops
from npformer.config import read_config
from npformer.runtime.blas_threads import blas_threads


@command
def main(argv=None):
    parser = new_parser(__doc__)
    parser.add_argument("--length", type=positive, default=256, help="queries, and keys (default: 256)")
    parser.add_argument("--widths", type=positive, nargs="+", default=[16, 64, 256], help="K (default: 16 64 256)")
    parser.add_argument("--repeats", type=positive, default=7, help="the fastest one counts (default: 7)")
    options = parser.parse_args(argv)

    processor = read_config()["processor"]
    print(f"{processor['name']}, one thread, NumPy {np.__version__}, float32, T = S = {options.length}, A = K\n")
    with blas_threads(1):
        rows = [row for K in options.widths for row in compare(options.length, K, options.repeats)]
    columns = "million operations", "MB of the largest array", "ms", "billion operations a second"
    print_table(["K", "score", *columns], rows)


def compare(T, K, repeats):
    """The rows of the table for one width: the dot product, the additive score."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, T, K), dtype=np.float32)
    w_q, w_k = rng.standard_normal((2, K, K), dtype=np.float32) / np.float32(K**0.5)
    w_score = rng.standard_normal(K, dtype=np.float32)
    contenders = [
        ("dot", 2 * T * T * K, 4 * T * T, lambda: ops.dot_score(q, k)),
        # two linear maps; then for each pair and hidden unit a sum, a tanh, a product and another sum
        ("additive", 4 * T * K * K + 4 * T * T * K, 4 * T * T * K, lambda: ops.additive_score(q, k, w_q, w_k, w_score)),
    ]
    for name, operations, size, score in contenders:
        score()  # which is not counted
        seconds = min(timeit.repeat(score, number=1, repeat=repeats))
        figures = operations / 1e6, size / 1e6, 1000 * seconds, operations / seconds / 1e9
        yield K, name, *(f"{figure:.3g}" for figure in figures)


if __name__ == "__main__":
    sys.exit(main())
