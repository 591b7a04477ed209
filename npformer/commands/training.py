"""What the commands that train a model share: their options, and how they go on, stop and end."""

from contextlib import contextmanager
from signal import Signals

from npformer.commands.arguments import add_backend, option
from npformer.commands.command import print_error, print_note
from npformer.commands.compile import compile_ahead
from npformer.commands.output import add_json, output_folder, why_no_pictures

from npformer.diagnosis.watch import Watch
from npformer.progress import say
from npformer.training import JsonLog, NonFiniteError, StopSignals
from npformer.training.loop import LOG

CURVES = "curves.png"
SIZES = {  # fields of a Transformer, and what their options mean
    "d_model": "width D",
    "n_heads": "heads H",
    "n_layers": "layers N of the encoder, and of the decoder",
    "d_ff": "feed-forward width F",
}


def add_training(parser):
    """The options of each training on text, but for its settings."""
    parser.add("--out", "folder for the results", type=output_folder, required=True, metavar="DIR")
    parser.add_flag("--resume", "continue the training in OUT, with its settings")
    bits = "the same N on any number of ranks computes the same"
    parser.add(
        "--n-shards",
        f"parts of a batch; {bits}; if none, about one per thread (default: none)",
        type=option("n_shards"),
        metavar="N",
    )
    add_backend(parser)
    add_json(parser)
    add_watching(parser)


def add_quiet(parser):
    """The option of each command that trains."""
    parser.add_flag("--quiet", "no progress bar, nor a line each minute where it cannot be redrawn")


def add_watching(parser):
    """The options that say what is shown of a training."""
    add_quiet(parser)
    parser.add_flag("--explain", "first list the operations of one step and their times")
    parser.add_flag("--diagnose", "first look for mistakes, and for signs of them while it trains")


def require(parser, options, name):
    """End the command if a training that is not resumed lacks an option."""
    if not options.resume and not getattr(options, name):
        parser.error(f"the following arguments are required: --{name} (or --resume)")


def prepare(trainer, next_batch, options, n_steps, **ids):
    """Compile the kernels of a training, and show of its first step what the options ask for.

    Returns what is wrong with it, False if nobody has asked.
    """
    compile_ahead(trainer, progress=not options.quiet)
    if options.explain:
        say(f"\nthe operations of one step:\n{trainer.explain(*next_batch())}\n")
    if not options.diagnose:
        return False
    findings = trainer.diagnose(*next_batch(), n_steps=n_steps, **ids)
    say(f"\n{findings}\n")
    return findings


def train_until_stopped(run, options, what, **limits):
    """Say ``what`` is trained, and train it; return the exit code after a signal, else 0.

    ``limits`` are further options of ``run.train``.
    """
    n_steps = run.settings.steps
    so_far = f"{run.trainer.n_steps} of {n_steps} steps done"
    say(f"{what}, backend {run.trainer.ops.name}; {so_far}")
    if run.ranks.size > 1:
        say(f"{run.ranks}")
    prepare(run.trainer, run.next_batch, options, n_steps)
    watching = [Watch(run.trainer, run.write)] if options.diagnose else []
    note = "stopping and saving after this step or validation; a second signal saves nothing"
    with StopSignals(note if run.ranks.is_first else "") as stop:
        run.train([stop, *watching], progress=not options.quiet, **limits)
    code = max(run.ranks.gather(stop.exit_code))  # a signal may have come to one rank alone
    if code:
        saved = f"saved after step {run.trainer.n_steps}"
        say(f"{Signals(code - 128).name}: {saved}; --resume continues from there")
    return code


def guarded(work):
    """Call a training, and say what is left of it if it is interrupted or goes wrong; return its
    exit code.
    """
    try:
        return work()
    except KeyboardInterrupt:
        file = "if there is a last.safetensors, --resume continues from there"
        print_note(f"stopped at once; {file}")
        raise
    except NonFiniteError as error:
        advice = "--resume would fail again: start a new training with another --out"
        print_error(f"{error} {advice}")
        return 1


@contextmanager
def saying_where_it_stopped(trainer, steps):
    """Inside, a training that saves nothing says how far it came if Ctrl-C or another signal ends
    it.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if trainer.ranks.is_first:
            reached = f"stopped after step {trainer.n_steps:,} of {steps:,}"
            say(f"{reached}; nothing was saved to go on from, but fewer --steps end sooner")
        raise


def draw_curves(run, title, score):
    """Draw the log of a training, if matplotlib is installed; ``score`` is the name of a result,
    and its label.
    """
    if not why_no_pictures():
        from npformer.plots import plot_training

        log = JsonLog.read(run.folder / LOG)
        plot_training(log, run.folder / CURVES, title, score=score)
