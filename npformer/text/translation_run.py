"""The training of a translation model, from text files to the final model."""

from dataclasses import asdict, replace
from typing import NamedTuple

from npformer.backends import get_backend
from npformer.checks import check_int, check_number
from npformer.errors import UserError
from npformer.files.checkpoint import LAST, RESULT, CheckpointError, load_checkpoint, refusing
from npformer.files.paths import check_path
from npformer.models import from_description
from npformer.models.description import check_params
from npformer.operations.options import LARGEST, check_instance
from npformer.progress import say
from npformer.text.lines import bad_lines
from npformer.text.parallel_text import ParallelText, Place, TokenBatches, ahead
from npformer.text.run import TextRun
from npformer.text.scores import check_packages, score
from npformer.text.settings import TranslationSettings
from npformer.text.snapshots import Snapshots, last_whole
from npformer.text.translator import Translator, check_subwords
from npformer.tokens.subwords import learned_by_first
from npformer.training import average
from npformer.training.checkpoint import checked_facts
from npformer.training.optimizers import Adam
from npformer.training.precision import check_precision
from npformer.training.schedules import inverse_sqrt, noam, warmup_cosine
from npformer.training.settings import LoopSettings

LONGEST = 1024  # a model's max_len, unless the setting max_len is larger


class Splits(NamedTuple):
    """The text that a training learns from, and the text that it is validated with."""

    training: ParallelText
    validation: ParallelText

    @classmethod
    def find(cls, settings):
        """Find those of the settings; raises if a file is missing."""
        pair = settings.src, settings.tgt
        splits = [
            ParallelText.find(settings.data, split, *pair, skip_empty=settings.skip_empty)
            for split in ("train", "val")
        ]
        return cls(*splits)


