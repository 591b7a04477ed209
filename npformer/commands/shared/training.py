"""What the commands that train a model share: their options, and how they go on, stop and end."""

import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from signal import Signals
from typing import Annotated

from npformer.commands.shared.arguments import UsageError
from npformer.commands.shared.compiling import compile_ahead
from npformer.commands.shared.ending import print_note
from npformer.commands.shared.output import refuse_overwriting, why_no_pictures, write_json
from npformer.commands.shared.signature import Backend, Fields, JsonFile, OutputFolder

from npformer.diagnosis.watch import Watch
from npformer.errors import UserError
from npformer.files.checkpoint import LAST, LOG
from npformer.models import Transformer
from npformer.progress import say
from npformer.runtime.ranks import world
from npformer.training import JsonLog, NonFiniteError, StopSignals

CURVES = "curves.png"
SIZES = "d_model n_heads n_layers d_ff"  # of a Transformer
OF_MODEL = "model (defaults: the preset's)"
SizesOfModel = Annotated[
    dict, Fields(Transformer, SIZES, defaults=dict.fromkeys(SIZES.split(), ""), title=OF_MODEL)
]


@dataclass(frozen=True, kw_only=True)
class Watching:
    """What is shown of a training.

    Parameters
    ----------
    quiet
        no progress bar, nor a line each minute where it cannot be redrawn
    explain
        first list the operations of one step and their times
    diagnose
        first look for mistakes, and for signs of them while it trains
    """

    quiet: bool = False
    explain: bool = False
    diagnose: bool = False

    def prepare(self, trainer, next_batch, n_steps, **ids):
        """Compile the kernels of a training, and show of its first step what was asked for.

        Returns what is wrong with it, False if nobody has asked.
        """
        compile_ahead(trainer, progress=not self.quiet)
        if self.explain:
            say(f"\nthe operations of one step:\n{trainer.explain(*next_batch())}\n")
        if not self.diagnose:
            return False
        findings = trainer.diagnose(*next_batch(), n_steps=n_steps, **ids)
        say(f"\n{findings}\n")
        return findings


@dataclass(frozen=True, kw_only=True)
class TextTraining(Watching):
    """A training on text, which can be resumed.

    Parameters
    ----------
    out
        folder for the results
    resume
        continue the training in OUT, with its settings
    """

    out: OutputFolder
    resume: bool = False
    backend: Backend = "auto"
    json: JsonFile | None = None
    began: float = field(default_factory=time.perf_counter, init=False)

    def check(self, settings, needed, results, texts):
        """Check that a new training has the setting that it needs, and that --json names none of
        its files.
        """
        if not self.resume and not settings.get(needed):
            raise UsageError(f"the following arguments are required: --{needed} (or --resume)")
        files = [self.out / name for name in (LAST, LOG, CURVES, *results)]
        refuse_overwriting([self.out, *files, *texts])

    def run_of(self, kind, settings, changes):
        """A new training of a kind; without settings, that in the folder, with changes of its
        settings.
        """
        last = self.out / LAST
        if settings is None:
            if not last.exists():
                raise UserError(
                    f"there is no checkpoint {last} to resume from: start without --resume"
                )
            return kind.resume(self.out, changes, self.backend, world())
        if last.exists():
            raise UserError(
                f"{self.out} holds a training: continue it with --resume, or start another with "
                "a new --out"
            )
        return kind.start(self.out, settings, self.backend, world())

    def train(self, run, what, minutes=None):
        """Say ``what`` is trained, and train it; return the exit code after a signal, else 0.

        The minutes count from the start of the command.
        """
        n_steps = run.settings.steps
        say(
            f"{what}, backend {run.trainer.ops.name}; {run.trainer.n_steps} of {n_steps} steps done"
        )
        if run.ranks.size > 1:
            say(f"{run.ranks}")
        self.prepare(run.trainer, run.next_batch, n_steps)
        watching = [Watch(run.trainer, run.loop.write)] if self.diagnose else []
        note = "stopping and saving after this step or validation; a second signal saves nothing"
        with StopSignals(note if run.ranks.is_first else "") as stop:
            run.train([stop, *watching], progress=not self.quiet, minutes=minutes, since=self.began)
        code = max(run.ranks.gather(stop.exit_code))  # a signal may have come to one rank alone
        if code:
            say(
                f"{Signals(code - 128).name}: saved after step {run.trainer.n_steps}; "
                "--resume continues from there"
            )
        return code

    def seconds(self):
        """Since the command began."""
        return time.perf_counter() - self.began

    def write_results(self, run, result, title, score):
        """Write the figures of a training, and draw its log if matplotlib is installed.

        ``score`` is the name of a result, and its label.
        """
        facts = {"n_ranks": run.ranks.size, "settings": asdict(run.settings)}
        write_json(self.json, result | facts)
        if not why_no_pictures():
            from npformer.plots import plot_training

            log = JsonLog.read(run.folder / LOG)
            plot_training(log, run.folder / CURVES, title, score=score)


@contextmanager
def saying_what_is_left():
    """Inside, a training that is interrupted or goes wrong says what is left of it."""
    try:
        yield
    except KeyboardInterrupt:
        print_note("stopped at once; if there is a last.safetensors, --resume continues from there")
        raise
    except NonFiniteError as error:
        raise UserError(
            f"{error} --resume would fail again: start a new training with another --out"
        ) from error


@contextmanager
def saying_where_it_stopped(trainer, steps):
    """Inside, a training that saves nothing says how far it came if Ctrl-C or another signal ends
    it.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if trainer.ranks.is_first:
            say(
                f"stopped after step {trainer.n_steps:,} of {steps:,}; "
                "nothing was saved to go on from, but fewer --steps end sooner"
            )
        raise
