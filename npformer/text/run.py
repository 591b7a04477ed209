"""What a training of a language model and one of a translation model share: how they begin, train,
are saved and go on.

They differ in their text, and in what they measure.
"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from npformer.errors import UserError
from npformer.files.checkpoint import LAST, CheckpointError
from npformer.files.paths import check_path
from npformer.runtime.ranks import checked_ranks
from npformer.training.loop import Actions, Loop, record_of
from npformer.training.trainer import Trainer


class TextRun:
    """A training on text: its settings, its text and its files, and the ``Loop`` that trains.

    A subclass, for one kind of model, has the methods that are missing here: those of its text, and
    of its validations.
    """

    MAY_CHANGE: set[str]  # the settings that may change when it is resumed
    n_last_validations = 1  # after the last step

    def __init__(self, folder, settings, model, optimizer, loop_settings, backend, ranks):
        self.settings = settings
        self.trainer = Trainer(
            model, optimizer, **settings.of_trainer, backend=backend, ranks=ranks
        )
        self.ranks = self.trainer.ranks
        actions = Actions(
            save=self.save_to,
            validate=self.evaluate,
            note_step=self.note_step,
            note_validation=self.note_validation,
            n_last_validations=self.n_last_validations,
        )
        self.loop = Loop(self.trainer, loop_settings, folder, actions)
        self.folder = self.loop.folder

    def batches(self) -> Iterator[tuple]:
        """Yield the batches from the next step on, without end."""
        raise NotImplementedError

    def evaluate(self) -> dict[str, float]:
        """The numbers of a validation."""
        raise NotImplementedError

    def note_validation(self, record, is_shown):
        """Print the numbers of a validation."""
        raise NotImplementedError

    def vocabulary_arrays(self) -> dict:
        """What a checkpoint has beside the arrays of the trainer."""
        raise NotImplementedError

    def note_step(self, info) -> dict:
        """Note that a step is made; what the log says of it."""
        return record_of(info)

    def place_in_text(self) -> dict:
        """What a checkpoint says of the place in the text, beside the number of steps."""
        return {}

    @staticmethod
    def ranks_of_new(out, settings, ranks):
        """The ranks of a new training, which agree about it; raises if the folder has another."""
        if (check_path(out, "out") / LAST).exists():
            raise UserError(
                f"{out} holds a training: resume it, or start another in another folder"
            )
        ranks = checked_ranks(ranks)
        ranks.agree(lambda: facts_of(out, settings))
        return ranks

    def go_on_from(self, path, arrays, info, before):
        """Restore the checkpoint ``path``, on all ranks the same; ``before`` are its settings."""
        self.ranks.agree(lambda: facts_of(path.parent, self.settings) | {"info": info})
        self.trainer.restore(arrays, info, path)
        steps = self.settings.steps
        if steps < self.trainer.n_steps:
            kind = CheckpointError if steps == before.steps else UserError
            raise kind(f"{path}: steps={steps}, but {self.trainer.n_steps} are done")

    def train(self, stops=(), progress=True, minutes=None, since=None):
        """Train until all steps are done, validations have stopped improving, or a callback stops
        it.

        ``stops`` are further callbacks, ``progress`` and ``minutes`` are as of ``Trainer.fit``. The
        minutes count from ``since``, a time of ``time.perf_counter``; without it, from when the run
        was made.
        """
        n_left = self.settings.steps - self.trainer.n_steps
        self.loop.run(
            self.batches(),
            n_left,
            callbacks=stops,
            progress=progress,
            minutes=minutes,
            since=since,
        )

    def next_batch(self):
        """The batch of the next step."""
        return next(self.batches())

    def save_to(self, path):
        """Write everything that ``resume`` needs."""
        info = {"settings": asdict(self.settings)} | self.place_in_text()
        self.trainer.save(path, info, self.vocabulary_arrays())


def facts_of(out, settings):
    """What has to be equal on all ranks."""
    return {"settings": asdict(settings), "out": str(Path(out).resolve())}
