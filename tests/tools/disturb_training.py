"""Train beside everything that could disturb it.

Each result has to have the bits of an undisturbed training.

    python tests/tools/disturb_training.py
    python tests/tools/disturb_training.py --rounds 100 --seed 1

Meanwhile one thread changes the number of BLAS threads, one the cores that the process may use, and
one trains another model; another process saves checkpoints to the same path. In each round a
training makes some steps, saves, and goes on from what it loads: its own checkpoint or that of the
other process. The exit status is 1 if a loss or a parameter differs in one bit, or if a whole file
is refused.
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

from npformer.commands.arguments import natural, new_parser, positive  # needs pip install -e .
from npformer.commands.command import command

from npformer import Adam, Trainer, Transformer
from npformer.runtime.blas_threads import blas_threads
from npformer.text import CopyTask
from npformer.training import CheckpointError

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


def trainer_of(kind):
    model, settings, _ = KINDS[kind]
    sizes = {"d_model": 200, "n_heads": 2, "n_layers": 1, "d_ff": 300} | model
    return Trainer(Transformer(20, 20, **sizes), Adam(0.01), backend="cpu", **settings)


def advance(trainer, kind, n):
    """Make steps until ``n`` are done; their losses."""
    return [trainer.step(*TASK.batch(i, KINDS[kind][2])) for i in range(trainer.n_steps, n)]


def change_threads(stop, seed):
    """Enter and leave blocks of ``blas_threads``."""
    moments = random.Random(seed)
    while not stop.is_set():
        with blas_threads(moments.choice([1, 2, 3, None])):
            time.sleep(moments.uniform(0, 0.002))


def change_cores(stop, seed):
    """Allow the process only some of its cores."""
    moments, cores = random.Random(seed), sorted(os.sched_getaffinity(0))
    while not stop.is_set():
        os.sched_setaffinity(os.getpid(), moments.sample(cores, moments.randint(1, len(cores))))
        time.sleep(moments.uniform(0, 0.01))
    os.sched_setaffinity(os.getpid(), cores)


def train_too(stop, seed):
    """Train another model."""
    while not stop.is_set():
        advance(trainer_of("two shards"), "two shards", 3)


def save_too(folder):
    """Save every kind of training to the path that the other process uses,
    until this process is ended.
    """
    trainers = {kind: trainer_of(kind) for kind in KINDS}
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
        found[trainer.n_steps :] = []  # the other process saves before the first step
        found += advance(trainer, kind, 4)
    except CheckpointError as error:
        return str(error)
    return (
        "same bits"
        if found == losses and np.array_equal(trainer.flat_params, params)
        else "DIFFERENT"
    )


@command
def main(argv=None):
    options = parse_arguments(argv)
    expected = {}
    with blas_threads(1):
        on_one_thread = advance(trainer_of(ONE_SHARD), ONE_SHARD, 4)
    with blas_threads(2):
        if advance(trainer_of(ONE_SHARD), ONE_SHARD, 4) == on_one_thread:
            print(
                "note: on this processor the number of BLAS threads changes no bit, "
                "so less can be seen"
            )
    del KINDS[ONE_SHARD]
    for kind in KINDS:
        trainer = trainer_of(kind)
        expected[kind] = advance(trainer, kind, 4), trainer.flat_params
    outcomes, stop, start = Counter(), threading.Event(), time.perf_counter()
    disturbers = [
        change_threads,
        train_too,
        *([change_cores] if hasattr(os, "sched_setaffinity") else []),
    ]
    threads = [threading.Thread(target=work, args=(stop, options.seed)) for work in disturbers]
    with TemporaryDirectory() as folder:
        saver = multiprocessing.get_context("spawn").Process(
            target=save_too, args=(folder,), daemon=True
        )
        saver.start()
        try:
            for thread in threads:
                thread.start()
            for i in range(options.rounds):
                kind = list(KINDS)[i % len(KINDS)]
                outcomes[one_round(kind, folder, expected[kind])] += 1
            saves = saver.is_alive()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            saver.kill()
            saver.join()
    print(f"{options.rounds} rounds in {time.perf_counter() - start:.0f} s: {dict(outcomes)}")
    print("the other process saved until the end" if saves else "THE OTHER PROCESS FAILED")
    return int(outcomes["same bits"] < options.rounds or not saves)


def parse_arguments(argv):
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=positive, default=1000, metavar="N")
    parser.add_argument("--seed", type=natural, default=0)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
