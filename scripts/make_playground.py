"""Make the pages to play with, each one HTML file that needs nothing else: trained models, a lab,
and one that trains.

python scripts/make_playground.py --out play.html   # put docs/play/ together: a second
python scripts/make_playground.py --out train.html --page train.html  # the figure that trains
python scripts/make_playground.py --train reverse   # train again, into docs/play/: 10 seconds
python scripts/make_playground.py --train en-fr --data data/multi30k  # about 10 minutes

The parts of the pages are in docs/play/, where they also open without being put together. A model
is a file NAME.js there: its settings, its tokens and its parameters, which are rounded to float16.
"""

import base64
import json
import re
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from npformer.commands.shared import (  # needs pip install -e .
    OutputFile,
    Positive,
    Reading,
    UsageError,
    command_line,
)

from npformer import Adam, CopyTask, Trainer, Transformer, tree, warmup_cosine
from npformer.models import describe, from_description
from npformer.progress import say
from npformer.text import ParallelText
from npformer.text.copy_task import FIRST_SYMBOL, exact_match

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "play"
PAGES = ["index.html", "lab.html", "train.html"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PREFIX = "MODELS[{}] = "
STEPS = {"reverse": 2000, "en-fr": 1600}
OF_MODELS = ", ".join(f"{n} for {name}" for name, n in STEPS.items())
Steps = Annotated[Positive, Reading(help=f"training steps (default: {OF_MODELS})")]
EXAMPLES = [  # of the test text, which is not trained on
    "A dog runs outside with a yellow toy.",
    "A blond girl sleeps on a brown couch.",
    "A woman is holding a small white statue.",
    "Two dogs play by a tree.",
    "Three men are cooking in a kitchen.",
    "A little boy jumping off of a dock into a lake.",
    "A pretty woman plays a harpsichord.",
    "A yellow bulldozer working to move dirt.",
    "A crowd is present at a bar.",
]
RARE = 30  # a word in fewer sentences of the training is told


@command_line
def main(
    *,
    out: OutputFile | None = None,
    name: Annotated[Literal[*PAGES], Reading(flag="--page")] = PAGES[0],
    train: Literal[*STEPS] | None = None,
    steps: Steps | None = None,
    data: str | None = None,
):
    """Make a page, or train a model of it.

    Parameters
    ----------
    out
        write the page to FILE
    name
        which page
    train
        train one of the models again
    data : DIR
        folder of get_multi30k.py, to train en-fr
    """
    if not out and not train:
        raise UsageError("nothing to do: give --out for the page, or --train for a model")
    if train == "en-fr" and not data:
        raise UsageError("--train en-fr needs --data DIR, a folder of get_multi30k.py")
    if train:
        steps = steps or STEPS[train]
        write(train, train_reverse(steps) if train == "reverse" else train_en_fr(steps, data))
    if out:
        out.write_text(page(name), encoding="utf-8")
        print(f"{out}: {out.stat().st_size / 1e6:.2f} MB")


def page(name=PAGES[0], home=None):
    """Return a page of docs/play/ with its styles, its scripts and its models in it, and a link to
    the book at home.
    """

    def content(match):
        text = (FOLDER / match[2]).read_text(encoding="utf-8")
        return f"<script>\n{text}</script>" if match[1] == "script" else f"<style>\n{text}</style>"

    html = (FOLDER / name).read_text(encoding="utf-8")
    html = re.sub(
        r'<(script|link rel="stylesheet") (?:src|href)="([\w.-]+)">(?:</script>)?', content, html
    )
    return html.replace(
        "<!-- home -->", f'<a href="{home}">The book of npformer</a>' if home else ""
    )


def read(name):
    """Return (model, parameters as float64, everything else of its file) of a model of the page."""
    text = (FOLDER / f"{name}.js").read_text(encoding="utf-8")
    content = json.loads(text.removeprefix(PREFIX.format(json.dumps(name))).rstrip(";\n"))
    arrays = {path: decoded(x) for path, x in content.pop("params").items()}
    return from_description(content["model"]), tree.from_arrays(arrays, "params"), content


def lab():
    """{"STARTS", "QUESTIONS"}: where the lab can start, and what it asks, as its page reads it."""
    text = (FOLDER / "lab_questions.js").read_text(encoding="utf-8")
    constants = re.findall(r"^const (\w+) = (\{$.*?^\});", text, re.MULTILINE | re.DOTALL)
    return {name: json.loads(content) for name, content in constants}


def write(name, content):
    """Write the file of a model."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (FOLDER / f"{name}.js").write_text(
        f"{PREFIX.format(json.dumps(name))}{text};\n", encoding="utf-8"
    )
    print(f"{FOLDER / name}.js: {len(text) / 1e6:.2f} MB, {json.dumps(content['about'])}")


def encoded(x):
    return {"shape": x.shape, "float16": base64.b64encode(x.astype("<f2").tobytes()).decode()}


def decoded(x):
    return (
        np.frombuffer(base64.b64decode(x["float16"]), "<f2").reshape(x["shape"]).astype(np.float64)
    )


def rounded(params):
    """The parameters as they will be read."""
    return tree.map_leaves(lambda x: decoded(encoded(x)), params)


def content_of(model, params, tokens, about, **others):
    settings = describe(model) | {"dtype": "float64"}
    arrays = {path: encoded(x) for path, x in tree.to_arrays(params, "params").items()}
    return {"about": about, "model": settings, "tokens": tokens, **others, "params": arrays}


def train_reverse(steps):
    task = CopyTask(vocab=FIRST_SYMBOL + len(LETTERS), min_len=1, max_len=10, reverse=True)
    model = Transformer(
        task.vocab, task.vocab, d_model=32, n_heads=2, n_layers=2, d_ff=64, dropout=0.0, max_len=64
    )
    optimizer = Adam(warmup_cosine(5e-3, warmup=steps // 12, total=steps), betas=(0.9, 0.98))
    trainer = Trainer(model, optimizer, seed=task.seed, clip_norm=1.0)
    trainer.fit((task.batch(step, 64) for step in range(steps)), steps)
    params = rounded(trainer.params)
    share, _ = exact_match(model, params, *task.held_out(1000))
    longer, _ = exact_match(model, params, *task.longer(1000))
    about = {"steps": steps, "max_len": task.max_len, "n_parameters": tree.count(params)}
    about |= {"exact_match": share, "exact_match_longer": longer}
    return content_of(model, params, ["<pad>", "<begin>", "<end>", *LETTERS], about)


def train_en_fr(steps, data):
    from npformer.text import TranslationRun, TranslationSettings
    from npformer.text.scores import score

    sizes = {"d_model": 64, "n_heads": 4, "n_layers": 2, "d_ff": 256}
    recipe = {"vocab_size": 2000, "schedule": "cosine", "warmup": steps // 8, "dropout": 0.1}
    settings = TranslationSettings(
        data=data, model=sizes, steps=steps, validate_every=steps, **recipe
    )
    with tempfile.TemporaryDirectory() as folder:
        run = TranslationRun.start(folder, settings)
        say(f"{tree.count(run.trainer.params):,} parameters")
        run.train()
        params = rounded(run.trainer.params)
    translator = replace(run.translator, params=params)
    pairs = list(ParallelText.find(data, "test_2016_flickr", "en", "fr"))
    trained_on = [source for source, _ in ParallelText.find(data, "train", "en", "fr")]
    sources, references = zip(*pairs, strict=True)
    translations = translator.greedy(sources)
    about = {
        "steps": steps,
        "n_sentences": len(trained_on),
        "n_test": len(pairs),
        "n_exact": sum(map(str.__eq__, translations, references)),
        "bleu_lower": round(score(translations, references, "fr")["bleu_lower"], 1),
        "n_parameters": tree.count(params),
        "loss": round(run.loop.validations[-1]["val_loss"], 3),
    }
    coded = dict(zip(sources, translator.source.encode(sources), strict=True))
    told = examples(pairs, translations, trained_on)
    told = [example | {"ids": coded[example["text"]].tolist()} for example in told]
    pieces = translator.source.pieces(range(len(translator.source)))
    return content_of(translator.model, params, pieces, about, examples=told)


def examples(pairs, translations, trained_on):
    """What the page tells of EXAMPLES: how a person and the model translate them, and which words
    are rare.
    """
    from sacrebleu import BLEU

    bleu = BLEU(lowercase=True, effective_order=True)
    n_sentences = Counter(word for line in trained_on for word in words(line))
    pairs_of_lines = {
        source: (reference, line)
        for (source, reference), line in zip(pairs, translations, strict=True)
    }
    for text in EXAMPLES:
        reference, line = pairs_of_lines[text]
        rare = {word: n_sentences[word] for word in words(text) if n_sentences[word] < RARE}
        score = round(bleu.sentence_score(line, [reference]).score)
        yield {
            "text": text,
            "translation": line,
            "reference": reference,
            "bleu": score,
            "rare": rare,
        }


def words(line):
    return dict.fromkeys(re.findall(r"[a-z]+", line.lower()))


if __name__ == "__main__":
    sys.exit(main())