class TranslationRun(TextRun):
    """One training of a translation model, with the snapshots that are averaged at its end.

    Everything that changes during training is in ``trainer.state`` and ``place``, the position in
    the data after the last step; ``save`` writes it.

    Parameters
    ----------
    folder : Path
        Folder for the checkpoint ``last.safetensors``, the folder ``snapshots`` with the parameters
        at validations that may be averaged, the log ``log.jsonl`` and the final model
        ``model.safetensors``.
    settings : TranslationSettings
    texts : Splits
    source, target : Subwords
    backend, ranks
        As for ``Trainer``. Rank 0 writes all files.
    """

    n_last_validations = 2  # that of the average, too
    MAY_CHANGE = {"data", "steps", "patience", "save_every", "precision", "n_shards"}
    MAY_CHANGE |= {"n_average", "average"}

    def __init__(self, folder, settings, texts, source, target, backend="auto", ranks=None):
        self.text = texts.training
        self.validation = texts.validation
        model = _model(settings, source, target)
        self.place = Place()
        self.place_after = self.place  # after the batch that was read last
        optimizer = Adam(_schedule(settings, model.d_model), betas=(0.9, 0.98), eps=1e-9)
        of_loop = LoopSettings(
            every=settings.validate_every,
            save_every=settings.save_every,
            patience=settings.patience,
            monitor="val_bleu",
            mode="max",
            keep="last",
        )
        super().__init__(folder, settings, model, optimizer, of_loop, backend, ranks)
        self.snapshots = Snapshots(self.folder, settings, self.trainer)
        # Its parameters are the trainer's arrays, which steps update in place.
        trainer = self.trainer
        self.translator = Translator(model, trainer.params, source, target, trainer.ops)

    def __repr__(self):
        steps = f"{self.trainer.n_steps:,} of {self.settings.steps:,} steps"
        return f"<TranslationRun in {self.folder}, after {steps}>"

    @classmethod
    def start(cls, out, settings, backend="auto", ranks=None):
        """Start a new training; this learns the vocabulary."""
        check_instance("settings", settings, TranslationSettings, "TranslationSettings")
        ranks = cls.ranks_of_new(out, settings, ranks)
        texts = Splits.find(settings)
        check_packages()
        check_precision(settings.precision, get_backend(backend))
        source, target = _learned(texts.training, settings, ranks)
        run = cls(out, settings, texts, source, target, backend, ranks)
        run._check_validation()  # now, not only at the first validation
        return run

    @classmethod
    def resume(cls, out, changes=None, backend="auto", ranks=None):
        """Resume the training in a folder; ``changes`` are settings to change from here on."""
        path = check_path(out, "out") / LAST
        arrays, info = _load(path)
        before = TranslationSettings.of_checkpoint(info, path)
        with refusing(path):
            _check_progress(info)
            source, target = _vocabularies_in(arrays, before)
        # A cosine that ends at another step is another schedule from the beginning.
        fixed = {"steps"} if before.schedule == "cosine" else set()
        settings = before.changed(changes or {}, cls.MAY_CHANGE - fixed, path)
        check_packages()
        texts = Splits.find(settings)
        run = cls(out, settings, texts, source, target, backend, ranks)
        run.go_on_from(path, arrays, info, before)
        run.place = Place(*info["place"])
        if settings.data != before.data:  # before it is saved as the text of this training
            run._check_pairs(run.text)
            run._check_validation()
        run.ranks.first(run.snapshots.set_damaged_aside)
        run.snapshots.say_what_is_lacking()
        return run

    def save_to(self, path):
        """Write everything that ``resume`` needs, then delete snapshots that are not needed."""
        super().save_to(path)
        self.ranks.first(self.snapshots.delete_others)

    def place_in_text(self):
        """The place of the next batch."""
        return {"place": list(self.place)}

    def vocabulary_arrays(self):
        """Both vocabularies, as arrays of a checkpoint."""
        return self.translator.subword_arrays()

    def note_step(self, info):
        """Go on to the place after the batch of the step; what the log says of it."""
        self.place = self.place_after
        return super().note_step(info) | {"epoch": self.place.epoch}

    def note_validation(self, record, is_shown):
        """Save the parameters of a validation as a snapshot, and print its numbers."""
        self.ranks.first(lambda: self.translator.save(self.snapshots.path_of(record), record))
        if self.ranks.is_first:
            say(
                f"step {record['step']}: validation loss {record['val_loss']:.3f}, "
                f"BLEU {record['val_bleu']:.1f} cased, "
                f"{record['val_bleu_lower']:.1f} lower-cased (greedy)"
            )

    def finish(self):
        """Save the mean of the snapshots as the final model, and return its validation.

        Without any snapshot, before the first validation, the final model has the current
        parameters. A snapshot that is damaged is set aside, and counts as missing.
        """
        self.ranks.first(self.snapshots.set_damaged_aside)
        chosen = self.ranks.first(self.snapshots.chosen)
        translator = self.translator
        if chosen:
            paths = map(self.snapshots.path_of, chosen)
            params = average(Translator.load(path).params for path in paths)
            translator = replace(translator, params=params)
        steps = [record["step"] for record in chosen]
        result = {"step": self.trainer.n_steps, "averaged": steps, **self.evaluate(translator)}
        info = {"settings": asdict(self.settings), **result}
        self.ranks.first(lambda: translator.save(self.folder / RESULT, info))
        return result

    def batches(self):
        """Yield (src, tgt) without end."""
        batches = self._batches(self.text, seed=self.settings.seed).from_place(self.place)
        # Messages between ranks have an order, which a thread would change.
        reads_ahead = self.trainer.ops.device.asynchronous and self.ranks.is_alone
        for place, src, tgt in ahead(batches) if reads_ahead else batches:
            self.place_after = place  # not yet the training's place: the step may still fail
            yield src, tgt

    def _batches(self, text, **options):
        return TokenBatches(
            text,
            self.translator.source,
            self.translator.target,
            max_tokens=self.settings.max_tokens,
            max_len=self.settings.max_len,
            ranks=self.ranks,
            **options,
        )

    def _check_pairs(self, text):
        """Read every pair, so that every error in them comes now."""
        if not sum(1 for _ in self._batches(text).epoch(Place())):
            raise UserError(
                f"{text.source} has no pair of at most max_len={self.settings.max_len} pieces"
            )

    def _check_validation(self):
        self._check_pairs(self.validation)
        bad = bad_lines(self.validation.source, True, self.translator.check_line)
        message = next(bad, None)
        if message is not None:
            raise UserError(message)

    def evaluate(self, translator=None):
        """The loss and BLEU of the validation text, of the parameters in training if not given."""
        translator = translator or self.translator
        pairs = list(self.validation)
        batches = [(src, tgt) for _, src, tgt in self._batches(pairs).epoch(Place())]
        sources, references = zip(*pairs, strict=True)
        translations = self.ranks.gather_lists(translator.greedy(self.ranks.my_share(sources)))
        scores = self.ranks.first(lambda: score(translations, references, self.settings.tgt))
        return {
            "val_loss": self.trainer.mean_loss(batches, translator.params),
            "val_bleu": scores["bleu"],
            "val_bleu_lower": scores["bleu_lower"],
        }


