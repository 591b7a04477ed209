"""Run by mpiexec on several ranks: train, and compare with one process with as many shards.

Rank 0 prints what it found, as JSON.
"""

import contextlib
import io
import json
import sys
import threading
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from on_gpu import MISSING, cupy_installed, gpu, small_blocks

from npformer.commands import info
from scripts.bench import bench_ranks

from npformer import SGD, Adam, AdamW, CopyTask, NonFiniteError, Trainer, Transformer
from npformer.arrays import digest, on_host
from npformer.diagnosis import watch
from npformer.models import LowRank
from npformer.runtime.ranks import RankError, world
from npformer.text import TokenBatches
from npformer.tokens import Subwords
from npformer.training import load_checkpoint

RANKS = world()
TASK = CopyTask(vocab=50, max_len=9)
SIZES = {"d_model": 64, "n_heads": 2, "n_layers": 1, "d_ff": 128, "dropout": 0.1}  # two chunks
MODEL = Transformer(50, 50, **SIZES)
ADAM = Adam(0.01)
STEPS = 2
# Three ranks do without kernels, which take long to load.
new_trainer = partial(Trainer, backend="auto" if RANKS.size == 2 else "reference", ranks=RANKS)


@dataclass(frozen=True)
class Silent:
    """A model that does not say when its gradients are complete."""

    model: Transformer = MODEL

    def init(self, seed):
        return self.model.init(seed)

    def count(self, src, tgt):
        return self.model.count(src, tgt)

    def loss_and_grad(self, params, src, tgt, *, dropout_key, n_tokens, backend):
        options = {"dropout_key": dropout_key, "n_tokens": n_tokens, "backend": backend}
        return self.model.loss_and_grad(params, src, tgt, **options)


class Case(NamedTuple):
    model: Any
    optimizer: Any
    settings: dict
    rows: int  # of a batch


def case(model=MODEL, optimizer=ADAM, rows=8, **settings):
    """A training, with these settings of its trainer."""
    return Case(model, optimizer, settings, rows)


def other(**settings):
    return Transformer(50, 50, **SIZES, **settings)


TRAININGS = {
    "adam": case(),
    "clipped": case(clip_norm=0.1, label_smoothing=0.1),
    "float64": case(other(dtype="float64"), clip_norm=0.1),
    "frozen, decay": case(optimizer=AdamW(0.01, weight_decay=0.1), frozen=["encoder.0", "output"]),
    "momentum": case(optimizer=SGD(0.1, momentum=0.9)),
    "no state": case(optimizer=SGD(0.1)),
    "fewer rows than ranks": case(rows=1),
    "rows that do not divide": case(rows=5),
    "silent": case(Silent()),
    "low rank": case(LowRank(MODEL, MODEL.init(0), rank=64), clip_norm=0.1),
    "learned positions": case(other(positions="learned", max_len=11)),
    "untied": case(other(tie_embeddings=False)),
    "two shards each": case(n_shards=2 * RANKS.size),
    "seven shards": case(n_shards=7),  # which no number of ranks divides
}


def trainer_of(name, ranks=None):
    of = TRAININGS[name]
    settings = {"n_shards": RANKS.size, "backend": "reference"} | of.settings
    return Trainer(of.model, of.optimizer, ranks=ranks, **settings)


def train(trainer, rows, first=0, steps=STEPS):
    """The loss and the norm of the gradient of each step."""
    batches = [TASK.batch(step, rows) for step in range(first, first + steps)]
    history = trainer.fit(batches, progress=False)
    return [(info.loss, info.grad_norm) for info in history]


def compare_trainings():
    """For each training: whether losses, norms, parameters and moments are the same bits."""
    found = {}
    for name, of in TRAININGS.items():
        together = trainer_of(name, RANKS)
        early = sent_early(together.loss_and_grad)
        numbers = train(together, of.rows)
        state = {key: together.flat_optimizer.whole(x) for key, x in together.state.moments.items()}
        compared = RANKS.first(partial(compare_alone, name, together, numbers, state))
        found[name] = compared | {"sent early": early}
    return found


def same(x, y):
    return bool(np.array_equal(x, y))


def size_of_state(trainer):
    return sum(x.size for x in trainer.state.moments.values())


