"""One training of a translation model, from its files to its result, which can be stopped and gone on with anywhere."""

from dataclasses import asdict, fields, replace
from pathlib import Path

from npformer.backends import get_backend
from npformer.data import ParallelText, Place, Subwords, TokenBatches
from npformer.data.ahead import ahead
from npformer.data.parallel_text import read_lines
from npformer.models import from_description
from npformer.training.averaging import average
from npformer.training.checkpoint import CheckpointError, load_checkpoint
from npformer.training.json_log import JsonLog
from npformer.training.lock import locked
from npformer.training.optimizers import Adam
from npformer.training.precision import check_precision
from npformer.training.progress import say
from npformer.training.schedules import inverse_sqrt, noam, warmup_cosine
from npformer.training.trainer import Trainer
from npformer.translation.scores import check_packages, score
from npformer.translation.settings import TranslationSettings
from npformer.translation.translator import Translator

LAST, RESULT, SNAPSHOTS, LOG = "last.safetensors", "model.safetensors", "snapshots", "log.jsonl"
MAY_CHANGE = {"data", "steps", "patience", "save_every", "n_average", "average", "precision"}  # when it goes on
LONGEST = 1024  # tokens a model can take, or more if it is trained with more


class TranslationRun:
    """One training: its settings, its trainer, and how far it has come.

    All that changes while it runs is in ``trainer``, ``place`` (in the data), ``validations`` and ``n_logged`` (the
    records of its log); ``save`` writes it.

    Parameters
    ----------
    out : Path
        Folder for the checkpoint ``last.safetensors``, ``snapshots/`` of the parameters at the last validations, the
        log ``log.jsonl`` and the result ``model.safetensors``.
    settings : TranslationSettings
    source, target : Subwords
    backend : "auto", "reference", "cpu", "gpu" or a module
    """

    def __init__(self, out, settings, source, target, backend="auto"):
        self.out, self.settings = Path(out), settings
        self.source, self.target = source, target
        self.model = _model(settings, source, target)
        self.trainer = Trainer(
            self.model,
            Adam(_schedule(settings, self.model.d_model), betas=(0.9, 0.98), eps=1e-9),
            seed=settings.seed,
            label_smoothing=settings.label_smoothing,
            consistency=settings.consistency,
            clip_norm=settings.clip_norm,
            backend=backend,
            precision=settings.precision,
        )
        self.place = Place()
        self.validations = []
        self.n_logged = 0

    @classmethod
    def start(cls, out, settings, backend="auto"):
        """A new training; learns the vocabulary first."""
        if not isinstance(settings, TranslationSettings):
            raise TypeError(f"settings is a {type(settings).__name__}, expected TranslationSettings")
        if (Path(out) / LAST).exists():
            raise ValueError(f"{out} holds a training: --resume goes on with it, another --out begins a new one")
        text, validation = _text(settings, "train"), _text(settings, "val")
        check_packages()
        check_precision(settings.precision, get_backend(backend))
        if settings.vocab == "joint":
            source = target = Subwords.learn(text.lines(), settings.vocab_size)
        else:
            source, target = (Subwords.learn((pair[side] for pair in text), settings.vocab_size) for side in (0, 1))
        run = cls(out, settings, source, target, backend)
        run._check_validation(validation)  # now, not at the first one
        return run

    @classmethod
    def resume(cls, out, changes=None, backend="auto"):
        """The training that was saved in a folder; ``changes`` are settings that shall be others from here on."""
        path, changes = Path(out) / LAST, changes or {}
        try:
            arrays, info = load_checkpoint(path)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} to go on from: begin without --resume") from error
        except CheckpointError as error:
            if snapshots := sorted((path.parent / SNAPSHOTS).glob("*.safetensors")):
                whole = f"{snapshots[-1]} can still translate, but no training goes on from it"
                raise CheckpointError(f"{error}; {whole}") from error
            raise
        if not {"settings", "place", "n_logged"} <= info.keys():
            raise CheckpointError(f"{path} is not the checkpoint of a translation training")
        settings = _settings_in(info, path)
        may_change = MAY_CHANGE - {"steps"} if settings.schedule == "cosine" else MAY_CHANGE
        for name in sorted(changes.keys() - may_change):
            if changes[name] != (begun := getattr(settings, name, None)):
                raise ValueError(f"{name}={changes[name]!r}, but {path} was begun with {begun!r}")
        run = cls(out, replace(settings, **changes), *Translator.subwords_in(arrays), backend)
        run.trainer.restore(arrays, info, path)
        if run.settings.steps < run.trainer.n_steps:
            raise ValueError(f"steps={run.settings.steps}, but {run.trainer.n_steps} are done")
        run.place = Place(*info["place"])
        run.validations, run.n_logged = info["validations"], info["n_logged"]
        wanted = len(run._ranked()[-run.settings.n_average :])
        if lacking := wanted - len(run._chosen()):
            say(f"{path.parent / SNAPSHOTS} lacks {lacking} of {wanted} to average: the result is that of the others")
        return run

    def save(self):
        """Write all that ``resume`` needs, then remove the snapshots that it does not need."""
        info = {
            "settings": asdict(self.settings),
            "place": list(self.place),
            "validations": self.validations,
            "n_logged": self.n_logged,
        }
        self.trainer.save(self.out / LAST, info, self._translator().subword_arrays())
        kept = {self._snapshot(chosen) for chosen in self._chosen()}
        for path in (self.out / SNAPSHOTS).glob("*.safetensors"):
            if path not in kept:
                path.unlink()

    def train(self, stops=(), progress=True):
        """Step after step, until there were enough, validations get worse, or one of ``stops`` asks for an end.

        Parameters
        ----------
        stops : callbacks of ``Trainer.fit``
        progress : bool
        """

        def write(record):
            log.write(record)
            self.n_logged = log.n_records

        def note(trainer, info):
            write(info._asdict() | {"epoch": self.place.epoch})

        def validate(trainer, info):
            if self._validation_is_due():
                self.save()  # it takes a while, and whatever ends it shall lose no step
                write(self.validate())
            return self._gets_worse()

        def save(trainer, info):
            if info.step % self.settings.save_every == 0:
                self.save()

        with locked(self.out), JsonLog(self.out / LOG, keep=self.n_logged) as log:
            if self._validation_is_due():  # it was interrupted
                write(self.validate())
            remaining = 0 if self._gets_worse() else max(0, self.settings.steps - self.trainer.n_steps)
            callbacks = [note, validate, save, *stops]
            self.trainer.fit(self._training_batches(), remaining, callbacks=callbacks, progress=progress)
            self.save()

    def explain(self):
        """The operations of a step on the next batch, as ``Trainer.explain``."""
        batches = self._batches(_text(self.settings, "train"), seed=self.settings.seed)
        _, src, tgt = next(iter(batches.from_place(self.place)))
        return self.trainer.explain(src, tgt)

    def validate(self):
        """Loss and greedy BLEU on the validation text; the parameters are kept in a snapshot."""
        translator = self._translator()
        record = {"step": self.trainer.n_steps, **self._evaluate(translator)}
        self.validations.append(record)
        translator.save(self._snapshot(record), record)
        say(
            f"step {record['step']}: validation loss {record['val_loss']:.3f}, BLEU {record['val_bleu']:.1f} cased, "
            f"{record['val_bleu_lower']:.1f} lower-cased (greedy)"
        )
        return record

    def finish(self):
        """The mean of the snapshots as the result, and how good it is on the validation text.

        Before the first validation there is no snapshot: then the parameters as they are.
        """
        chosen = self._chosen()
        snapshots = (Translator.load(self._snapshot(record)).params for record in chosen)
        translator = self._translator(average(snapshots) if chosen else self.trainer.params)
        result = {"step": self.trainer.n_steps, "averaged": [r["step"] for r in chosen], **self._evaluate(translator)}
        translator.save(self.out / RESULT, {"settings": asdict(self.settings), **result})
        return result

    def _training_batches(self):
        """(src, tgt) without end; ``place`` is always behind the last of them."""
        s = self.settings
        batches = self._batches(_text(s, "train"), seed=s.seed)
        batches = batches.from_place(self.place)
        for place, src, tgt in ahead(batches) if self.trainer.ops.asynchronous else batches:
            self.place = place
            yield src, tgt

    def _batches(self, text, **options):
        s = self.settings
        return TokenBatches(text, self.source, self.target, s.max_tokens, max_len=s.max_len, **options)

    def _check_validation(self, text):
        if next(self._batches(text).epoch(Place()), None) is None:
            raise ValueError(f"the validation text has no pair of at most max_len={self.settings.max_len} pieces")
        lines = list(read_lines(text.source))  # with those that are left out: an error says which line it is
        try:
            self._translator().encode(lines)
        except ValueError as error:
            raise ValueError(f"{text.source}, {error}") from error

    def _evaluate(self, translator):
        pairs = list(_text(self.settings, "val"))
        total, n_tokens = 0.0, 0
        for _, src, tgt in self._batches(pairs).epoch(Place()):
            loss, n = self.model.loss(translator.params, src, tgt, backend=self.trainer.ops)
            total, n_tokens = total + float(loss) * n, n_tokens + n
        sources, references = zip(*pairs, strict=True)
        scores = score(translator.greedy(sources), references, self.settings.tgt)
        return {"val_loss": total / n_tokens, "val_bleu": scores["bleu"], "val_bleu_lower": scores["bleu_lower"]}

    def _chosen(self):
        """The validations whose parameters are averaged, of those whose snapshots are still there."""
        return [record for record in self._ranked() if self._snapshot(record).exists()][-self.settings.n_average :]

    def _ranked(self):
        """The validations whose parameters may be averaged, those that are wanted most last."""
        if self.settings.average == "best":
            return sorted(self.validations, key=lambda record: record["val_bleu"])
        recent = [record for record in self.validations if 3 * record["step"] >= 2 * self.trainer.n_steps]
        return recent or self.validations[-1:]  # what is older than a third of the training is much worse

    def _validation_is_due(self):
        """Whether the step just done is one to validate after, and has not been."""
        step = self.trainer.n_steps
        done = bool(self.validations) and self.validations[-1]["step"] == step
        return step > 0 and not done and (step % self.settings.validate_every == 0 or step == self.settings.steps)

    def _gets_worse(self):
        """Whether the best validation was ``patience`` validations ago."""
        bleus = [record["val_bleu"] for record in self.validations]
        return bool(bleus) and len(bleus) - 1 - bleus.index(max(bleus)) >= self.settings.patience

    def _snapshot(self, record):
        return self.out / SNAPSHOTS / f"step-{record['step']:07}.safetensors"

    def _translator(self, params=None):
        params = self.trainer.params if params is None else params
        return Translator(self.model, params, self.source, self.target, self.trainer.ops)


def _settings_in(info, path):
    """The settings of a checkpoint."""
    if unknown := info["settings"].keys() - {field.name for field in fields(TranslationSettings)}:
        raise CheckpointError(f"{path} has settings that this version of npformer does not know: {sorted(unknown)}")
    try:
        return TranslationSettings(**info["settings"])
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def _model(settings, source, target):
    """A Transformer, or the model that the settings name."""
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


def _text(settings, split):
    s = settings
    return ParallelText.find(s.data, split, s.src, s.tgt, skip_empty=s.skip_empty)


def _schedule(settings, d_model):
    if settings.schedule == "noam":
        return noam(d_model, settings.warmup, factor=settings.lr)
    if settings.schedule == "cosine":
        return warmup_cosine(settings.lr, settings.warmup, settings.steps)
    return inverse_sqrt(settings.lr, settings.warmup)
