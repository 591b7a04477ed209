"""Healthy trainings and new models, in which every finding is a false alarm."""

import itertools
import json
from functools import partial
from pathlib import Path

import numpy as np

from scripts.measure.diagnosed.cases import (  # needs pip install -e .
    adapted,
    after,
    autoencoder,
    classes,
    loaded,
    new_rng,
    numbers,
    of_classes,
    of_numbers,
    of_task,
    of_text,
    pairs,
    rules_of_text,
    text,
    validated,
    words,
)

import npformer as nf

with Path(__file__).with_suffix(".json").open(encoding="utf-8") as file:
    SETTINGS = json.load(file)
GPT2, LLAMA, BERT = SETTINGS["published"].values()


def without_padding(**settings):
    ids = new_rng().integers(0, 13, (16, 14))
    return text(pad_id=None, batch=(ids,), **settings)


def masked(**settings):
    rng = new_rng()
    ids = words(rng)
    hidden = (rng.random(ids.shape) < 0.2) & (ids != 0)
    batch = np.where(hidden, 12, ids), np.where(hidden, ids, -1)
    return classes(task="words", n_outputs=None, batch=batch, **settings)


FAMILIES = {
    "Transformer": pairs,
    "LanguageModel": text,
    "LanguageModel without padding": without_padding,
    "SequenceAutoencoder": autoencoder,
    "Encoder": classes,
    "Encoder of numbers": numbers,
    "Encoder of words": masked,
    "Recurrent": partial(pairs, nf.Recurrent),
    "ByteNet": partial(pairs, nf.ByteNet),
}
TRAININGS = [  # optimizer, steps, settings of the trainer
    (nf.Adam(1e-3), 0, {}),
    (nf.Adam(nf.warmup_cosine(5e-3, 10, 200)), 5, {"clip_norm": 1.0}),
    (nf.AdamW(2e-3), 30, {"n_shards": 2}),
    (nf.SGD(0.1, momentum=0.9), 0, {}),
    (nf.Adam(nf.noam(32, 400), betas=(0.9, 0.98), eps=1e-9), 60, {"clip_norm": 1.0}),
    (nf.Adam(3e-4), 15, {"n_shards": 2}),
]
SHAPES = [{}, {"d_model": 16, "d_ff": 32}, {"d_model": 64, "d_ff": 256}, {"tie_embeddings": True}]
OF_DEPTHS = ["Transformer", "LanguageModel", "Encoder", "Encoder of words"]
MODELS = {
    "Transformer": pairs,
    "Transformer of the paper": partial(pairs, norm="post"),
    "Recurrent": partial(pairs, nf.Recurrent),
    "GPT-2": partial(text, **GPT2),
    "Llama": partial(text, **LLAMA),
    "Encoder": classes,
    "BERT": partial(classes, **BERT),
    "BERT of words": partial(masked, norm="post"),
    "Encoder of numbers": numbers,
    "rules": rules_of_text,
}
ADAPTED = {  # the options of adapters
    "Transformer": {},
    "Transformer of the paper": {},
    "GPT-2": {"targets": ("qkv",)},
    "Llama": {"rank": 4, "alpha": 8.0},
    "BERT": {"whole": ("output",)},
    "Encoder of numbers": {"targets": ("feed_forward",)},
}
LEARNED = [name for name in MODELS if name not in ("Recurrent", "Encoder")]
WATCHED = {  # batches without end
    "Transformer": of_task,
    "Transformer of the paper": of_task,
    "Recurrent": of_task,
    "GPT-2": of_text,
    "Llama": of_text,
    "Encoder": of_classes,
    "BERT": of_classes,
    "Encoder of numbers": of_numbers,
}


def healthy():
    """(title, function that returns arguments of ``diagnose``) of trainings without a mistake, and
    of new models.
    """
    yield from trainings()
    yield from new_models()
    for name, n_before, n_steps in itertools.product(ADAPTED, (0, 100), (0, 30)):
        title = f"LowRank of {name} after {n_before} steps, {n_steps} steps"
        yield title, partial(trained_adapters, name, n_before, n_steps)
    for name in LEARNED:
        yield f"{name}, learned", partial(learned, name)
    for name, rate in itertools.product(WATCHED, (5e-3, 1e-3)):
        yield f"{name}, watched at {rate}", partial(watched_training, name, rate)


def trainings():
    """Trainings of different lengths."""
    turns = itertools.cycle(TRAININGS)
    for family, make in FAMILIES.items():
        for settings in SETTINGS["families"][family]:
            optimizer, n_steps, options = next(turns)
            title = f"{family} {settings}, {n_steps} steps of {optimizer}"
            yield title, partial(training, make, settings, n_steps, optimizer, options)


def training(make, settings, n_steps, optimizer, options):
    return after(make(**settings), n_steps, optimizer, **options)


def new_models():
    """Models of 1 to 12 layers before their training, each with another seed."""
    kinds = itertools.product((1, 2, 3, 4, 6, 8, 10, 12), ("pre", "post"), OF_DEPTHS)
    for seed, (n_layers, norm, family) in enumerate(kinds):
        shape = SHAPES[(seed + n_layers) % len(SHAPES)]
        settings = {"n_layers": n_layers, "norm": norm} | shape
        if family == "Encoder":
            settings.pop("tie_embeddings", None)
        yield f"new {family} {settings}", partial(with_seed, FAMILIES[family], settings, seed)


def with_seed(make, settings, seed):
    case = make(**settings)
    return case | {"params": case["model"].init(seed)}


def trained_adapters(name, n_before, n_steps):
    case = after(MODELS[name](), n_before)
    return after(adapted(case, **ADAPTED[name]), n_steps)


def learned(name):
    return loaded(MODELS[name](), 300)


def watched_training(name, rate):
    return validated(MODELS[name](), WATCHED[name](), optimizer=nf.Adam(rate))