def compare_alone(name, together, numbers, state):
    alone = trainer_of(name)
    is_same = [numbers == train(alone, TRAININGS[name].rows)]
    is_same.append(same(together.flat_params, alone.flat_params))
    is_same += [same(state[key], x) for key, x in alone.state.moments.items()]
    share = size_of_state(together) / max(1, size_of_state(alone))
    return {"same bits": all(is_same), "state": share}


def sent_early(over_ranks):
    """A list that gets, at each step, how many chunks were under way when backward ended."""
    counts = []
    exchange = None
    new_tree = over_ranks.sums_of_subtrees
    of_shards = over_ranks.on_this_rank
    loss_and_grad = of_shards.loss_and_grad

    def noting_tree(n_shards):
        nonlocal exchange
        gradients = new_tree(n_shards)
        exchange = gradients.exchange
        counts.append(0)
        return gradients

    def counting(*args, **options):
        results = loss_and_grad(*args, **options)
        counts[-1] = len(exchange.under_way)
        return results

    over_ranks.sums_of_subtrees = noting_tree
    of_shards.loss_and_grad = counting
    return counts


def compare_accumulated():
    """The largest difference of parameters after steps of several batches, the first of one row."""
    batches = [TASK.batch(0, 1), TASK.batch(1, 8), TASK.batch(2, 6)]

    def after(n_steps, ranks):
        trainer = new_trainer(MODEL, SGD(0.1), n_shards=RANKS.size, ranks=ranks)
        for _ in range(n_steps):
            trainer.step(batches=batches)
        return trainer.flat_params

    alone = after(2, None)
    difference = abs(after(2, RANKS) - alone).max()
    change = abs(alone - after(0, None)).max()
    return float(difference / change)


def resume(folder):
    """A checkpoint of all ranks is that of one process; each can go on from the other's."""
    ours = folder / "ranks.safetensors"
    theirs = folder / "alone.safetensors"
    together, new = (trainer_of("adam", RANKS) for _ in range(2))
    alone, one = (trainer_of("adam") for _ in range(2))
    train(together, 8)
    train(alone, 8)
    together.save(ours)
    RANKS.first(lambda: alone.save(theirs))
    arrays, _ = load_checkpoint(ours)
    expected, _ = load_checkpoint(theirs)
    new.load(theirs)
    one.load(ours)
    for trainer in (together, new, one):
        train(trainer, 8, first=STEPS)
    return {
        "same file": all(same(arrays[name], expected[name]) for name in expected),
        "same after it": same(new.flat_params, together.flat_params),
        "same alone": same(one.flat_params, together.flat_params),
    }


def on_the_gpu():
    """Two steps with arrays of the GPU, which are sent through host memory."""
    if MISSING:
        return None
    model = Transformer(50, 50, **SIZES | {"dropout": 0.0})
    with cupy_installed(), small_blocks():
        new = partial(Trainer, model, SGD(0.1))
        RANKS.first(lambda: train(new(backend=gpu), 4, steps=1))  # compiles the kernels
        trainers = [new(backend=backend, ranks=RANKS) for backend in (gpu, "reference")]
        for trainer in trainers:
            train(trainer, 4, steps=2)
    theirs, ours = (on_host(trainer.flat_params) for trainer in trainers)
    return float(abs(theirs - ours).max() / abs(ours).max())


def message_of(kind, work):
    """The error of this kind that ``work`` raises, on each rank."""
    try:
        work()
    except kind as error:
        return RANKS.gather(str(error))
    return RANKS.gather(None)


def diagnoses():
    trainer = trainer_of("adam", RANKS)
    if RANKS.rank == 1:
        trainer.params["decoder"]["0"]["feed_forward"]["out"]["bias"][0] = np.nan
    return message_of(NonFiniteError, lambda: train(trainer, 8))


def watched():
    """Whether a diagnosis and watching leave the bits of a training, and what each rank finds."""
    watch.MATCHED = 4
    plain, seen = (trainer_of("adam", RANKS) for _ in range(2))
    batches = [TASK.batch(0, 8)] * watch.SAME
    before = seen.diagnose(*batches[0]).names
    seen.fit(batches, watch=True, progress=False)
    plain.fit(batches, progress=False)
    findings = RANKS.gather_lists([before + seen.watched.findings.names])
    return {"same bits": same(plain.flat_params, seen.flat_params), "findings": findings}


