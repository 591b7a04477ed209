"""Healthy models and trainings of the copy task and of others, as arguments of ``diagnose``."""

import itertools

import numpy as np

import npformer as nf
from npformer.models.encoder_decoder import EncoderDecoder
from npformer.models.low_rank import LowRank

TASK = nf.CopyTask(vocab=13, min_len=3, max_len=9)
SMALL = {"d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 64, "dropout": 0.0}


def new_rng():
    """The random numbers of one case: they do not depend on the cases that were made before."""
    return np.random.default_rng(5)


def new(model, batch):
    return {"model": model, "params": model.init(0), "batch": batch}


def pairs(kind=nf.Transformer, batch=None, **settings):
    """A translation model, with a batch of the copy task."""
    shape = SMALL if issubclass(kind, nf.Transformer) else {"d_model": 32, "dropout": 0.0}
    if issubclass(kind, nf.ByteNet):
        shape = shape | {"n_sets": 1, "dilations": (1, 2)}
    model = kind(13, 13, **shape | settings)
    return new(model, batch or TASK.batch(0, 32))


def text(kind=nf.LanguageModel, batch=None, **settings):
    """A language model, with the targets of the copy task."""
    model = kind(13, **SMALL | {"pad_id": 0} | settings)
    return new(model, batch or TASK.batch(0, 32)[1:])


def text_of_words():
    return text(batch=(words(new_rng()),))


def autoencoder(**settings):
    settings = {"d_model": 32} | settings
    return new(nf.SequenceAutoencoder(13, **settings), TASK.batch(0, 32))


def words(rng, n=16, T=10):
    """Random ids, half of which are padded at the end."""
    ids = rng.integers(1, 13, (n, T))
    ids[::2, 7:] = 0
    return ids


def classes(kind=nf.Encoder, batch=None, **settings):
    """An encoder, with a class of each row."""
    model = kind(13, **SMALL | {"task": "classes", "n_outputs": 3} | settings)
    if batch is None:
        rng = new_rng()
        batch = words(rng), rng.integers(0, 3, 16)
    return new(model, batch)


def numbers(**settings):
    """An encoder of measurements, with a number to predict for each row."""
    shape = SMALL | {"n_inputs": 5, "task": "numbers", "n_outputs": 1}
    rng = new_rng()
    x = rng.standard_normal((16, 8, 5), np.float32)
    y = rng.standard_normal((16, 1), np.float32)
    return new(nf.Encoder(None, **shape | settings), (x, y))


def adapted(case, kind=LowRank, **options):
    """New adapters of a model."""
    options = {"rank": 2} | options
    model = kind(case["model"], case["params"], **options)
    return new(model, case["batch"])


def trained(case, optimizer=None, **settings):
    """The same with a trainer."""
    trainer = nf.Trainer(case["model"], optimizer or nf.Adam(1e-3), **settings)
    return case | {"trainer": trainer, "params": trainer.params}


def after(case, n_steps=150, optimizer=None, **settings):
    """The same with a trainer, which has made steps with new rows of the task, or with the same
    batch.
    """
    case = trained(case, optimizer or nf.Adam(5e-3), **settings)
    has_task = isinstance(case["model"], EncoderDecoder)
    for i in range(n_steps):
        batch = TASK.batch(i, 32) if has_task else case["batch"]
        case["trainer"].step(*batch)
    return case


def loaded(case, n_steps=150):
    """The same after a training, without its trainer."""
    case = after(case, n_steps)
    del case["trainer"]
    return case


def watched(case, batches, *args, **options):
    """The arguments of ``fit`` with ``watch``, instead of those of ``diagnose``."""
    options |= {"watch": True, "progress": False}
    return {"trainer": case["trainer"], "fit": (batches, *args), "options": options}


def validated(case, batches, change=None, n_steps=200, optimizer=None):
    """A watched training whose validation may be prepared in another way."""
    held_out = list(itertools.islice(batches, 8))
    if change:
        held_out = [tuple(map(np.ascontiguousarray, change(*batch))) for batch in held_out]
    trainer = trained(case, optimizer or nf.Adam(5e-3))
    return watched(trainer, itertools.islice(batches, n_steps), validate=held_out, every=20)


# -- batches without end


def of_task(size=32):
    return (TASK.batch(i, size) for i in itertools.count())


def rules(rng, n=32):
    """Rows (n, 10) in which each word is at most three after that before it, and a class for each
    row.
    """
    first = rng.choice(10, (n, 1), p=np.arange(10, 0, -1) / 55)
    steps = rng.integers(0, 4, (n, 10))
    ids = 3 + (first + np.cumsum(steps, axis=1)) % 10
    labels = first[:, 0] % 3
    return ids, labels


def rules_of_text():
    return text(batch=rules(new_rng())[:1])


def of_text(size=32):
    rng = new_rng()
    return (rules(rng, size)[:1] for _ in itertools.count())


def of_classes(size=32):
    rng = new_rng()
    return (rules(rng, size) for _ in itertools.count())


def of_numbers(size=32):
    rng = new_rng()
    while True:
        x = rng.standard_normal((size, 8, 5)).astype(np.float32)
        yield x, 3 * x[:, :, :1].mean(axis=1)
