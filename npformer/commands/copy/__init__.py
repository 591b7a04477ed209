"""Train a Transformer to copy sequences, and test it on sequences it was not trained on.

npformer copy                            # a small model, a minute
npformer copy --task reverse --seed 1
npformer copy --preset annotated         # the Annotated Transformer's size, minutes
npformer copy --d-model 32 --n-layers 1  # another size
npformer copy --out runs/mine            # keep the model, too, in runs/mine/model.safetensors
"""

import itertools
import time
from typing import Annotated, Literal

from npformer.commands.copy.pictures import attention_in_characters, draw
from npformer.commands.copy.recipes import PRESETS
from npformer.commands.copy.trained import Trained, evaluate, report
from npformer.commands.shared import (
    Backend,
    JsonFile,
    Pictures,
    Reading,
    UsageError,
    checked_folder,
    command_line,
    write_json,
)
from npformer.commands.shared.training import SizesOfModel, Watching, saying_where_it_stopped

from npformer import tree
from npformer.files.checkpoint import RESULT, import_safetensors
from npformer.models import describe
from npformer.operations.host import PrecisionName
from npformer.text.copy_task import BOS, EOS, CopyTask
from npformer.training import ParameterAverage, save_checkpoint

N_EVALUATED = 1000


@command_line
def main(
    *,
    preset: Annotated[str, Reading(choices=PRESETS)] = "quick",
    task: Literal["copy", "reverse"] = "copy",
    seed: int = 0,
    steps: int | None = None,
    sizes: SizesOfModel,
    backend: Backend = "auto",
    precision: PrecisionName = "float32",
    pictures: Pictures,
    json: JsonFile | None = None,
    watching: Watching,
):
    """Train a model, and test it.

    Parameters
    ----------
    preset
        size of model and training
    task
        what the target is
    seed
        seed of parameters, data and dropout
    steps
        training steps (default: 1200 of quick, 400 of annotated)
    precision
        of the steps, on a GPU
    out : DIR
        folder of the pictures (default: runs/copy or runs/reverse); if it is given,
        model.safetensors is written to it, too
    """
    if precision not in backend.device.precisions:
        raise UsageError(f"argument --precision: {precision} is for --backend gpu")
    file = file_to_keep(pictures.out)
    folder = pictures.folder(f"runs/{task}")
    recipe = PRESETS[preset]
    n_steps = steps or recipe.steps
    sequences = CopyTask(reverse=task == "reverse", seed=seed, **recipe.lengths)
    trainer = recipe.trainer(
        sequences.vocab, n_steps, sizes, seed=seed, precision=precision, backend=backend
    )
    print(
        f"{task} task, preset {preset}: {tree.count(trainer.params):,} parameters, {n_steps} steps "
        f"of {recipe.batch_size} sequences, seed {seed}, backend {trainer.ops.name}"
    )
    if not trainer.ranks.is_alone:
        print(trainer.ranks)
    history, params, figures = train(trainer, sequences, recipe, n_steps, watching)
    if not trainer.ranks.is_first:
        return
    start = time.perf_counter()
    trained = Trained(trainer.model, params, trainer.ops, *sequences.held_out(N_EVALUATED))
    scores, answers = evaluate(trained, sequences)
    result = {"task": task, "preset": preset, "seed": seed, "backend": trainer.ops.name}
    seconds = figures["train_seconds"] + time.perf_counter() - start
    result |= scores | {"seconds": seconds} | figures
    write_json(json, result)
    if file:
        save_model(trained, file)
    report(result, sequences, trained, answers)
    if folder:
        draw(folder, task, trained, history)
    elif not pictures.no_plots:
        print(f"\n{attention_in_characters(trained)}")
    if file:
        print_how_to_load(file)


def train(trainer, sequences, recipe, n_steps, watching):
    """Make the steps of a training. Returns their history, the mean of the parameters over the last
    of them, and the figures for the file of --json.
    """

    def batch(step):
        return sequences.batch(step, recipe.batch_size)

    watch = watching.prepare(trainer, lambda: batch(0), n_steps, bos_id=BOS, eos_id=EOS)
    start = time.perf_counter()
    average = ParameterAverage(first_step=max(1, n_steps - recipe.average_last + 1))
    with saying_where_it_stopped(trainer, n_steps):
        history = trainer.fit(
            map(batch, itertools.count()),
            n_steps,
            callbacks=[average],
            progress=not watching.quiet,
            watch=watch,
        )
    seconds = time.perf_counter() - start
    figures = {
        "train_seconds": seconds,
        "steps": n_steps,
        "tokens_per_second": sum(info.n_tokens for info in history) / seconds,
        "n_parameters": tree.count(trainer.params),
        "averaged_steps": average.n,
        "n_ranks": trainer.ranks.size,
    }
    return history, average.params, figures


def file_to_keep(folder):
    """The file of the model, None if it will not be kept; if it cannot be, this is said."""
    if folder is None:
        return None
    try:
        import_safetensors()
    except ImportError as error:
        print(f"the model will not be kept: {error}", flush=True)
        return None
    return checked_folder(folder) / RESULT


def save_model(trained, file):
    """Write the model to a file."""
    arrays = tree.to_arrays(trained.params, "params")
    save_checkpoint(file, arrays, {"model": describe(trained.model)})


def print_how_to_load(file):
    """Say where the model is, and how a program gets it."""
    print(
        f"\nthe model is {file}; in Python:\n"
        f"  arrays, info = npformer.training.load_checkpoint({str(file)!r})\n"
        '  model = npformer.models.from_description(info["model"], arrays)\n'
        '  params = npformer.tree.from_arrays(arrays, "params")'
    )