def _load(path):
    """The arrays and the ``info`` of the checkpoint of a translation training."""
    try:
        arrays, info = load_checkpoint(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} to resume from: start a training first") from error
    except CheckpointError as error:
        if snapshot := last_whole(path.parent):
            raise CheckpointError(
                f"{error}; {snapshot} can still translate, but no training can resume from it"
            ) from error
        raise
    if not {"settings", "place", "validations", "n_logged"} <= info.keys():
        raise CheckpointError(f"{path} is not the checkpoint of a translation training")
    return arrays, info


def _vocabularies_in(arrays, settings):
    """The vocabularies of source and target in the arrays of a checkpoint.

    It raises, before a trainer is made, if they or the parameters are not those of the settings.
    """
    source, target = Translator.subwords_in(arrays)
    model = _model(settings, source, target)
    check_subwords(model, source, target)
    check_params(model, arrays)
    return source, target


def _learned(text, settings, ranks):
    """The vocabularies of source and target, which may be one."""
    texts = [text.sources, text.targets]
    if settings.vocab == "joint":
        texts = [text.lines]
    vocabularies = learned_by_first(texts, "vocab_size", settings.vocab_size, ranks)
    return vocabularies[0], vocabularies[-1]


def _check_progress(info):
    """Check how far a checkpoint says that a training is."""
    place = info["place"]
    if not isinstance(place, list) or len(place) != len(Place._fields):
        raise UserError(
            f"place={place!r:.60}, expected {len(Place._fields)} numbers: "
            f"{', '.join(Place._fields)}"
        )
    for name, value in zip(Place._fields, place, strict=True):
        check_int(name, value, at_least=0, at_most=LARGEST)
    checked_facts(info)
    for record in info["validations"]:
        check_number("val_bleu", record.get("val_bleu"))


def _model(settings, source, target):
    """Build the model of the settings: a Transformer if they have no name."""
    description = {"name": "Transformer", **settings.model}
    if description["name"] == "Transformer":
        description |= {"norm": settings.norm, "inner_dropout": settings.inner_dropout}
    description |= {
        "src_vocab": len(source),
        "tgt_vocab": len(target),
        "dropout": settings.dropout,
        "tie_embeddings": settings.vocab == "joint",
        "pad_id": source.pad_id,
        "max_len": max(LONGEST, settings.max_len),
    }
    return from_description(description)


def _schedule(settings, d_model):
    if settings.schedule == "noam":
        return noam(d_model, settings.warmup, factor=settings.lr)
    if settings.schedule == "cosine":
        return warmup_cosine(settings.lr, settings.warmup, settings.steps)
    return inverse_sqrt(settings.lr, settings.warmup)
