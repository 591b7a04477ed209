"""Measure what ``fit(watch=True)`` costs: trainings of a few steps with it and without it, in turns, in one process.

python scripts/measure/measure_watching.py
python scripts/measure/measure_watching.py --size small --steps 50

The sizes are those of ``bench_train.py``. Of 50 watched steps one has a look at all arrays, as in a training.
"""

import itertools
import statistics
import sys
import time
import warnings

from npformer.commands.arguments import new_parser, positive  # needs pip install -e .
from npformer.commands.command import command
from scripts.bench.steps import LEARNING_RATE, SIZES, batch_of, model_of

import npformer as nf
from npformer.diagnosis.watch import Watch


@command
def main(argv=None):
    parser = new_parser(__doc__)
    parser.add_argument("--size", default="base", choices=SIZES, help="(default: base)")
    parser.add_argument("--steps", type=positive, default=10, help="steps in a turn (default: 10)")
    parser.add_argument("--rounds", type=positive, default=7, help="turns with and without (default: 7)")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    batch = batch_of(SIZES[options.size])
    trainer = nf.Trainer(model_of(SIZES[options.size]), nf.Adam(LEARNING_RATE))
    watch = Watch(trainer, lambda record: None, known=())
    turns = []
    for turn in range(options.rounds + 1):
        times = {}
        for watched in (False, True) if turn % 2 else (True, False):
            batches = itertools.repeat(batch, options.steps)
            batches, callbacks = (watch.of(batches), [watch]) if watched else (batches, [])
            start = time.perf_counter()
            trainer.fit(batches, callbacks=callbacks, progress=False)
            times[watched] = (time.perf_counter() - start) / options.steps
        turns.append((times[False], times[True]))
        print(
            f"turn {turn}: {1e3 * times[False]:.1f} ms a step, watched {times[True] / times[False] - 1:+.1%}",
            flush=True,
        )
    turns = turns[1:]  # the first one compiles, and fills caches
    ratio = statistics.median(after / before for before, after in turns)
    together = sum(after for _, after in turns) / sum(before for before, _ in turns)
    print(f"{options.size}: watching costs {ratio - 1:+.1%} (median of the turns), {together - 1:+.1%} (all together)")


if __name__ == "__main__":
    sys.exit(main())
