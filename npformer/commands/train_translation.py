"""Train a Transformer to translate, from two files in which each line is the translation of the same line in the other.

npformer get-multi30k
npformer train-translation --data data/multi30k --src en --tgt fr --out runs/en-fr
npformer train-translation --out runs/en-fr --resume          # continue after an interruption
mpiexec -n 4 npformer train-translation --data data/multi30k --out runs/en-fr  # see docs/guides/scale.md
npformer translate --model runs/en-fr "A man is riding a bicycle."

DATA contains train.en, train.fr, val.en and val.fr, plain or .gz. It writes to OUT
  last.safetensors    the checkpoint for --resume; a resumed training gives the same result, bit for bit, as one that
                      was not interrupted
  snapshots/          the parameters at the validations that will be averaged: keep them with the checkpoint
  model.safetensors   their mean, the result
  log.jsonl           one line for each step and each validation
  curves.png          a plot of the log

Ctrl-C, SIGTERM and a closed terminal (SIGHUP) finish the current step or validation, save, and exit with 130, 143 and
129; a second one does not save.
Other exit codes: 0 when training is done or --minutes are over, 1 after an error, 2 for wrong arguments.
"""

import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from npformer.commands import called
from npformer.commands.arguments import LARGEST_VOCABULARY, LONGEST, above_zero, natural, new_parser, option
from npformer.commands.command import command
from npformer.commands.output import refuse_overwriting, write_json
from npformer.commands.training import (
    SIZES,
    add_setting,
    add_training,
    draw_curves,
    guarded,
    settings_in,
    train_until_stopped,
)

from npformer import tree
from npformer.models import Transformer
from npformer.runtime.progress import say
from npformer.runtime.ranks import world
from npformer.training.loop import LAST, LOG
from npformer.translation import TranslationRun, TranslationSettings
from npformer.translation.run import RESULT, SNAPSHOTS
from npformer.translation.settings import PRESETS

CURVES = "curves.png"


@command
def main(argv=None):
    start = time.perf_counter()
    options = parse_arguments(argv)
    refuse_overwriting({"--json": options.json}, files_of(options))
    return guarded(lambda: train(run_of(options), options, start))


def run_of(options):
    """The training, begun or resumed."""
    given, sizes = settings_in(options, TranslationSettings), settings_in(options, Transformer, SIZES)
    if options.resume:
        changes = given | ({"model": sizes} if sizes else {})
        return TranslationRun.resume(options.out, changes, options.backend, world())
    settings = TranslationSettings.from_preset(**given)
    settings = replace(settings, model=settings.model | sizes)
    return TranslationRun.start(options.out, settings, options.backend, world())


def train(run, options, start):
    s = run.settings
    say(
        f"{title(s)}: {tree.count(run.trainer.params):,} parameters, "
        f"{len(run.translator.source):,} pieces, backend {run.trainer.ops.name}; "
        f"{run.trainer.n_steps} of {s.steps} steps done"
    )
    run.began = start
    progress = {"progress": not options.quiet, "minutes": options.minutes}
    if code := train_until_stopped(run, options, lambda stops: run.train(stops, **progress)):
        return code
    result = run.finish()
    result["seconds"] = time.perf_counter() - start
    if not run.ranks.is_first:
        return 0
    write_json(options.json, result | {"settings": asdict(s), "n_ranks": run.ranks.size})
    draw_curves(run, run.folder / CURVES, title(s), ("val_bleu", "BLEU, validation, greedy"))
    report(run, result)
    return 0


def files_of(options):
    """The files of a training and its text."""
    names = LAST, RESULT, SNAPSHOTS, LOG, CURVES
    text = [*Path(options.data).glob("train.*"), *Path(options.data).glob("val.*")] if options.data else []
    return [options.out, *(options.out / name for name in names), *text]


