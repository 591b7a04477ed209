"""What the commands that train a model on text share: how they go on, stop and end."""

from signal import Signals

from npformer.commands.command import print_error, print_note
from npformer.commands.output import why_no_pictures

from npformer.training import JsonLog, NonFiniteError, StopSignals
from npformer.training.loop import LOG
from npformer.training.progress import say


def train_until_stopped(run, options, train):
    """Call ``train(stop)``, where ``stop`` is a callback; return the exit code after a signal, else 0."""
    if run.ranks.size > 1:
        say(f"{run.ranks}")
    if options.explain:
        say(f"\nthe operations of one step:\n{run.explain()}\n")
    note = "stopping and saving after this step or validation; a second signal saves nothing"
    with StopSignals(note if run.ranks.is_first else "") as stop:
        train(stop)
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


def draw_curves(run, path, title, score):
    """Draw the log of a training, if matplotlib is installed; ``score`` is the name of a result, and its label."""
    if not why_no_pictures():
        from npformer.plots import plot_training

        plot_training(JsonLog.read(run.folder / LOG), path, title, score=score)
