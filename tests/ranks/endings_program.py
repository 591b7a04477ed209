"""Run by mpiexec on several ranks: the last one ends in the way that is given, the others train."""

import signal
import sys
import time
from pathlib import Path

from npformer.commands.shared import command  # before NumPy

from npformer import SGD, Adam, CopyTask, Trainer, Transformer
from npformer.runtime import endings
from npformer.runtime.ranks import world

RANKS = world()
IS_LAST = RANKS.rank == RANKS.size - 1
TASK = CopyTask(vocab=50, max_len=9)
MODEL = Transformer(50, 50, d_model=64, n_heads=2, n_layers=1, d_ff=128)  # two chunks


def train(trainer, n_steps=20, callbacks=()):
    batches = [TASK.batch(i, 8) for i in range(n_steps)]
    return trainer.fit(batches, callbacks=callbacks, progress=False)


def own_loop(trainer):
    """An error of the user's own loop, between two steps."""
    for i in range(20):
        trainer.step(*TASK.batch(i, 8))
        if IS_LAST and trainer.n_steps == 3:
            raise ZeroDivisionError("of the user")


def callback_before_save(trainer):
    """An error in a callback of one rank, while the callback of the others saves."""

    def save(_, info):
        if IS_LAST and info.step == 3:
            raise ZeroDivisionError("of the user")
        trainer.save(Path(sys.argv[2]) / "callback.safetensors")

    trainer = Trainer(MODEL, Adam(0.1), backend="reference", n_shards=RANKS.size, ranks=RANKS)
    train(trainer, callbacks=[save])


def interrupted(trainer):
    """Ctrl-C of one rank, in its own loop."""
    for i in range(20):
        trainer.step(*TASK.batch(i, 8))
        if IS_LAST and trainer.n_steps == 3:
            signal.raise_signal(signal.SIGINT)


def interrupted_callback(trainer):
    """Ctrl-C of one rank, in a callback."""

    def interrupt(_, info):
        if IS_LAST and info.step == 3:
            signal.raise_signal(signal.SIGINT)

    train(trainer, callbacks=[interrupt])


def exits(trainer):
    """Without an error."""
    if IS_LAST:
        sys.exit(0)
    train(trainer)


def saves_alone(trainer):
    """A call that the others do not make."""
    if RANKS.is_first:
        trainer.save(Path(sys.argv[2]) / "alone.safetensors")


def computes_long(trainer):
    """The others wait for no message."""
    if IS_LAST:
        endings.FOR_OTHERS = 0.5
        raise ZeroDivisionError("of the user")
    time.sleep(1000)


def command_with_a_bug(trainer):
    """All raise the error of one rank, whose traceback is what a person has to see."""

    @command
    def main(_):
        RANKS.gather(None, KeyError("a bug") if IS_LAST else None)

    sys.exit(main([]))


WAYS = [own_loop, callback_before_save, interrupted, interrupted_callback, exits]
WAYS += [saves_alone, computes_long, command_with_a_bug]

if __name__ == "__main__":  # pytest imports this file, too
    endings.FOR_MESSAGES = 0.5
    signal.alarm(180)  # whatever happens, the ranks end; a test waits less long
    way = {way.__name__: way for way in WAYS}[sys.argv[1]]
    way(Trainer(MODEL, SGD(0.1), backend="reference", n_shards=RANKS.size, ranks=RANKS))
