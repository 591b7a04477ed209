"""What the commands that train a model on text share: their options, and how they go on, stop and end."""

from contextlib import contextmanager
from dataclasses import fields
from signal import Signals

from npformer.commands.arguments import add_backend, option
from npformer.commands.command import print_error, print_note
from npformer.commands.compile import compile_ahead
from npformer.commands.output import add_json, output_folder, why_no_pictures

from npformer.diagnosis.watch import Watch
from npformer.operations.options import OPTIONS, choices_of
from npformer.runtime.progress import say
from npformer.training import JsonLog, NonFiniteError, StopSignals
from npformer.training.loop import LOG

SIZES = {  # fields of a Transformer, and what their options mean
    "d_model": "width D",
    "n_heads": "heads H",
    "n_layers": "layers N of the encoder, and of the decoder",
    "d_ff": "feed-forward width F",
}


def add_training(parser):
    """The options of each training, but for its settings."""
    add = parser.add_argument
    add("--out", type=output_folder, required=True, metavar="DIR", help="folder for the results")
    add("--resume", action="store_true", help="continue the training in OUT, with its settings")
    shards = "parts of a batch; the same N on any number of ranks computes the same; if none, about one per thread"
    add("--n-shards", type=option("n_shards"), metavar="N", help=f"{shards} (default: none)")
    add_backend(parser)
    add_json(parser)
    add_watching(parser)


def add_quiet(parser):
    """The option of each command that trains."""
    what = "no progress bar, nor a line each minute where it cannot be redrawn"
    parser.add_argument("--quiet", action="store_true", help=what)


def add_watching(parser):
    """The options that say what is shown of a training."""
    add_quiet(parser)
    add = parser.add_argument
    add("--explain", action="store_true", help="first list the operations of one step and their times")
    add("--diagnose", action="store_true", help="first look for mistakes, and for signs of them while it trains")


def add_setting(group, settings, name, default=None, **details):
    """An option for a field of a class of settings, with its choices or its type, and its default, if not ""."""
    if choices := choices_of(settings).get(name):
        details["choices"] = choices
    elif name in OPTIONS:
        details.setdefault("type", option(name))
    default = getattr(settings, name) if default is None else default
    if default != "":
        details["help"] += f" (default: {'none' if default is None else default})"
    group.add_argument("--" + name.replace("_", "-"), **details)


def settings_in(options, settings, names=None):
    """The fields of a class of settings, all or those with some names, that are given as options."""
    names = [each.name for each in fields(settings)] if names is None else names
    given = {name: getattr(options, name, None) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def train_until_stopped(run, options, train):
    """Call ``train(callbacks)``; return the exit code after a signal, else 0."""
    if run.ranks.size > 1:
        say(f"{run.ranks}")
    compile_ahead(run.trainer, progress=not options.quiet)
    if options.explain:
        say(f"\nthe operations of one step:\n{run.trainer.explain(*run.next_batch())}\n")
    if options.diagnose:
        say(f"\n{run.trainer.diagnose(*run.next_batch(), n_steps=run.settings.steps)}\n")
    note = "stopping and saving after this step or validation; a second signal saves nothing"
    with StopSignals(note if run.ranks.is_first else "") as stop:
        train([stop, Watch(run.trainer, run.write)] if options.diagnose else [stop])
    if code := max(run.ranks.gather(stop.exit_code)):  # a signal may have come to one rank alone
        say(f"{Signals(code - 128).name}: saved after step {run.trainer.n_steps}; --resume continues from there")
    return code


def guarded(work):
    """Call a training, and say what is left of it if it is interrupted or goes wrong; return its exit code."""
    try:
        return work()
    except KeyboardInterrupt:
        print_note("stopped at once; if there is a last.safetensors, --resume continues from there")
        raise
    except NonFiniteError as error:
        print_error(f"{error} --resume would fail again: start a new training with another --out")
        return 1


@contextmanager
def saying_where_it_stopped(trainer, steps):
    """Inside, a training that saves nothing says how far it came if Ctrl-C or another signal ends it."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if trainer.ranks.is_first:
            reached = f"stopped after step {trainer.n_steps:,} of {steps:,}"
            say(f"{reached}; nothing was saved to go on from, but fewer --steps end sooner")
        raise


def draw_curves(run, path, title, score):
    """Draw the log of a training, if matplotlib is installed; ``score`` is the name of a result, and its label."""
    if not why_no_pictures():
        from npformer.plots import plot_training

        plot_training(JsonLog.read(run.folder / LOG), path, title, score=score)
