"""Fork a process again and again while its threads train and decode.

The children have to work.

    python tests/tools/fork_training.py
    python tests/tools/fork_training.py --forks 10 --threads 3

A child inherits every lock as it was at the moment of the fork, but of the threads only the one
that forked. Each child makes a new model, trains it on two threads and decodes with it; its
parameters and its decoded sequences have to be those that the parent computed. The exit status is 1
if a child fails, or does not end.
"""

import os
import random
import sys
import threading
import time

import numpy as np

from npformer.commands.arguments import natural, new_parser, positive  # needs pip install -e .
from npformer.commands.command import command

from npformer import Adam, Trainer, Transformer, greedy_decode
from npformer.runtime.blas_threads import blas_threads
from npformer.text import CopyTask

HANGS = 20  # seconds after which a child counts as hanging


@command
def main(argv=None):
    options = parse_arguments(argv)
    moments, stop = random.Random(options.seed), threading.Event()
    with blas_threads(2):
        expected = work(options.seed)
        threads = [
            threading.Thread(target=work_until, args=(stop, i)) for i in range(options.threads)
        ]
        for thread in threads:
            thread.start()
        outcomes = []
        for _ in range(options.forks):
            time.sleep(moments.uniform(0, 0.05))
            outcomes.append(outcome_of(fork(options.seed, expected)))
        stop.set()
        for thread in threads:
            thread.join()
    counts = {outcome: outcomes.count(outcome) for outcome in ("right", "wrong", "hangs")}
    print(f"{options.forks} forks beside {options.threads} threads: {counts}")
    return int(counts["right"] != options.forks)


def work(seed):
    """Train a new model for some steps on two threads, and decode with it.

    Its parameters and the decoded ids.
    """
    task = CopyTask(seed=seed)
    model = Transformer(
        task.vocab, task.vocab, d_model=16, n_heads=2, n_layers=1, d_ff=32, dropout=0.1
    )
    trainer = Trainer(model, Adam(lr=1e-3), seed=seed, n_shards=2, backend="cpu")
    for step in range(3):
        trainer.step(*task.batch(step, 8))
    rows = greedy_decode(model, trainer.params, task.batch(0, 80)[0], bos_id=1, eos_id=2, max_len=4)
    return np.concatenate([trainer.flat_params, *map(np.asarray, rows)])


def work_until(stop, seed):
    """Do such work again and again."""
    while not stop.is_set():
        work(seed)


def fork(seed, expected):
    """Start a child that does the work, and ends with 0 if the result is as expected,
    else with 1.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = int(not np.array_equal(work(seed), expected))
        finally:
            os._exit(status)
    return child


def outcome_of(child):
    """Wait for a child to end: "right", "wrong" or "hangs"."""
    deadline = time.monotonic() + HANGS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "right" if status == 0 else "wrong"
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"


def parse_arguments(argv):
    parser = new_parser(__doc__)
    parser.add_argument("--forks", type=positive, default=100, metavar="N")
    parser.add_argument(
        "--threads", type=positive, default=2, metavar="N", help="that train meanwhile (default: 2)"
    )
    parser.add_argument("--seed", type=natural, default=0)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
