"""The training of a language model on a text, which can be interrupted and resumed."""

from itertools import count

from npformer.files.checkpoint import LAST, load_checkpoint
from npformer.files.paths import check_path
from npformer.models import from_description
from npformer.progress import say
from npformer.text.lines import read_both
from npformer.text.passages import Text
from npformer.text.run import TextRun
from npformer.text.settings import LanguageSettings
from npformer.text.writer import Writer, model_in
from npformer.tokens.subwords import learned_by_first
from npformer.tokens.tokenizers import Characters, Pieces, Tokens
from npformer.training.optimizers import Adam
from npformer.training.schedules import warmup_cosine
from npformer.training.settings import LoopSettings

SAMPLED = (0, 100, 1000)  # steps after which the model writes something; also at the end


class LanguageRun(TextRun):
    """One training of a language model.

    The batch of a step is a function of the seed and the number of the step, so the number is its
    place in the data.

    Parameters
    ----------
    folder : Path
        For ``last.safetensors``, from which it resumes, ``best.safetensors`` and ``log.jsonl``.
    settings : LanguageSettings
    text : Text
    backend, ranks
        As for ``Trainer``. Rank 0 writes all files.
    """

    MAY_CHANGE = {"text", "held_out", "lr", "steps", "every", "save_every", "precision", "n_shards"}

    def __init__(self, folder, settings, text, backend="auto", ranks=None):
        self.text = text
        description = {"name": "LanguageModel", **settings.model}
        description |= {"vocab": len(text.tokens), "max_len": settings.length}
        model = from_description(description)
        warmup = min(settings.warmup, settings.steps // 2)
        schedule = warmup_cosine(settings.lr, warmup, settings.steps)
        optimizer = Adam(schedule, betas=(0.9, 0.95))
        of_loop = LoopSettings(
            every=settings.every, save_every=settings.save_every, monitor="bits_per_character"
        )
        super().__init__(folder, settings, model, optimizer, of_loop, backend, ranks)
        self.writer = Writer(model, self.trainer.params, text.tokens, self.trainer.ops)

    @classmethod
    def start(cls, out, settings, backend="auto", ranks=None):
        """Start a new training; this reads the text and, of subwords, learns the pieces."""
        ranks = cls.ranks_of_new(out, settings, ranks)
        both = read_both(settings.text, settings.held_out)
        if settings.subwords is None:
            tokens: Tokens = Characters("".join(both))
        else:
            [subwords] = learned_by_first(
                [both[0].splitlines], "subwords", settings.subwords, ranks
            )
            tokens = Pieces(subwords)
        return cls(out, settings, Text(*both, tokens, settings.length), backend, ranks)

    @classmethod
    def resume(cls, out, changes=None, backend="auto", ranks=None):
        """Resume the training in a folder; ``changes`` are settings to change from here on.

        With another ``lr`` or number of ``steps``, the learning rate goes on where a training with
        these settings would be after as many steps.
        """
        path = check_path(out, "out") / LAST
        arrays, info = load_checkpoint(path)
        _, tokens = model_in(arrays, info, path)
        before = LanguageSettings.of_checkpoint(info, path)
        settings = before.changed(changes or {}, cls.MAY_CHANGE, path)
        text = Text(*read_both(settings.text, settings.held_out), tokens, settings.length)
        run = cls(out, settings, text, backend, ranks)
        run.go_on_from(path, arrays, info, before)
        if run.ranks.is_first:
            for name in ("lr", "steps"):
                old = getattr(before, name)
                new = getattr(settings, name)
                if new != old:
                    say(f"from here on {name} is {new}, not {old}")
        return run

    def vocabulary_arrays(self):
        """The tokens, as arrays of a checkpoint."""
        return self.text.tokens.arrays

    def train(self, stops=(), progress=True, minutes=None, since=None):
        """Train as a ``TextRun`` does, and write samples on the way."""
        if not self.trainer.n_steps:
            self.show_sample()

        def sampling(_, info):
            if info.step in (*SAMPLED, self.settings.steps):
                self.show_sample()

        super().train([*stops, sampling], progress, minutes, since)

    def batches(self):
        """Yield the batches from the next step on, without end."""
        for step in count(self.trainer.n_steps):
            yield self.text.batch(self.settings.seed, step, self.settings.batch_size)

    @property
    def prompt(self):
        """The beginning of the held-out text, whose tokens the model knows."""
        return self.writer.tokens.decode(self.text.held_out[:8])

    def show_sample(self):
        """Print what the model writes now, after the first line of the held-out text has begun."""
        if self.ranks.is_first:
            prompt = self.prompt
            seed = self.settings.seed
            written = self.writer.write(prompt, n_tokens=120, seed=seed, temperature=0.8)
            lines = (prompt + written).replace("\n", "\n    ")
            say(f"step {self.trainer.n_steps} writes:\n    {lines}")

    def note_validation(self, record, is_shown):
        """Print the numbers of a validation."""
        if self.ranks.is_first:
            say(
                f"step {record['step']}: "
                f"{record['bits_per_character']:.3f} bits per character of the held-out text"
            )

    def evaluate(self):
        """The loss of the held-out text, also as bits per character."""
        batches = self.text.held_out_batches(self.settings.batch_size)
        loss = self.trainer.mean_loss(batches)
        return {"val_loss": loss, "bits_per_character": self.text.bits_per_character(loss)}
