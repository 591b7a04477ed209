"""Train a Transformer to translate, from two files in which each line is the translation of the
same line in the other.

npformer get-multi30k
npformer train-translation --data data/multi30k --src en --tgt fr --out runs/en-fr
npformer train-translation --out runs/en-fr --resume          # continue after an interruption
mpiexec -n 4 npformer train-translation --data data/multi30k --out runs/en-fr
npformer translate --model runs/en-fr "A man is riding a bicycle."

DATA contains train.en, train.fr, val.en and val.fr, plain or .gz. It writes to OUT
  last.safetensors    the checkpoint for --resume; a resumed training gives the same result, bit for
                      bit, as one that was not interrupted
  snapshots/          the parameters at the validations that will be averaged: keep them with the
                      checkpoint
  model.safetensors   their mean, the result
  log.jsonl           one line for each step and each validation
  curves.png          a plot of the log

With mpiexec the ranks share the work: docs/guides/scale.md.
Ctrl-C, SIGTERM and a closed terminal (SIGHUP) finish the current step or validation, save, and exit
with 130, 143 and 129; a second one does not save.
Other exit codes: 0 when training is done or --minutes are over, 1 after an error, 2 for wrong
arguments.
"""

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated

from npformer.commands import called
from npformer.commands.shared import Fields, Reading, UsageError, command_line
from npformer.commands.shared.training import SizesOfModel, TextTraining, saying_what_is_left

from npformer import tree
from npformer.files.checkpoint import RESULT
from npformer.operations.options import ABOVE_0
from npformer.text.settings import PRESETS, TranslationSettings
from npformer.text.snapshots import SNAPSHOTS
from npformer.text.translation_run import TranslationRun

OF_TRAINING = "data src tgt seed steps precision n_shards"
RECIPE = (
    "vocab vocab_size max_tokens max_len schedule lr warmup dropout inner_dropout label_smoothing "
    "consistency clip_norm norm validate_every save_every patience n_average average skip_empty"
)
# Defaults are shown that all presets share.
OF_PRESETS = dict.fromkeys(chain(*PRESETS.values()), "")
OF_RECIPE = "recipe (defaults: the preset's, if none is given here)"


@command_line
def main(
    *,
    settings: Annotated[dict, Fields(TranslationSettings, OF_TRAINING, defaults=OF_PRESETS)],
    preset: Annotated[str | None, Reading(choices=PRESETS)] = None,
    minutes: Annotated[float, ABOVE_0] | None = None,
    training: TextTraining,
    sizes: SizesOfModel,
    recipe: Annotated[
        dict, Fields(TranslationSettings, RECIPE, defaults=OF_PRESETS, title=OF_RECIPE)
    ],
):
    """Train a translation model.

    Parameters
    ----------
    data : DIR
        folder with the aligned files; needed unless --resume
    steps
        number of updates (default: the preset's)
    preset
        sizes and recipe: tiny (D 128, for tens of thousands of pairs), small (D 256), base (D 512,
        as in the paper, for millions) (default: tiny)
    minutes : M
        end so early that the result is written after M minutes
    """
    if training.resume and preset:
        raise UsageError(
            "argument --preset: a resumed training keeps the preset it was started with"
        )
    settings = settings | recipe
    texts = []
    if "data" in settings:
        folder = Path(settings["data"])
        # The checkpoint has the path, which another spelling of it would not match.
        settings["data"] = str(folder)
        texts = [*folder.glob("train.*"), *folder.glob("val.*")]
    training.check(settings, "data", [RESULT, SNAPSHOTS], texts)
    new = None
    if not training.resume:
        of_preset = TranslationSettings.from_preset(preset or "tiny", **settings)
        new = replace(of_preset, model=of_preset.model | sizes)
    with saying_what_is_left():
        run = training.run_of(TranslationRun, new, settings | {"model": sizes})
        return train(run, training, minutes)


def train(run, training, minutes):
    settings = run.settings
    title = f"{settings.src} to {settings.tgt}, preset {settings.preset}, seed {settings.seed}"
    sizes = f"{tree.count(run.trainer.params):,} parameters, {len(run.translator.source):,} pieces"
    code = training.train(run, f"{title}: {sizes}", minutes)
    if code:
        return code
    result = run.finish()
    result["seconds"] = training.seconds()
    if not run.ranks.is_first:
        return 0
    training.write_results(run, result, title, ("val_bleu", "BLEU, validation, greedy"))
    report(run, result)
    return 0


def report(run, result):
    step = result["step"]
    goes_on = ""
    if step < run.settings.steps and not run.loop.is_out_of_patience():
        goes_on = "; --resume continues"
    steps = result["averaged"] or [step]
    parameters = f"parameters after step {steps[0]}"
    if len(steps) > 1:
        parameters = f"mean of the parameters after steps {', '.join(map(str, steps))}"
    print(
        f"\n{step:,} of {run.settings.steps:,} steps ({result['seconds'] / 60:.1f} minutes in "
        f"this run){goes_on}. The {parameters}:\n"
        f"validation loss {result['val_loss']:.3f} per token, greedy BLEU "
        f"{result['val_bleu']:.1f} cased and detokenised, {result['val_bleu_lower']:.1f} "
        f"lower-cased and tokenised\n"
        f'\nnow: {called("translate")} --model {run.folder} "A man is riding a bicycle."'
    )
