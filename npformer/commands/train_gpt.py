"""Train a language model (a GPT) on a text: it learns to predict each character, or piece of a word, from those before.

npformer train-gpt --text train.en --out runs/gpt
npformer train-gpt --text train.en --out runs/gpt --subwords 2000 --n-kv-heads 2 --positions learned
npformer train-gpt --out runs/gpt --resume         # continue after an interruption
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
from dataclasses import asdict, fields

from npformer.commands import called
from npformer.commands.arguments import add_backend, natural, new_parser, option
from npformer.commands.command import command
from npformer.commands.output import add_json, output_folder, refuse_overwriting, write_json
from npformer.commands.training import draw_curves, guarded, train_until_stopped

from npformer import tree
from npformer.language import LanguageRun, LanguageSettings
from npformer.models import LanguageModel
from npformer.operations.options import choices_of
from npformer.runtime.ranks import world
from npformer.training.loop import BEST, LAST, LOG
from npformer.training.progress import say

CURVES = "curves.png"
OF_MODEL = {  # the fields of a model that have an option; the defaults of this command suit a small text
    "d_model": (128, "width D"),
    "n_heads": (4, "heads H"),
    "n_layers": (4, "layers N"),
    "d_ff": (512, "feed-forward width F"),
    "n_kv_heads": (None, "heads of keys and values, which the heads share"),
    "positions": (LanguageModel.positions, "what tells positions apart"),
    "window": (None, "each token attends to the last ones only"),
    "norm": (LanguageModel.norm, "normalisation before or after each sublayer"),
    "norm_type": (LanguageModel.norm_type, "its type"),
    "activation": (LanguageModel.activation, "of the hidden layers; with swiglu, F of 2/3 has as many parameters"),
    "dropout": (0.0, "rate of dropout; a text that is read many times needs some"),
}


@command
def main(argv=None):
    start = time.perf_counter()
    options = parse_arguments(argv)
    if options.json:
        names = LAST, BEST, LOG, CURVES
        texts = [path for path in (options.text, options.held_out) if path]
        refuse_overwriting({"--json": options.json}, [options.out, *(options.out / name for name in names), *texts])
    names = {field.name for field in fields(LanguageSettings)}
    given = {name: value for name, value in vars(options).items() if name in names and value is not None}
    return guarded(lambda: train(run_of(options, given), options, start))


def run_of(options, given):
    """The training, begun or resumed."""
    model = {name: value for name in OF_MODEL if (value := getattr(options, name)) is not None}
    if options.resume:
        return LanguageRun.resume(options.out, given | ({"model": model} if model else {}), options.backend, world())
    defaults = {name: default for name, (default, _) in OF_MODEL.items() if default is not None}
    settings = LanguageSettings(model=defaults | model, **given)
    return LanguageRun.start(options.out, settings, options.backend, world())


def train(run, options, start):
    s, text = run.settings, run.text
    kind, n_parameters = "pieces" if s.subwords else "characters", tree.count(run.trainer.params)
    say(
        f"{n_parameters:,} parameters, {len(text.tokens):,} {kind}, {len(text.ids):,} tokens of text, "
        f"backend {run.trainer.ops.name}; {run.trainer.n_steps} of {s.steps} steps done"
    )
    if code := train_until_stopped(run, options, lambda stop: run.train([stop], progress=not options.quiet)):
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
    add = parser.add_argument
    add("--text", metavar="FILE", help="UTF-8 text, plain or .gz; needed unless --resume")
    add("--held-out", metavar="FILE", help="text to measure on (default: the last tenth of the text)")
    add("--out", type=output_folder, required=True, metavar="DIR", help="folder for the results")
    add("--resume", action="store_true", help="continue the training in OUT, with its settings")
    add("--subwords", type=option("vocab_size"), metavar="V", help="V pieces of words as tokens (default: characters)")
    for name, meaning in (("steps", "number of updates"), ("every", "steps between validations")):
        add(f"--{name}", type=option(name), help=f"{meaning} (default: {getattr(LanguageSettings, name)})")
    add("--batch-size", type=option("beam_size"), metavar="B", help="passages in a step (default: 32)")
    add("--length", type=option("max_len"), metavar="T", help="tokens of a passage, the context (default: 128)")
    add("--lr", type=option("peak"), help=f"largest learning rate (default: {LanguageSettings.lr})")
    add("--seed", type=natural, help="seed of parameters, passages and dropout (default: 0)")
    shards = "parts of a batch; the same N on any number of ranks computes the same; if none, about one per thread"
    add("--n-shards", type=option("n_shards"), metavar="N", help=shards)
    add_backend(parser)
    add_json(parser)
    add("--quiet", action="store_true", help="no progress bar")
    add("--explain", action="store_true", help="first list the operations of one step and their times")
    model, choices = parser.add_argument_group("model"), choices_of(LanguageModel)
    for name, (default, meaning) in OF_MODEL.items():
        details = {"choices": choices[name]} if name in choices else {"type": option(name)}
        help_text = meaning if default is None else f"{meaning} (default: {default})"
        model.add_argument("--" + name.replace("_", "-"), help=help_text, **details)
    options = parser.parse_args(argv)
    if not options.resume and not options.text:
        parser.error("the following arguments are required: --text (or --resume)")
    return options
