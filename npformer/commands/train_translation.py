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

import time
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

from npformer.commands import called
from npformer.commands.arguments import above_zero, add_settings, new_parser, settings_in
from npformer.commands.command import command
from npformer.commands.output import refuse_overwriting, write_json
from npformer.commands.training import (
    CURVES,
    SIZES,
    add_training,
    draw_curves,
    guarded,
    require,
    train_until_stopped,
)

from npformer import tree
from npformer.files.checkpoint import LAST, RESULT
from npformer.models import Transformer
from npformer.runtime.ranks import world
from npformer.text import TranslationRun, TranslationSettings
from npformer.text.settings import PRESETS
from npformer.text.snapshots import SNAPSHOTS
from npformer.training.loop import LOG

OF_TRAINING = {  # fields of the settings, and what their options mean
    "src": "language of the source, which is the ending of its files",
    "tgt": "language of the target",
    "seed": "seed of parameters, dropout and the order of the data",
    "steps": "number of updates (default: the preset's)",
    "precision": "precision of the steps on a GPU",
}
RECIPE = {
    "vocab": "one vocabulary and embedding for both languages, or two",
    "vocab_size": "number of subword pieces; fewer, if the text has fewer",
    "max_tokens": "most tokens of a batch on either side, padding included",
    "max_len": "leave out pairs with more than N pieces on a side",
    "schedule": "schedule of the learning rate",
    "lr": "largest learning rate; for noam a factor",
    "warmup": "steps until the largest learning rate",
    "dropout": "dropout of embeddings and of the output of each sublayer",
    "inner_dropout": "dropout of attention weights and hidden layers",
    "label_smoothing": "share of the target that is spread over all pieces",
    "consistency": "weight of R-Drop: predictions under two draws of dropout agree, in twice the "
    "time; 1 is usual",
    "clip_norm": "largest norm of a gradient",
    "norm": "layer normalisation before or after each sublayer",
    "validate_every": "steps between validations (loss and BLEU)",
    "save_every": "steps between checkpoints for --resume",
    "patience": "stop after N validations without a better BLEU",
    "n_average": "the result is the mean of the parameters of N validations",
    "average": "which validations; last: those of the last third of the steps",
}
# Defaults are shown that all presets share; the sizes of the model are those of the preset, too.
OF_PRESETS = dict.fromkeys([*SIZES, *chain(*PRESETS.values())], "")


@command
def main(argv=None):
    start = time.perf_counter()
    options = parse_arguments(argv)
    refuse_overwriting(options, files_of(options))
    return guarded(lambda: train(run_of(options), options, start))


def run_of(options):
    """The training, begun or resumed."""
    settings = settings_in(options, TranslationSettings)
    sizes = settings_in(options, Transformer, SIZES)
    if options.resume:
        if sizes:
            settings["model"] = sizes
        return TranslationRun.resume(options.out, settings, options.backend, world())
    settings = TranslationSettings.from_preset(**settings)
    settings = replace(settings, model=settings.model | sizes)
    return TranslationRun.start(options.out, settings, options.backend, world())


def files_of(options):
    """The files of a training and its text."""
    files = [options.out / name for name in (LAST, RESULT, SNAPSHOTS, LOG, CURVES)]
    if options.data:
        data = Path(options.data)
        files += [*data.glob("train.*"), *data.glob("val.*")]
    return [options.out, *files]


def train(run, options, start):
    settings = run.settings
    title = f"{settings.src} to {settings.tgt}, preset {settings.preset}, seed {settings.seed}"
    sizes = f"{tree.count(run.trainer.params):,} parameters, {len(run.translator.source):,} pieces"
    run.began = start  # --minutes count from the start of the command
    code = train_until_stopped(run, options, f"{title}: {sizes}", minutes=options.minutes)
    if code:
        return code
    result = run.finish()
    result["seconds"] = time.perf_counter() - start
    if not run.ranks.is_first:
        return 0
    figures = {"settings": asdict(settings), "n_ranks": run.ranks.size}
    write_json(options.json, result | figures)
    draw_curves(run, title, ("val_bleu", "BLEU, validation, greedy"))
    report(run, result)
    return 0


def report(run, result):
    step = result["step"]
    goes_on = ""
    if step < run.settings.steps and not run._is_out_of_patience():
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


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    # The checkpoint has the path, which the same folder with another spelling would not match.
    folder = lambda text: str(Path(text))
    parser.add(
        "--data",
        "folder with the aligned files; needed unless --resume",
        type=folder,
        metavar="DIR",
    )
    sizes = "tiny (D 128, for tens of thousands of pairs), small (D 256), base (D 512, as in the"
    parser.add(
        "--preset",
        f"sizes and recipe: {sizes} paper, for millions) (default: tiny)",
        choices=PRESETS,
    )
    add_settings(parser, TranslationSettings, OF_TRAINING, OF_PRESETS)
    parser.add(
        "--minutes",
        "end so early that the result is written after M minutes",
        type=above_zero,
        metavar="M",
    )
    add_training(parser)
    group = parser.add_argument_group("model (defaults: the preset's)")
    add_settings(group, Transformer, SIZES, OF_PRESETS)
    group = parser.add_argument_group("recipe (defaults: the preset's, if none is given here)")
    add_settings(group, TranslationSettings, RECIPE, OF_PRESETS)
    # None if it is not typed, as for all settings: a training that goes on keeps what it had.
    pairs = "leave out pairs with an empty line"
    group.add_argument("--skip-empty", action="store_true", default=None, help=pairs)
    options = parser.parse_args(argv)
    if options.resume and options.preset:
        reason = "a resumed training keeps the preset it was started with"
        parser.error(f"argument --preset: {reason}")
    require(parser, options, "data")
    return options
