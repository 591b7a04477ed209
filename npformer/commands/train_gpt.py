"""Train a language model (a GPT) on a text: it learns to predict each character, or piece of a word, from those before.

npformer train-gpt --text train.en --out runs/gpt
npformer train-gpt --text train.en --out runs/gpt --subwords 2000 --n-kv-heads 2 --positions learned
npformer train-gpt --out runs/gpt --resume         # continue after an interruption
npformer train-gpt --out runs/gpt --resume --steps 3000 --lr 1e-3  # train for longer, with another learning rate
npformer generate --model runs/gpt "A man is"

It writes samples after 0, 100 and 1,000 steps and at the end, and measures bits per character on the held-out text: the
number of yes-or-no questions that each character still needs. It writes to OUT
  last.safetensors    the checkpoint for --resume; a resumed training gives the same result, bit for bit, as one that
                      was not interrupted
  best.safetensors    that of the best validation
  log.jsonl           one line for each step and each validation
  curves.png          a plot of the log

Ctrl-C, SIGTERM and SIGHUP finish the current step, save, and exit with 130, 143 and 129.
"""

import time
from dataclasses import asdict
from functools import partial

from npformer.commands import called
from npformer.commands.arguments import LARGEST_VOCABULARY, natural, new_parser, option
from npformer.commands.command import command
from npformer.commands.output import refuse_overwriting, write_json
from npformer.commands.training import add_setting, add_training, draw_curves, guarded, settings_in, train_until_stopped

from npformer import tree
from npformer.language import LanguageRun, LanguageSettings
from npformer.models import LanguageModel
from npformer.runtime.progress import say
from npformer.runtime.ranks import world
from npformer.training.loop import BEST, LAST, LOG

CURVES = "curves.png"
OF_MODEL = {  # the fields of a model that have an option: defaults that suit a small text, None for the model's own
    "d_model": (128, "width D"),
    "n_heads": (4, "heads H"),
    "n_layers": (4, "layers N"),
    "d_ff": (512, "feed-forward width F"),
    "n_kv_heads": (None, "heads of keys and values, which the heads share; if none, H"),
    "positions": (None, "what tells positions apart"),
    "window": (None, "each token attends to the last ones only"),
    "norm": (None, "normalisation before or after each sublayer"),
    "norm_type": (None, "its type"),
    "activation": (None, "of the hidden layers; with swiglu, F of 2/3 has as many parameters"),
    "dropout": (0.0, "rate of dropout; a text that is read many times needs some"),
}


@command
def main(argv=None):
    start = time.perf_counter()
    options = parse_arguments(argv)
    results = (options.out / name for name in (LAST, BEST, LOG, CURVES))
    texts = [path for path in (options.text, options.held_out) if path]
    refuse_overwriting({"--json": options.json}, [options.out, *results, *texts])
    return guarded(lambda: train(run_of(options), options, start))


def run_of(options):
    """The training, begun or resumed."""
    given, model = settings_in(options, LanguageSettings), settings_in(options, LanguageModel)
    if options.resume:
        return LanguageRun.resume(options.out, given | {"model": model}, options.backend, world())
    defaults = {name: default for name, (default, _) in OF_MODEL.items() if default is not None}
    settings = LanguageSettings(**given, model=defaults | model)
    return LanguageRun.start(options.out, settings, options.backend, world())


def train(run, options, start):
    s, text = run.settings, run.text
    kind, n_parameters = "pieces" if s.subwords else "characters", tree.count(run.trainer.params)
    say(
        f"{n_parameters:,} parameters, {len(text.tokens):,} {kind}, {len(text.ids):,} tokens of text, "
        f"backend {run.trainer.ops.name}; {run.trainer.n_steps} of {s.steps} steps done"
    )
    if code := train_until_stopped(run, options, lambda stops: run.train(stops, progress=not options.quiet)):
        return code
    best = min(run.validations, key=lambda record: record["bits_per_character"])
    result = {**best, "n_steps": run.trainer.n_steps, "seconds": time.perf_counter() - start}
    result |= {"n_parameters": n_parameters, "n_ranks": run.ranks.size, "settings": asdict(s)}
    if not run.ranks.is_first:
        return 0
    write_json(options.json, result)
    draw_curves(run, run.folder / CURVES, "A language model", ("bits_per_character", "bits per character, held out"))
    say(
        f"\n{result['bits_per_character']:.3f} bits per character of the held-out text after step {best['step']}, "
        f"{result['seconds'] / 60:.1f} minutes in this run"
        f'\nnow: {called("generate")} --model {run.folder} "A man is"'
    )
    return 0


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    add, setting = parser.add_argument, partial(add_setting, parser, LanguageSettings)
    add("--text", metavar="FILE", help="UTF-8 text, plain or .gz; needed unless --resume")
    add("--held-out", metavar="FILE", help="text to measure on (default: the last tenth of the text)")
    subwords = "V pieces of words as tokens, fewer if the text has fewer (default: characters)"
    add("--subwords", type=option("subwords", LARGEST_VOCABULARY), metavar="V", help=subwords)
    setting("steps", metavar="N", help="number of updates")
    setting("every", metavar="N", help="steps between validations")
    setting("batch_size", metavar="B", help="passages in a step")
    setting("length", metavar="T", help="tokens of a passage, the context")
    setting("lr", type=option("peak"), metavar="X", help="largest learning rate")
    setting("seed", type=natural, metavar="N", help="seed of parameters, passages and dropout")
    add_training(parser)
    model = parser.add_argument_group("model")
    for name, (default, meaning) in OF_MODEL.items():
        add_setting(model, LanguageModel, name, default, help=meaning)
    options = parser.parse_args(argv)
    if not options.resume and not options.text:
        parser.error("the following arguments are required: --text (or --resume)")
    return options