def stopped():
    """All ranks stop when one of them wants to."""
    trainer = trainer_of("adam", RANKS)
    stop = lambda _, info: info.step == 3 and RANKS.rank == 1
    trainer.fit((TASK.batch(i, 8) for i in range(9)), callbacks=[stop])
    return RANKS.gather(trainer.n_steps)


def goes_on(folder):
    """All ranks count the validations of the checkpoint that goes on: one better, two worse."""
    scores = iter([1.0, 2.0, 3.0, 4.0])
    options = {"validate": lambda trainer: next(scores), "every": 1}
    options |= {"save": folder / "fit", "progress": False}
    first, again = (trainer_of("adam", RANKS) for _ in range(2))
    first.fit([TASK.batch(i, 8) for i in range(2)], **options)
    again.load(folder / "fit" / "last.safetensors")
    again.fit([TASK.batch(i, 8) for i in range(2, 9)], patience=2, **options)
    return RANKS.gather(again.n_steps)


class Forgetful(Silent):
    """A model that forgets a gradient."""

    def loss_and_grad(self, *args, **options):
        loss, grads, n = super().loss_and_grad(*args, **options)
        del grads["output"]
        return loss, grads, n


class Picky(Transformer):
    """A model that refuses two tokens.

    It refuses 49 when it has given all gradients, the last one twice, and 48 without any.
    """

    @wraps(Transformer.loss_and_grad)
    def loss_and_grad(self, params, src, tgt, **options):
        if (src == 48).any():
            raise ValueError("token 48")
        loss, grads, n = super().loss_and_grad(params, src, tgt, **options)
        if (src == 49).any():
            options["ready"]("output.weight", params["output"]["weight"])
        return loss, grads, n


def fails_in_a_step():
    """All ranks raise what the rank of one row finds wrong, and go on as one process does."""
    together, alone = trainer_of("adam", RANKS), trainer_of("adam")
    for of_shards in (together.loss_and_grad.on_this_rank, alone.loss_and_grad):
        of_shards.loss_and_grad = Picky(50, 50, **SIZES).loss_and_grad
    batches = [TASK.batch(i, 8) for i in range(2)]
    for src, _ in batches:
        src[src >= 48] = 47

    def with_token(token):
        wrong = tuple(x.copy() for x in batches[0])
        wrong[0][-1, 0] = token  # in a row of the last rank
        return wrong

    wrong = with_token(49)
    two_wrong = [wrong, with_token(48)]

    def steps_of(trainer):
        messages = []
        for several in ([wrong], batches[:1], [wrong, batches[1]], two_wrong, batches[1:2]):
            try:
                trainer.step(batches=several)
            except ValueError as error:
                messages.append(f"{type(error).__name__}: {error}")
        return messages

    messages = RANKS.gather(steps_of(together))
    threads = [thread for thread in threading.enumerate() if "messenger" in thread.name]
    return {
        "messages": messages,
        "alone": steps_of(alone),
        "same bits": same(together.flat_params, alone.flat_params),
        "threads": len(threads),
    }


LAST = RANKS.size - 1


def fails_before_a_step():
    """One rank has a wrong batch, and an error of its iterator; all catch it, and go on."""
    trainer = trainer_of("adam", RANKS)
    messages = []
    for i in range(3):
        src, tgt = TASK.batch(i, 8)
        if i == 1 and RANKS.rank == LAST:
            tgt = tgt[:4]
        try:
            trainer.step(src, tgt)
        except ValueError as error:
            messages.append(f"{type(error).__name__}: {error}")

    def batches():
        if RANKS.rank == LAST:
            raise OSError("no such text")
        yield TASK.batch(3, 8)

    try:
        trainer.fit(batches(), progress=False)
    except (OSError, ValueError) as error:
        messages.append(f"{type(error).__name__}: {error}")
    train(trainer, 8, first=3)
    return RANKS.gather([messages, trainer.n_steps, digest([trainer.flat_params])])


def fails_in_a_callback(folder):
    """A callback of one rank raises; all catch it, save, and go on."""
    trainer = trainer_of("adam", RANKS)
    messages = []

    def fail(_, info):
        if info.step == 3 and RANKS.rank == LAST:
            raise ZeroDivisionError("of the user")

    batches = [TASK.batch(i, 8) for i in range(9)]
    try:
        trainer.fit(batches, callbacks=[fail], progress=False)
    except (ZeroDivisionError, RankError) as error:
        messages.append(f"{type(error).__name__}: {error}")
    trainer.save(folder / "caught.safetensors")
    train(trainer, 8, first=3)
    return RANKS.gather([messages, trainer.n_steps, digest([trainer.flat_params])])


