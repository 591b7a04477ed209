"""The parameters at the validations of a training, of which some are averaged at its end."""

from npformer import tree
from npformer.errors import UserError
from npformer.files.checkpoint import CheckpointError
from npformer.files.paths import name_for_damaged
from npformer.progress import say
from npformer.text.translator import Translator

SNAPSHOTS = "snapshots"


class Snapshots:
    """The files of the snapshots of a training.

    Parameters
    ----------
    folder : Path
        That of the training.
    settings : TranslationSettings
        ``average`` and ``n_average`` say which validations are averaged.
    trainer : Trainer
    """

    def __init__(self, folder, settings, trainer):
        self.folder = folder / SNAPSHOTS
        self.settings = settings
        self.trainer = trainer

    def path_of(self, record):
        """The file of the parameters at a validation."""
        return self.folder / f"step-{record['step']:07}.safetensors"

    def chosen(self):
        """The validations to average, of those whose files exist."""
        there = [record for record in self._ranked() if self.path_of(record).exists()]
        return there[-self.settings.n_average :]

    def say_what_is_lacking(self):
        """Say how many files of validations that should be averaged do not exist."""
        n_wanted = min(self.settings.n_average, len(self._ranked()))
        if n_lacking := n_wanted - len(self.chosen()):
            say(
                f"{self.folder} lacks {n_lacking} of {n_wanted} to average: "
                "the result averages the others"
            )

    def _ranked(self):
        """The validations whose parameters may be averaged, the preferred ones last."""
        validations = self.trainer.state.validations
        if self.settings.average == "best":
            return sorted(validations, key=lambda record: record["val_bleu"])
        # Snapshots from the first two thirds are much worse.
        first = 2 * self.trainer.n_steps
        recent = [record for record in validations if 3 * record["step"] >= first]
        return recent or validations[-1:]

    def delete_others(self):
        """Delete the files that will not be averaged."""
        kept = {self.path_of(record) for record in self.chosen()}
        for path in files_in(self.folder):
            if path not in kept:
                path.unlink()

    def set_damaged_aside(self):
        """Rename files that cannot be averaged, so that they count as missing; say so."""
        for path in files_in(self.folder):
            try:
                snapshot = Translator.load(path, self.trainer.ops)
                tree.check_like(snapshot.params, self.trainer.params)
                if path.stem != f"step-{str(snapshot.info.get('step')):0>7}":
                    step = f"{snapshot.info.get('step')!s:.20}"
                    raise UserError(f"{path} holds the parameters after step {step}")
            except ValueError as error:
                if isinstance(error.__cause__, OSError):
                    raise  # the disk could not read it, which does not say that it is damaged
                aside = name_for_damaged(path)
                path.replace(aside)
                say(f"{error}; it is now {aside.name}, and the result will be averaged without it")


def files_in(folder):
    """The files of snapshots, in the order of their steps."""
    return sorted(folder.glob("*.safetensors"))


def last_whole(folder):
    """The last snapshot of a training that can be loaded, None if there is none."""
    for path in reversed(files_in(folder / SNAPSHOTS)):
        try:
            Translator.load(path)
        except CheckpointError:
            continue
        return path
    return None