def report(run, result):
    steps, averaged = result["averaged"] or [result["step"]], ", ".join(map(str, result["averaged"]))
    after = f"mean of the parameters after steps {averaged}" if len(steps) > 1 else f"parameters after step {steps[0]}"
    goes_on = "; --resume continues" * (result["step"] < run.settings.steps and not run._is_out_of_patience())
    print(
        f"\n{result['step']:,} of {run.settings.steps:,} steps ({result['seconds'] / 60:.1f} minutes in this run)"
        f"{goes_on}. The {after}:\n"
        f"validation loss {result['val_loss']:.3f} per token, greedy BLEU "
        f"{result['val_bleu']:.1f} cased and detokenised, {result['val_bleu_lower']:.1f} lower-cased and tokenised"
    )
    print(f'\nnow: {called("translate")} --model {run.folder} "A man is riding a bicycle."')


def title(s):
    return f"{s.src} to {s.tgt}, preset {s.preset}, seed {s.seed}"


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    add, setting = parser.add_argument, partial(_add_setting, parser)
    data = "folder with the aligned files; needed unless --resume"
    add("--data", type=lambda text: str(Path(text)), metavar="DIR", help=data)
    setting("src", help="language of the source, which is the ending of its files")
    setting("tgt", help="language of the target")
    sizes = "tiny (D 128, for tens of thousands of pairs), small (D 256), base (D 512, as in the paper, for millions)"
    setting("preset", choices=PRESETS, help=f"sizes and recipe: {sizes}")
    setting("seed", type=natural, help="seed of parameters, dropout and the order of the data")
    setting("steps", help="number of updates (default: the preset's)")
    add("--minutes", type=above_zero, metavar="M", help="end so early that the result is written after M minutes")
    setting("precision", help="precision of the steps on a GPU")
    add_training(parser)

    model = parser.add_argument_group("model (defaults: the preset's)")
    for name, meaning in SIZES.items():
        add_setting(model, Transformer, name, "", help=meaning)
    recipe = parser.add_argument_group("recipe (defaults: the preset's, if none is given here)")
    add, setting = recipe.add_argument, partial(_add_setting, recipe)
    setting("vocab", help="one vocabulary and embedding for both languages, or two")
    size = option("vocab_size", LARGEST_VOCABULARY)
    setting("vocab_size", type=size, metavar="V", help="number of subword pieces; fewer, if the text has fewer")
    setting("max_tokens", metavar="N", help="most tokens of a batch on either side, padding included")
    longest = option("max_len", LONGEST)
    setting("max_len", type=longest, metavar="N", help="leave out pairs with more than N pieces on a side")
    add("--skip-empty", action="store_true", default=None, help="leave out pairs with an empty line")
    setting("schedule", help="schedule of the learning rate")
    setting("lr", type=option("peak"), help="largest learning rate; for noam a factor")
    setting("warmup", metavar="STEPS", help="steps until the largest learning rate")
    setting("dropout", metavar="P", help="dropout of embeddings and of the output of each sublayer")
    setting("inner_dropout", metavar="P", help="dropout of attention weights and hidden layers")
    setting("label_smoothing", metavar="P", help="share of the target that is spread over all pieces")
    r_drop = "weight of R-Drop: predictions under two draws of dropout agree, in twice the time; 1 is usual"
    setting("consistency", metavar="A", help=r_drop)
    setting("clip_norm", metavar="X", help="largest norm of a gradient")
    setting("norm", help="layer normalisation before or after each sublayer")
    setting("validate_every", metavar="STEPS", help="steps between validations (loss and BLEU)")
    setting("save_every", metavar="STEPS", help="steps between checkpoints for --resume")
    setting("patience", metavar="N", help="stop after N validations without a better BLEU")
    setting("n_average", metavar="N", help="the result is the mean of the parameters of N validations")
    setting("average", help="which validations; last: those of the last third of the steps")
    options = parser.parse_args(argv)
    if options.resume and options.preset:
        parser.error("argument --preset: a resumed training keeps the preset it was started with")
    if not options.resume and not options.data:
        parser.error("the following arguments are required: --data (or --resume)")
    return options


def _add_setting(group, name, **details):
    """An option for a field of ``TranslationSettings``, with its default if all presets share it."""
    default = "" if any(name in changes for changes in PRESETS.values()) else None
    add_setting(group, TranslationSettings, name, default, **details)
