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

import shlex
from typing import Annotated

from npformer.commands import called
from npformer.commands.shared import Fields, command_line
from npformer.commands.shared.training import TextTraining, saying_what_is_left

from npformer import tree
from npformer.files.checkpoint import BEST
from npformer.models import LanguageModel
from npformer.progress import say
from npformer.text.language_run import LanguageRun
from npformer.text.settings import LanguageSettings

OF_TRAINING = "text held_out subwords steps every batch_size length lr seed n_shards"
OF_MODEL = (
    "d_model n_heads n_layers d_ff n_kv_heads positions window norm norm_type activation dropout"
)
# What suits a small text; the other defaults are the model's own.
SMALL = {"d_model": 128, "n_heads": 4, "n_layers": 4, "d_ff": 512, "dropout": 0.0}


@command_line
def main(
    *,
    settings: Annotated[dict, Fields(LanguageSettings, OF_TRAINING)],
    training: TextTraining,
    model: Annotated[dict, Fields(LanguageModel, OF_MODEL, defaults=SMALL, title="model")],
):
    """Train a language model.

    Parameters
    ----------
    text : FILE
        UTF-8 text, plain or .gz; needed unless --resume
    held_out : FILE
        text to measure on (default: the last tenth of the text)
    n_kv_heads
        heads of keys and values, which the heads share; if none, H
    positions
        what tells positions apart
    window
        each token attends to the last ones only
    norm
        normalisation before or after each sublayer
    norm_type
        its type
    activation
        of the hidden layers; swiglu has as many parameters as the others with 2/3 of their F
    dropout
        rate of dropout; a text that is read many times needs some
    """
    texts = [settings.get("text"), settings.get("held_out")]
    training.check(settings, "text", [BEST], texts)
    new = None
    if not training.resume:
        new = LanguageSettings(**settings, model=SMALL | model)
    with saying_what_is_left():
        run = training.run_of(LanguageRun, new, settings | {"model": model})
        return train(run, training)


def train(run, training):
    kind = "pieces" if run.settings.subwords else "characters"
    n_parameters = tree.count(run.trainer.params)
    tokens = f"{len(run.text.tokens):,} {kind}, {len(run.text.ids):,} tokens of text"
    code = training.train(run, f"{n_parameters:,} parameters, {tokens}")
    if code or not run.ranks.is_first:
        return code
    best = min(run.loop.validations, key=lambda record: record["bits_per_character"])
    seconds = training.seconds()
    figures = {"n_steps": run.trainer.n_steps, "seconds": seconds, "n_parameters": n_parameters}
    score = "bits_per_character", "bits per character, held out"
    training.write_results(run, best | figures, "A language model", score)
    say(
        f"\n{best['bits_per_character']:.3f} bits per character of the held-out text after step "
        f"{best['step']}, {seconds / 60:.1f} minutes in this run"
        f"\nnow: {called('generate')} --model {run.folder} {shlex.quote(run.prompt)}"
    )
    return 0
