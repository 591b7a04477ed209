"""Train a Transformer to translate, from two files whose lines are each other's translations.

python scripts/get_multi30k.py
python scripts/train_translation.py --data data/multi30k --src en --tgt fr --out runs/en-fr
python scripts/train_translation.py --out runs/en-fr --resume          # go on after an interruption
python scripts/translate.py --model runs/en-fr "A man is riding a bicycle."

DATA holds train.en, train.fr, val.en and val.fr, plain or .gz. OUT gets
  last.safetensors    what --resume goes on from; it repeats what an undisturbed training would have done, bit for bit
  snapshots/          the parameters at the validations that will be averaged: keep them with it
  model.safetensors   their mean, the result
  log.jsonl           what happened in each step and validation, a line each
  curves.png          the same as a picture

Ctrl-C and SIGTERM let the step or validation end, save, and exit with 130 and 143; a second one stops at once. Other
exit codes: 0 when it is done or --minutes are over, 1 after an error, 2 for wrong arguments.
"""

import argparse
import importlib.util
import sys
import time
from pathlib import Path

from arguments import above_zero, backend, natural, not_negative, positive, probability, write_json

from npformer import NonFiniteError, tree
from npformer.training import JsonLog, StopSignals
from npformer.training.precision import NAMES as PRECISIONS
from npformer.translation import TranslationRun

# tiny is the model of Wu et al. 2021 for the 29,000 sentences of Multi30k, base that of the paper with its recipe.
PRESETS = {
    "tiny": {
        "model": {"d_model": 128, "n_heads": 4, "n_layers": 4, "d_ff": 256},
        "dropout": 0.3,
        "inner_dropout": 0.0,
        "norm": "pre",
        "vocab_size": 8000,
        "max_tokens": 4096,
        "schedule": "inverse_sqrt",
        "lr": 0.005,
        "warmup": 1000,
        "steps": 16_000,
        "validate_every": 200,
    },
    "small": {
        "model": {"d_model": 256, "n_heads": 4, "n_layers": 4, "d_ff": 1024},
        "dropout": 0.3,
        "inner_dropout": 0.0,
        "norm": "pre",
        "vocab_size": 8000,
        "max_tokens": 4096,
        "schedule": "inverse_sqrt",
        "lr": 0.002,
        "warmup": 2000,
        "steps": 20_000,
        "validate_every": 500,
    },
    "base": {
        "model": {"d_model": 512, "n_heads": 8, "n_layers": 6, "d_ff": 2048},
        "dropout": 0.1,
        "inner_dropout": 0.0,
        "norm": "post",
        "vocab_size": 32_000,
        "max_tokens": 25_000,
        "schedule": "noam",
        "lr": 1.0,
        "warmup": 4000,
        "steps": 100_000,
        "validate_every": 1000,
    },
}
DEFAULTS = {
    "src": "en",
    "tgt": "fr",
    "seed": 1,
    "vocab": "joint",
    "max_len": 256,
    "label_smoothing": 0.1,
    "consistency": 0.0,
    "clip_norm": None,
    "average": "last",
    "n_average": 10,
    "patience": 20,
    "save_every": 100,
    "skip_empty": False,
    "precision": "float32",
}


