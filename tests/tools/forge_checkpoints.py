"""Forge and damage checkpoints at random.

Each has to be refused with one line, or to be whole in itself.

    python tests/tools/forge_checkpoints.py
    python tests/tools/forge_checkpoints.py --files 300 --seed 7
    python tests/tools/forge_checkpoints.py --seed 7 --only 123  # one file again

A forgery is a file of small trainings, models and translation runs in which names, dtypes, shapes,
places, JSON or any value of the info were changed, with a right checksum; one in six files is
damaged instead. Each file is loaded by ``load_checkpoint``, ``Trainer.load``, ``Translator.load``
and ``TranslationRun.resume``. A load may succeed, or raise a ``CheckpointError`` of one line that
names the file, or say that the text of the settings is not there, or that their ``precision`` needs
a GPU. Everything else is a failure. Then each file of a list that is made to take memory is loaded
in a process of its own that may take no more than twice the file's size and 100 MB. Needs Linux and
``npformer[translation]``.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from scripts.bench.memory import peak_bytes, reset_peak

from npformer import SGD, Adam, AdamW, ByteNet, Recurrent, Trainer, Transformer
from npformer.text import Place, TranslationRun, TranslationSettings, Translator
from npformer.training import load_checkpoint, save_checkpoint
from tests.tools.forgery import (
    ACCEPTED,
    FAILED,
    REFUSED,
    Files,
    Only,
    damaged,
    forge,
    forged,
    joined,
    outcome_of,
    parts,
)
from tests.tools.tool import Seed, in_child, tool

SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 12}
SLACK = 100_000_000  # bytes that a refusal may take, besides twice the size of the file


@tool
def main(*, files: Files = 12_000, only: Only | None = None, seed: Seed = 0):
    """Forge files."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        trainers = originals(folder)
        before = peak_bytes()
        failures = forge(lambda draw: load(folder, trainers, draw), files, seed, only)
        grown = peak_bytes() - before
        largest = max(path.stat().st_size for path in folder.glob("*.safetensors"))
        print(f"files of up to {mb(largest)}; the peak of memory grew by {mb(grown)}")
        if grown > 2 * largest + SLACK:
            failures.append("memory")
        if only is None:
            failures += [name for name in BOMBS if not explodes_in_vain(folder, trainers, name)]
    return failures


def originals(folder):
    """Write valid checkpoints of several kinds to a folder.

    Returns a trainer for each that holds a training.
    """
    rng = np.random.default_rng(0)
    arrays = {"empty": np.zeros((0, 3))}
    for kind in ("?", "u1", "i8", "f2", "f8"):
        arrays[f"é.{kind}"] = rng.integers(0, 2, (2, 3)).astype(kind)
    nested = {"none": None, "flags": [True, {}]}
    info = {"note": "ü", "losses": [0.5, float("inf")], "nested": nested}
    save_checkpoint(folder / "plain.safetensors", arrays, info)
    transformer = Transformer(11, 11, **SIZES)
    recurrent = Recurrent(9, 10, d_model=8, attention="additive")
    bytenet = ByteNet(9, 10, d_model=8, n_sets=1, dilations=(1, 2))
    trainers = {
        "transformer": Trainer(transformer, Adam(0.01), label_smoothing=0.1, clip_norm=1.0),
        "recurrent": Trainer(recurrent, SGD(0.1, momentum=0.9), seed=3),
        "bytenet": Trainer(bytenet, AdamW(0.01), frozen=["encoder"]),
    }
    for name, trainer in trainers.items():
        more = {"place": [0, 0, 1], "loss_scale": [1024.0, 3]}
        trainer.save(folder / f"{name}.safetensors", more)
    run = translation_run(folder)
    return trainers | {"run": run.trainer}


def translation_run(folder):
    """A run of translation that has begun, whose checkpoint and translator are saved, too."""
    text = [f"{a} {b}\n" for a in ("the", "a", "one") for b in ("man", "horse", "bread", "house")]
    for name in ("train.en", "train.fr", "val.en", "val.fr"):
        (folder / name).write_text("".join(text))
    limits = {"vocab_size": 30, "max_len": 40, "max_tokens": 200, "steps": 10}
    settings = TranslationSettings(data=str(folder), model=SIZES, **limits)
    run = TranslationRun.start(folder / "out", settings)
    scores = {"val_loss": 2.0, "val_bleu": 1.5, "val_bleu_lower": 1.5}
    run.trainer.state.validations = [{"step": 2, **scores}]
    run.trainer.state.n_logged = 3
    run.trainer.state.n_steps = 2
    run.place = Place(0, 0, 2)
    run.loop.save()
    (folder / "out" / "last.safetensors").rename(folder / "run.safetensors")
    run.translator.save(folder / "translator.safetensors", {"note": 1})
    return run


