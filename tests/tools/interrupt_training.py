"""Interrupt a training (Ctrl-C) again and again at random moments.

This may not change its result.

    python tests/tools/interrupt_training.py
    python tests/tools/interrupt_training.py --interrupts 200 --seed 1

One process trains on two threads and decodes; after each ``KeyboardInterrupt`` it goes on where it
was. A step that was made only in part, or twice, or a lock that was left behind, would show: at the
end the parameters have to be those of a training that was not interrupted, bit for bit, each
decoded batch what it was before, and nothing may hang. The exit status is 1 if anything differs.
"""

import faulthandler
import os
import random
import signal
import sys
import threading
import time

import numpy as np

from npformer.commands.arguments import natural, new_parser, positive  # needs pip install -e .
from npformer.commands.command import command

import npformer.runtime.threads
from npformer import Adam, Trainer, Transformer, greedy_decode
from npformer.runtime.blas_threads import blas_threads
from npformer.runtime.threads import n_threads
from npformer.text import CopyTask

MODEL = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32, "dropout": 0.1}
HANGS = 120  # seconds without an interrupt after which the process counts as hanging


class Training:
    """A training on two threads that can be continued."""

    def __init__(self, seed):
        self.task = CopyTask(seed=seed)
        model = Transformer(self.task.vocab, self.task.vocab, pad_id=0, **MODEL)
        self.trainer = Trainer(
            model, Adam(lr=1e-3), seed=seed, clip_norm=1.0, n_shards=2, backend="cpu"
        )

    def batch(self, step):
        """The batch of a step."""
        return self.task.batch(step, 8)

    def advance(self, n):
        """Make up to n steps, one by one or by ``fit``."""
        first = self.trainer.n_steps
        if first % 2:
            self.trainer.step(*self.batch(first))
        else:
            self.trainer.fit(map(self.batch, range(first, first + n)), progress=False)

    def decoded(self, params):
        """What these parameters decode."""
        src, _ = self.task.batch(0, 80)  # on two threads
        rows = greedy_decode(self.trainer.model, params, src, bos_id=1, eos_id=2, max_len=4)
        # decoded with the helper
        one = greedy_decode(self.trainer.model, params, src[:2], bos_id=1, eos_id=2, max_len=4)
        return [list(map(int, row)) for row in (*rows, *one)]


class Interrupter(threading.Thread):
    """Sends SIGINT to the process at a random time after the main thread has said
    that it is ready.
    """

    def __init__(self, longest, seed):
        super().__init__(daemon=True)
        self.ready, self.longest, self.random = threading.Event(), longest, random.Random(seed)

    def run(self):
        """Send the interrupts."""
        while True:
            self.ready.wait()
            self.ready.clear()
            time.sleep(self.random.uniform(0, self.longest))
            os.kill(os.getpid(), signal.SIGINT)


@command
def main(argv=None):
    options = parse_arguments(argv)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
    with blas_threads(2):
        undisturbed, training = Training(options.seed), Training(options.seed)
        params = Training(options.seed).trainer.params
        for _ in range(2):  # the first turn compiles the kernels
            start = time.perf_counter()
            undisturbed.advance(3)
            expected = undisturbed.decoded(params)
        interrupter = Interrupter(longest=2 * (time.perf_counter() - start), seed=options.seed)
        interrupter.start()
        n_wrong, n_decoded = interrupted(
            training, interrupter, options.interrupts, params, expected
        )
        n_steps, seconds = training.trainer.n_steps, time.perf_counter() - start
        while undisturbed.trainer.n_steps < n_steps:
            undisturbed.trainer.step(*undisturbed.batch(undisturbed.trainer.n_steps))
        same = np.array_equal(undisturbed.trainer.flat_params, training.trainer.flat_params)
        threads, taken = n_threads(), npformer.runtime.threads._kernels_have_helpers.locked()
    print(
        f"{options.interrupts} interrupts in {seconds:.0f} s, {n_steps} steps, "
        f"{n_decoded} decodings"
    )
    print(
        f"parameters: {'the same, bit for bit' if same else 'DIFFERENT'}; "
        f"wrong decodings: {n_wrong}"
    )
    print(f"threads that matrix products may use: {threads} of 2")
    print(f"the lock of the helpers: {'LEFT BEHIND' if taken else 'released'}")
    return int(not same or n_wrong > 0 or threads != 2 or taken)


def interrupted(training, interrupter, n_interrupts, params, expected):
    """Train and decode in turn until there were so many interrupts."""
    n_wrong = n_decoded = 0
    for _ in range(n_interrupts):
        faulthandler.dump_traceback_later(HANGS, exit=True)
        try:
            interrupter.ready.set()
            while True:
                training.advance(3)
                n_wrong += training.decoded(params) != expected
                n_decoded += 1
        except KeyboardInterrupt:
            pass
    faulthandler.cancel_dump_traceback_later()
    return n_wrong, n_decoded


def parse_arguments(argv):
    parser = new_parser(__doc__)
    parser.add_argument("--interrupts", type=positive, default=10000, metavar="N")
    parser.add_argument("--seed", type=natural, default=0)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