def with_other_threads():
    """A step of ranks whose number of threads, and so of shards, differs."""
    trainer = new_trainer(MODEL, Adam(0.01))
    trainer.sharding.worth_a_shard = 1
    with patch("npformer.operations.host.n_threads", lambda: 1 + RANKS.rank):
        train(trainer, 8)


def read_other_text():
    """Batches of a text that is another on rank 1."""
    lines = [("a b c", "c b a"), ("b", "b"), ("c c", f"c {'abc'[RANKS.rank]}")]
    subwords = Subwords.learn(["a b c", "c b a"] * 4, size=9)
    options = {"max_tokens": 30, "max_len": 8, "ranks": RANKS}
    next(TokenBatches(lines, subwords, subwords, **options).from_place())


def time_messages():
    """What the benchmark of ranks measures on this training."""
    trainer = trainer_of("adam", RANKS)
    train(trainer, 8)
    return bench_ranks.messages(trainer, RANKS) | {"numbers": trainer.flat_params.size}


def save_alone(folder):
    """Rank 0 saves, and the others make a step."""
    trainer = trainer_of("adam", RANKS)
    if RANKS.is_first:
        trainer.save(folder / "alone.safetensors")
    else:
        trainer.step(*TASK.batch(0, 8))


def call_another():
    """Rank 0 agrees on facts, and the others gather values."""
    if RANKS.is_first:
        RANKS.agree(lambda: {"seed": 0})
    else:
        RANKS.gather(0)


def shown_by(main, arguments):
    """What a command prints on this rank."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        main(arguments)
    return shown.getvalue()


def fail():
    raise OSError("the disk is full")


def refused(folder):
    """For each of these trainings, the errors that it ends with, on each rank."""
    adam = partial(trainer_of, "adam", RANKS)
    unequal = [TASK.batch(0, 4)] * (1 + RANKS.rank)
    names = {"a": {"name": RANKS.rank}, "b": {"name": 0}}
    works = {
        "no first": lambda: RANKS.first(fail),
        "no json": lambda: RANKS.first(lambda: {1, 2}),
        "forgotten": lambda: train(new_trainer(Forgetful(), SGD(0.1)), 8),
        "disagree": lambda: RANKS.agree(lambda: {"seed": RANKS.rank}),
        "disagree below": lambda: RANKS.agree(lambda: names),
        "other threads": with_other_threads,
        "other rates": lambda: train(new_trainer(MODEL, SGD(0.1 + RANKS.rank)), 8),
        "other settings": lambda: new_trainer(MODEL, Adam(0.1), seed=RANKS.rank),
        "other text": read_other_text,
        "save alone": lambda: save_alone(folder),
        "other call": call_another,
        "other end": lambda: adam().fit(unequal, progress=False),
        "other batch": lambda: train(adam(), 8, first=RANKS.rank),
    }
    kinds = {"forgotten": ValueError, "no first": Exception, "no json": Exception}
    messages = {}
    for name, work in works.items():
        messages[name] = message_of(kinds.get(name, RankError), work)
    return messages


def main(folder):
    found = {
        "trainings": compare_trainings(),
        "accumulated": compare_accumulated(),
        "resumed": resume(folder),
        "diagnoses": diagnoses(),
        "watched": watched(),
        "stopped": stopped(),
        "fails in a step": fails_in_a_step(),
        "fails before a step": fails_before_a_step(),
        "fails in a callback": fails_in_a_callback(folder),
        "goes on": goes_on(folder),
        "on the gpu": on_the_gpu() if RANKS.size == 2 else None,
        "messages": time_messages(),
        "first": RANKS.first(lambda: {"of": "rank 0"}),
        "arrays": [x.tolist() for x in RANKS.gather_arrays(np.arange(RANKS.rank))],
        "shares": RANKS.gather_lists(RANKS.my_share(list("abcde"))),
        "table": str(RANKS),
        "info": shown_by(info.main, []),
        **refused(folder),
    }
    if RANKS.is_first:
        print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
