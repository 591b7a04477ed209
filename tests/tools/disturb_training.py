"""Train beside everything that could disturb it.

Each result has to have the bits of an undisturbed training.

    python tests/tools/disturb_training.py
    python tests/tools/disturb_training.py --rounds 100 --seed 1

Meanwhile one thread changes the number of BLAS threads, one the cores that the process may use, and
one trains another model; another process saves checkpoints to the same path. In each round a
training makes some steps, saves, and goes on from what it loads: its own checkpoint or that of the
other process. A loss or a parameter that differs in one bit is a failure, and so is a whole file
that is refused.
"""

import multiprocessing
import os
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from npformer import Adam, Trainer, Transformer
from npformer.runtime.blas_threads import blas_threads
from npformer.text import CopyTask
from npformer.training import CheckpointError
from tests.tools.tool import Natural, Seed, tool

TASK = CopyTask(vocab=20, min_len=30, max_len=40)
# its bits depend on the number of BLAS threads, if this processor can show it
ONE_SHARD = "one shard"
KINDS = {  # settings of the model and the trainer, and rows of a batch
    "two shards": ({}, {"n_shards": 2}, 4),
    "three shards": ({"dropout": 0.1}, {"n_shards": 3}, 5),
    "clipped float64": ({"dtype": "float64"}, {"n_shards": 2, "clip_norm": 0.1}, 4),
    "one row": ({}, {"n_shards": 2}, 1),
    ONE_SHARD: ({}, {"n_shards": 1}, 4),
}
COMPARED = [kind for kind in KINDS if kind != ONE_SHARD]


def trainer_of(kind):
    model, settings, _ = KINDS[kind]
    sizes = {"d_model": 200, "n_heads": 2, "n_layers": 1, "d_ff": 300} | model
    return Trainer(Transformer(20, 20, **sizes), Adam(0.01), backend="cpu", **settings)


def advance(trainer, kind, n):
    """Make steps until ``n`` are done; their losses."""
    return [trainer.step(*TASK.batch(i, KINDS[kind][2])) for i in range(trainer.n_steps, n)]


def change_threads(draw):
    """Enter and leave a block of ``blas_threads``."""
    with blas_threads(draw.choice([1, 2, 3, None])):
        time.sleep(draw.uniform(0, 0.002))


def change_cores(draw):
    """Allow the process only some of its cores."""
    os.sched_setaffinity(os.getpid(), draw.sample(CORES, draw.randint(1, len(CORES))))
    time.sleep(draw.uniform(0, 0.01))


def train_too(draw):
    """Train another model."""
    advance(trainer_of("two shards"), "two shards", 3)


DISTURBING, CORES = [change_threads, train_too], []
if hasattr(os, "sched_getaffinity"):
    DISTURBING.append(change_cores)
    CORES = sorted(os.sched_getaffinity(0))


def disturb(work, stop, seed):
    """Do some work again and again."""
    draw = random.Random(seed)
    while not stop.is_set():
        work(draw)


def save_too(folder):
    """Save every kind of training to the path that the other process uses, until this process is
    ended.
    """
    trainers = {kind: trainer_of(kind) for kind in COMPARED}
    while True:
        for kind, trainer in trainers.items():
            trainer.save(path_of(folder, kind))


def path_of(folder, kind):
    return Path(folder, f"{kind}.safetensors")


def one_round(kind, folder, expected):
    """What happened: "same bits", "DIFFERENT", or the message of an error."""
    losses, params = expected
    trainer, path = trainer_of(kind), path_of(folder, kind)
    found = advance(trainer, kind, 2)
    try:
        trainer.save(path)
        trainer.load(path)
    except CheckpointError as error:
        return str(error)
    found[trainer.n_steps :] = []  # the other process saves before the first step
    found += advance(trainer, kind, 4)
    is_same = found == losses and np.array_equal(trainer.flat_params, params)
    return "same bits" if is_same else "DIFFERENT"


@tool
def main(*, rounds: Natural = 1000, seed: Seed = 0):
    """Disturb trainings.

    Parameters
    ----------
    rounds
        trainings
    """
    found = []
    for n_threads in (1, 2):
        with blas_threads(n_threads):
            found.append(advance(trainer_of(ONE_SHARD), ONE_SHARD, 4))
    if found[0] == found[1]:
        what = "on this processor the number of BLAS threads changes no bit"
        print(f"note: {what}, so less can be seen")
    expected = {}
    for kind in COMPARED:
        trainer = trainer_of(kind)
        expected[kind] = advance(trainer, kind, 4), trainer.flat_params
    outcomes, stop = Counter(), threading.Event()
    threads = [threading.Thread(target=disturb, args=(work, stop, seed)) for work in DISTURBING]
    with TemporaryDirectory() as folder:
        spawn = multiprocessing.get_context("spawn")
        saver = spawn.Process(target=save_too, args=(folder,), daemon=True)
        saver.start()
        try:
            for thread in threads:
                thread.start()
            for i in range(rounds):
                kind = COMPARED[i % len(COMPARED)]
                outcomes[one_round(kind, folder, expected[kind])] += 1
            outcomes["the other process FAILED"] += not saver.is_alive()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            saver.kill()
            saver.join()
            if CORES:
                os.sched_setaffinity(os.getpid(), CORES)
    print(f"{rounds} rounds: {dict(outcomes)}")
    return [outcome for outcome, n in outcomes.items() if n and outcome != "same bits"]


if __name__ == "__main__":
    sys.exit(main())
