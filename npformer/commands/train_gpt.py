"""Train a language model (a GPT) on a text: it learns to predict each character, or piece of a
word, from those before.

npformer train-gpt --text train.en --out runs/gpt
npformer train-gpt --text train.en --out runs/gpt --subwords 2000 --n-kv-heads 2 --positions learned
npformer train-gpt --out runs/gpt --resume         # continue after an interruption
npformer train-gpt --out runs/gpt --resume --steps 3000 --lr 1e-3  # train for longer
npformer generate --model runs/gpt "A man is"

It writes samples after 0, 100 and 1,000 steps and at the end, and measures bits per character on
the held-out text: the number of yes-or-no questions that each character still needs. It writes to
OUT
  last.safetensors    the checkpoint for --resume; a resumed training gives the same result, bit for
                      bit, as one that was not interrupted
  best.safetensors    that of the best validation
  log.jsonl           one line for each step and each validation
  curves.png          a plot of the log

Ctrl-C, SIGTERM and SIGHUP finish the current step, save, and exit with 130, 143 and 129.
"""

import time
from dataclasses import asdict

from npformer.commands import called
from npformer.commands.arguments import add_settings, new_parser, settings_in
from npformer.commands.command import command
from npformer.commands.output import refuse_overwriting, write_json
from npformer.commands.training import (
    CURVES,
    add_training,
    draw_curves,
    guarded,
    require,
    train_until_stopped,
)

from npformer import tree
from npformer.files.checkpoint import BEST, LAST
from npformer.models import LanguageModel
from npformer.progress import say
from npformer.runtime.ranks import world
from npformer.text import LanguageRun, LanguageSettings
from npformer.training.loop import LOG

OF_TRAINING = {  # fields of the settings, and what their options mean
    "subwords": "pieces of words as tokens, fewer if the text has fewer; if none, characters",
    "steps": "number of updates",
    "every": "steps between validations",
    "batch_size": "passages in a step",
    "length": "tokens of a passage, the context",
    "lr": "largest learning rate",
    "seed": "seed of parameters, passages and dropout",
}
OF_MODEL = {
    "d_model": "width D",
    "n_heads": "heads H",
    "n_layers": "layers N",
    "d_ff": "feed-forward width F",
    "n_kv_heads": "heads of keys and values, which the heads share; if none, H",
    "positions": "what tells positions apart",
    "window": "each token attends to the last ones only",
    "norm": "normalisation before or after each sublayer",
    "norm_type": "its type",
    "activation": "of the hidden layers; with swiglu, F of 2/3 has as many parameters",
    "dropout": "rate of dropout; a text that is read many times needs some",
}
# What suits a small text; the other defaults are the model's own.
SMALL = {"d_model": 128, "n_heads": 4, "n_layers": 4, "d_ff": 512, "dropout": 0.0}


@command
def main(argv=None):
    start = time.perf_counter()
    options = parse_arguments(argv)
    results = [options.out / name for name in (LAST, BEST, LOG, CURVES)]
    refuse_overwriting(options, [options.out, *results, options.text, options.held_out])
    return guarded(lambda: train(run_of(options), options, start))


def run_of(options):
    """The training, begun or resumed."""
    settings = settings_in(options, LanguageSettings)
    model = settings_in(options, LanguageModel)
    if options.resume:
        changes = settings | {"model": model}
        return LanguageRun.resume(options.out, changes, options.backend, world())
    settings = LanguageSettings(**settings, model=SMALL | model)
    return LanguageRun.start(options.out, settings, options.backend, world())


def train(run, options, start):
    settings = run.settings
    kind = "pieces" if settings.subwords else "characters"
    n_parameters = tree.count(run.trainer.params)
    tokens = f"{len(run.text.tokens):,} {kind}, {len(run.text.ids):,} tokens of text"
    code = train_until_stopped(run, options, f"{n_parameters:,} parameters, {tokens}")
    if code or not run.ranks.is_first:
        return code
    best = min(run.validations, key=lambda record: record["bits_per_character"])
    figures = {
        "n_steps": run.trainer.n_steps,
        "seconds": time.perf_counter() - start,
        "n_parameters": n_parameters,
        "n_ranks": run.ranks.size,
        "settings": asdict(settings),
    }
    write_json(options.json, best | figures)
    score = "bits_per_character", "bits per character, held out"
    draw_curves(run, "A language model", score)
    say(
        f"\n{best['bits_per_character']:.3f} bits per character of the held-out text after step "
        f"{best['step']}, {figures['seconds'] / 60:.1f} minutes in this run"
        f'\nnow: {called("generate")} --model {run.folder} "A man is"'
    )
    return 0


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    parser.add("--text", "UTF-8 text, plain or .gz; needed unless --resume", metavar="FILE")
    parser.add(
        "--held-out", "text to measure on (default: the last tenth of the text)", metavar="FILE"
    )
    add_settings(parser, LanguageSettings, OF_TRAINING, {})
    add_training(parser)
    group = parser.add_argument_group("model")
    add_settings(group, LanguageModel, OF_MODEL, SMALL)
    options = parser.parse_args(argv)
    require(parser, options, "text")
    return options