def load(folder, trainers, draw):
    """Make a file and load it in every way. Yields (way, outcome, message)."""
    # run.safetensors is drawn most often, as it has the most parts
    run = folder / "run.safetensors"
    original = draw.choice([*sorted(folder.glob("*.safetensors")), run, run])
    whole = original.read_bytes()
    is_forged = draw.random() < 5 / 6
    data = forged(draw, *parts(original)) if is_forged else damaged(draw, whole)
    path = folder / "out" / "last.safetensors"
    path.write_bytes(data)
    outcomes = {}
    for way, call in ways(path, trainers.get(original.stem, trainers["transformer"])).items():
        outcomes[way], text = outcome_of(call, path)
        yield way, outcomes[way], text
    if not is_forged and data != whole and outcomes["load_checkpoint"] == ACCEPTED:
        yield "damage", FAILED, "the damage was not noticed"


def ways(path, trainer):
    """Every public way to load a checkpoint, by name."""
    return {
        "load_checkpoint": lambda: load_checkpoint(path),
        "Trainer.load": lambda: trainer.load(path),
        "Translator.load": lambda: Translator.load(path),
        "TranslationRun.resume": lambda: TranslationRun.resume(path.parent),
    }


# -- files that would take memory

# Other values in the info of the run, and other texts in its place.
INFOS = {
    "max_len": {"model": {"max_len": 10**12}},
    "max_len of the settings": {"settings": {"max_len": 10**12, "max_tokens": 10**12}},
    "d_ff": {"model": {"d_ff": 10**7}},
    "model of the settings": {"settings": {"model": {"d_ff": 10**10}}},
    "n_layers": {"model": {"n_layers": 10**9}},
    "n_layers of the settings": {"settings": {"model": {"n_layers": 10**9}}},
    "vocabulary": {"model": {"src_vocab": 10**11, "tgt_vocab": 10**11}},
}
TEXTS = {
    "many lists": "[" + "[]," * 1_000_000 + "[]]",
    "lists up to the limit": '{"a":[' + '{"":9.5},' * 133_000 + "1]}",
    "numbers up to the limit": '{"a":[' + "0.5," * 399_000 + "1]}",
    "a long text": '{"a":"' + "x" * 7_000_000 + '"}',
    "wide characters": '"\U0001f600' + "x" * 7_500_000 + '"',
    "wide characters in JSON": '{"a":"\\ud83d\\ude00' + "x" * 7_500_000 + '"}',
    "deep": "[" * 300_000 + "]" * 300_000,
}
HEADERS = {
    "shape": {"a": {"dtype": "U8", "shape": [1] * 99_999, "data_offsets": [0, 1]}},
    "a long header": {"x" * 100_000_000: 1},
}
LARGE = 200_000_000
BOMBS = [*INFOS, *TEXTS, *HEADERS, "200 MB, damaged"]


def bomb(name, header, data):
    """A file that is made of the one of a run."""
    metadata = header["__metadata__"]
    if name in INFOS:
        metadata["info"] = json.dumps(with_values(json.loads(metadata["info"]), INFOS[name]))
    elif name in TEXTS:
        metadata["info"] = TEXTS[name]
    elif name in HEADERS:
        header |= HEADERS[name]
    else:  # one bit is wrong
        offsets = [len(data), len(data) + LARGE]
        header["large"] = {"dtype": "U8", "shape": [LARGE], "data_offsets": offsets}
        metadata["order"] = json.dumps([*json.loads(metadata["order"]), "large"])
        data += bytes(LARGE)
    return joined(json.dumps(header, ensure_ascii=name != "wide characters").encode(), data)


def with_values(info, values):
    """Nested dicts with other values."""
    for name, value in values.items():
        info[name] = with_values(info[name], value) if isinstance(value, dict) else value
    return info


def explodes_in_vain(folder, trainers, name):
    """Load a bomb in a forked process, which need not import and compile everything again.

    Returns whether it is refused within the memory that it may take.
    """
    child = in_child(lambda: load_limited(folder, trainers, name))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def load_limited(folder, trainers, name):
    """Load a bomb in every way, with a limit to the memory of this process."""
    import resource

    path = folder / "out" / "last.safetensors"
    original = folder / "run.safetensors"
    path.write_bytes(bomb(name, *parts(original)))
    size = path.stat().st_size
    calls = ways(path, trainers["run"])
    outcome_of(lambda: load_checkpoint(original), original)  # what is imported and compiled once
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    reset_peak()
    before = peak_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (now + 2 * size + SLACK, resource.RLIM_INFINITY))
    outcomes = [outcome_of(call, path)[0] for call in calls.values()]
    grown = peak_bytes() - before
    print(f"{name:26}{mb(size)}: {mb(grown)} more; " + ", ".join(outcomes))
    return REFUSED in outcomes and FAILED not in outcomes


def mb(n):
    return f"{n / 1e6:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())