def main(argv=None):
    start = time.perf_counter()
    options = parse_arguments(argv)
    given = {name: value for name, value in vars(options).items() if name in SETTINGS and value is not None}
    try:
        if options.resume:
            run = TranslationRun.resume(options.out, given, options.backend)
        else:
            settings = PRESETS[options.preset or "tiny"] | DEFAULTS | {"preset": options.preset or "tiny"} | given
            run = TranslationRun.start(options.out, settings, options.backend)
        return train(run, options, start)
    except KeyboardInterrupt:
        print("stopped at once; if there is a last.safetensors, --resume goes on from there", file=sys.stderr)
        return 130
    except (OSError, ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except NonFiniteError as error:
        print(f"error: {error} --resume would come here again: begin anew, with another --out", file=sys.stderr)
        return 1


def train(run, options, start):
    s = run.settings
    print(
        f"{title(s)}: {tree.count(run.trainer.params):,} parameters, "
        f"{len(run.source):,} pieces, backend {run.trainer.ops.__name__}; "
        f"{run.trainer.n_steps} of {s['steps']} steps done",
        flush=True,
    )

    if options.explain:
        print(f"\nthe operations of one step:\n{run.explain()}\n", flush=True)

    def is_late(trainer, info):
        return options.minutes is not None and time.perf_counter() - start > 60 * options.minutes

    with StopSignals("stopping and saving after this step or validation; once more stops at once") as stop:
        run.train([is_late, stop], progress=not options.quiet)
    if stop.received:
        print(f"{stop.received.name}: saved after step {run.trainer.n_steps}; --resume goes on from there")
        return stop.exit_code
    result = run.finish()
    result["seconds"] = time.perf_counter() - start
    report(run, result)
    if options.json:
        write_json(options.json, result | {"settings": s})
    return 0


def report(run, result):
    s = run.settings
    averaged = ", ".join(map(str, result["averaged"])) or result["step"]
    print(
        f"\n{result['step']} steps ({result['seconds'] / 60:.1f} minutes in this run). "
        f"The mean of the parameters after steps {averaged}:\n"
        f"validation loss {result['val_loss']:.3f} per token, greedy BLEU "
        f"{result['val_bleu']:.1f} cased and detokenised, {result['val_bleu_lower']:.1f} lower-cased and tokenised"
    )
    if importlib.util.find_spec("matplotlib"):
        from npformer.plots import plot_training

        plot_training(JsonLog.read(run.out / "log.jsonl"), run.out / "curves.png", title(s))
    print(f'\nnow: python scripts/translate.py --model {run.out} "A man is riding a bicycle."')


def title(s):
    return f"{s['src']} to {s['tgt']}, preset {s['preset']}, seed {s['seed']}"


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--data", type=folder, metavar="DIR", help="folder with the aligned files; needed unless --resume")
    add("--src", help="language of the source, the ending of its files (default: en)")
    add("--tgt", help="language of the target (default: fr)")
    add("--out", type=Path, required=True, metavar="DIR", help="folder for what comes out")
    add(
        "--preset",
        choices=PRESETS,
        help="tiny (D 128, for tens of thousands of pairs), small (D 256) or base (D 512, the "
        "paper's, for millions): sizes and recipe (default: tiny)",
    )
    add("--seed", type=natural, help="of parameters, dropout and the order of the data (default: 1)")
    add("--steps", type=positive, help="updates in all (default: the preset's)")
    add(
        "--minutes",
        type=above_zero,
        metavar="M",
        help="stop after the step in which these have passed, and make the result of what there is",
    )
    add("--resume", action="store_true", help="go on with the training in OUT, with its settings")
    add("--backend", type=backend, default="auto", help="auto, cpu, gpu or reference (default: auto)")
    add("--precision", choices=PRECISIONS, help="what steps are computed in, on a GPU (default: float32)")
    add("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    add("--quiet", action="store_true", help="no progress bar")
    add("--explain", action="store_true", help="first list the operations of one step and their times")

    recipe = parser.add_argument_group("recipe (defaults: the preset's, where none is said)")
    add = recipe.add_argument
    add(
        "--vocab",
        choices=["joint", "separate"],
        help="one vocabulary and embedding for both languages, or two (default: joint)",
    )
    add("--vocab-size", type=positive, metavar="V", help="subword pieces; a small text has not enough for 8,000")
    add("--max-tokens", type=positive, metavar="N", help="of a batch on either side, padding included")
    add("--max-len", type=positive, metavar="N", help="leave out longer pairs, in pieces (default: 256)")
    add("--skip-empty", action="store_true", default=None, help="leave out pairs with an empty line")
    add("--schedule", choices=["cosine", "inverse_sqrt", "noam"], help="of the learning rate")
    add("--lr", type=above_zero, help="its peak; for noam a factor")
    add("--warmup", type=positive, metavar="STEPS", help="until the peak")
    add("--dropout", type=probability, metavar="P", help="on embeddings and the output of each sublayer")
    add("--inner-dropout", type=probability, metavar="P", help="on attention weights and hidden layers")
    add("--label-smoothing", type=probability, metavar="P", help="(default: 0.1)")
    add(
        "--consistency",
        type=not_negative,
        metavar="A",
        help="weight of R-Drop: what the model says under two draws of dropout shall agree, "
        "which takes twice as long; 1 is usual (default: 0)",
    )
    add("--clip-norm", type=above_zero, metavar="X", help="largest norm of a gradient (default: none)")
    add("--norm", choices=["pre", "post"], help="layer normalisation before or after each sublayer")
    add("--validate-every", type=positive, metavar="STEPS", help="loss and BLEU on the validation text")
    add("--save-every", type=positive, metavar="STEPS", help="what --resume needs (default: 100)")
    add("--patience", type=positive, metavar="N", help="stop after N validations without a better BLEU (default: 20)")
    add("--n-average", type=positive, metavar="N", help="parameters of N validations make the result (default: 10)")
    add("--average", choices=["last", "best"], help="which; last: of the last third of the steps (default: last)")
    options = parser.parse_args(argv)
    if options.resume and options.preset:
        parser.error("argument --preset: a resumed training has the one it was begun with")
    if not options.resume and not options.data:
        parser.error("the following arguments are required: --data (or --resume)")
    return options


SETTINGS = {"data"} | DEFAULTS.keys() | PRESETS["tiny"].keys() - {"model"}


def folder(text):
    return str(Path(text))


if __name__ == "__main__":
    sys.exit(main())
