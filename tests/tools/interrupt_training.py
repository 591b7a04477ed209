"""Interrupt a training (Ctrl-C) again and again at random moments.

This may not change its result.

    python tests/tools/interrupt_training.py
    python tests/tools/interrupt_training.py --interrupts 200 --seed 1

One process trains on two threads and decodes; after each ``KeyboardInterrupt`` it goes on where it
was. A step that was made only in part, or twice, or a lock that was left behind, would show: at the
end the parameters have to be those of a training that was not interrupted, bit for bit, each
decoded batch what it was before, and nothing may hang.
"""

import faulthandler
import os
import random
import signal
import sys
import threading
import time

import numpy as np

from npformer.runtime import threads
from npformer.runtime.blas_threads import blas_threads
from tests.tools.small_training import SmallTraining
from tests.tools.tool import Natural, Seed, tool

HANGS = 120  # seconds without an interrupt after which the process counts as hanging


def advance(training):
    """Make a step, or three by ``fit``."""
    first = training.trainer.n_steps
    if first % 2:
        training.train_to(first + 1)
    else:
        batches = map(training.batch, range(first, first + 3))
        training.trainer.fit(batches, progress=False)


class Interrupter(threading.Thread):
    """Sends SIGINT to the process at a random time after the main thread has said that it is
    ready.
    """

    def __init__(self, longest, seed):
        super().__init__(daemon=True)
        self.ready = threading.Event()
        self.longest = longest
        self.random = random.Random(seed)

    def run(self):
        """Send the interrupts."""
        while True:
            self.ready.wait()
            self.ready.clear()
            time.sleep(self.random.uniform(0, self.longest))
            os.kill(os.getpid(), signal.SIGINT)


@tool
def main(*, interrupts: Natural = 10_000, seed: Seed = 0):
    """Interrupt a training.

    Parameters
    ----------
    interrupts
        of the training
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
    with blas_threads(2):
        undisturbed = SmallTraining(seed)
        training = SmallTraining(seed)
        params = SmallTraining(seed).trainer.params
        for _ in range(2):  # the first turn compiles the kernels
            start = time.perf_counter()
            advance(undisturbed)
            expected = undisturbed.decoded(params)
        interrupter = Interrupter(2 * (time.perf_counter() - start), seed)
        interrupter.start()
        n_wrong, n_decoded = interrupted(training, interrupter, interrupts, params, expected)
        undisturbed.train_to(training.trainer.n_steps)
        flat = [each.trainer.flat_params for each in (undisturbed, training)]
        n_threads = threads.n_threads()
    print(f"{interrupts} interrupts, {training.trainer.n_steps} steps, ", end="")
    print(f"{n_decoded} decodings")
    failures = {
        "the parameters are DIFFERENT": not np.array_equal(*flat),
        f"{n_wrong} decodings are wrong": n_wrong > 0,
        f"matrix products may use {n_threads} threads of 2": n_threads != 2,
        "the lock of the helpers is LEFT BEHIND": threads._kernels_have_helpers.locked(),
    }
    return [failure for failure, has_failed in failures.items() if has_failed]


def interrupted(training, interrupter, n_interrupts, params, expected):
    """Train and decode in turn until there were so many interrupts."""
    n_wrong = n_decoded = 0
    for _ in range(n_interrupts):
        faulthandler.dump_traceback_later(HANGS, exit=True)
        try:
            interrupter.ready.set()
            while True:
                advance(training)
                n_wrong += not np.array_equal(training.decoded(params), expected)
                n_decoded += 1
        except KeyboardInterrupt:
            pass
    faulthandler.cancel_dump_traceback_later()
    return n_wrong, n_decoded


if __name__ == "__main__":
    sys.exit(main())
