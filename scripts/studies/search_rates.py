"""Search the learning rate of each system of study_length.py, on the reverse task, with a seed not used in the study.

python scripts/studies/search_rates.py          # half an hour
python scripts/studies/search_rates.py --quick  # a minute, with the quick sizes of the study

Prints the share of sequences that are right, as the mean over the lengths of the study. The study uses the best rate of
each system.
"""

import sys

import numpy as np

from scripts.arguments import add_sizes, natural, new_parser, sizes_of  # needs pip install -e .
from scripts.command import command
from scripts.output import add_json, write_json
from scripts.studies.study_length import FULL, QUICK, VOCAB, model_of, right_by_length
from scripts.studies.systems import SYSTEMS

from npformer import CopyTask
from npformer.runtime.threads import blas_threads

RATES = (0.001, 0.002, 0.005, 0.01, 0.02)


@command
def main(argv=None):
    parser = new_parser(__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--quick", action="store_true", help="small models, short sequences, few updates: about a minute")
    add_sizes(parser, FULL, QUICK, steps="updates")
    add("--seed", type=natural, default=100, help="seed of the task and of the training (default: 100)")
    add_json(parser)
    options = parser.parse_args(argv)
    sizes = sizes_of(options, FULL, QUICK)
    task = CopyTask(vocab=VOCAB, min_len=1, max_len=sizes["longest"], reverse=True, seed=options.seed)
    figures = {"sizes": sizes, "seed": options.seed, "rates": RATES, "exact": {}}
    print(f"{'exact match, %':<22}" + "".join(f"{rate:>8}" for rate in RATES), flush=True)
    with blas_threads(1):  # the matrices are small
        for system in SYSTEMS:
            model = model_of(system, sizes)
            exact = [np.mean(right_by_length(model, task, sizes, rate)[0]) for rate in RATES]
            figures["exact"][system] = exact
            print(f"{system:<22}" + "".join(f"{right:8.1f}" for right in exact), flush=True)
            write_json(options.json, figures)  # so far, since the next system takes minutes


if __name__ == "__main__":
    sys.exit(main())
