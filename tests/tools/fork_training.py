"""Fork a process again and again while its threads train and decode.

The children have to work.

    python tests/tools/fork_training.py
    python tests/tools/fork_training.py --forks 10 --threads 3

A child inherits every lock as it was at the moment of the fork, but of the threads only the one
that forked. Each child makes a new model, trains it on two threads and decodes with it; its
parameters and its decoded sequences have to be those that the parent computed. A child fails, too,
if it does not end.
"""

import os
import random
import sys
import threading
import time

import numpy as np

from npformer.runtime.blas_threads import blas_threads
from tests.tools.small_training import SmallTraining
from tests.tools.tool import Natural, Seed, in_child, tool

HANGS = 20  # seconds after which a child counts as hanging


@tool
def main(*, forks: Natural = 100, threads: Natural = 2, seed: Seed = 0):
    """Fork a process.

    Parameters
    ----------
    forks
        of the process
    threads
        that train meanwhile
    """
    moments = random.Random(seed)
    stop = threading.Event()
    with blas_threads(2):
        expected = work(seed)
        training = [threading.Thread(target=work_until, args=(stop, i)) for i in range(threads)]
        for thread in training:
            thread.start()
        outcomes = []
        for _ in range(forks):
            time.sleep(moments.uniform(0, 0.05))
            child = in_child(lambda: np.array_equal(work(seed), expected))
            outcomes.append(outcome_of(child))
        stop.set()
        for thread in training:
            thread.join()
    print(f"{forks} forks beside {threads} threads")
    return [outcome for outcome in outcomes if outcome != "right"]


def work(seed):
    """The result of a new training of some steps."""
    return SmallTraining(seed).train_to(3).result()


def work_until(stop, seed):
    """Do such work again and again."""
    while not stop.is_set():
        work(seed)


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


if __name__ == "__main__":
    sys.exit(main())
