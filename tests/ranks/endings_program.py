"""Run by mpiexec on several ranks: the last one ends in the way that is given, the others train."""

import signal
import sys
import time
from pathlib import Path

from npformer.commands.shared import command  # before NumPy

from npformer import SGD, CopyTask, Trainer, Transformer
from npformer.runtime import endings
from npformer.runtime.ranks import world

RANKS = world()
IS_LAST = RANKS.rank == RANKS.size - 1
TASK = CopyTask(vocab=50, max_len=9)
MODEL = Transformer(50, 50, d_model=64, n_heads=2, n_layers=1, d_ff=128)  # two chunks
endings.FOR_MESSAGES = 0.5
signal.alarm(100)  # whatever happens, the ranks end


def train(trainer, n_steps=20, callbacks=()):
    batches = [TASK.batch(i, 8) for i in range(n_steps)]
    return trainer.fit(batches, callbacks=callbacks, progress=False)


def wrong_batch(trainer):
    """A batch that this rank alone finds wrong."""
    src, tgt = TASK.batch(0, 8)
    trainer.step(src, tgt[:4] if IS_LAST else tgt)


def between_steps(trainer):
    """An error of the user's own function."""

    def fail(_, info):
        if IS_LAST and info.step == 3:
            raise ZeroDivisionError("of the user")

    train(trainer, callbacks=[fail])


def interrupted(trainer):
    """Ctrl-C of one rank."""

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


WAYS = [wrong_batch, between_steps, interrupted, exits, saves_alone, computes_long]
WAYS.append(command_with_a_bug)

if __name__ == "__main__":
    way = {way.__name__: way for way in WAYS}[sys.argv[1]]
    way(Trainer(MODEL, SGD(0.1), backend="reference", n_shards=RANKS.size, ranks=RANKS))
