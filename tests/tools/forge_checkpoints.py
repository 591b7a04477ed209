"""Forge and damage checkpoints at random.

Each has to be refused with one line, or to be whole in itself.

    python tests/tools/forge_checkpoints.py
    python tests/tools/forge_checkpoints.py --forged 300 --damaged 100 --seed 7
    python tests/tools/forge_checkpoints.py --seed 7 --only 123  # one file again, with traceback

A forgery is a file of small trainings, models and translation runs in which names, dtypes, shapes,
places, JSON or any value of the info were changed, with a right checksum. Each file is loaded by
``load_checkpoint``, ``Trainer.load``, ``Translator.load`` and ``TranslationRun.resume``. A load may
succeed, or raise a ``CheckpointError`` of one line that names the file, or say that the text of the
settings is not there, or that their ``precision`` needs a GPU. Everything else is a failure. Then
each file of a list that is made to take memory is loaded in a process of its own that may take no
more than twice the file's size and 100 MB. The exit code is 1 if there was any failure. Needs Linux
and ``npformer[translation]``.
"""

import argparse
import collections
import contextlib
import io
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

from npformer.commands.arguments import natural, new_parser  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import output_file, write_json
from scripts.bench.memory import peak_bytes, reset_peak

from npformer import SGD, Adam, AdamW, ByteNet, Recurrent, Trainer, Transformer
from npformer.text import Place, TranslationRun, TranslationSettings, Translator
from npformer.training import CheckpointError, load_checkpoint, save_checkpoint
from tests.tools.forgery import damaged, forged, joined, parts

SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 12}
SLACK = 100_000_000  # bytes that a refusal may take, besides twice the size of the file
ACCEPTED, REFUSED, ANOTHER, FAILED = "accepted", "CheckpointError", "text or precision", "FAILURE"
LONGEST_MESSAGE = 1000


@command
def main(argv=None):
    options = parse_arguments(argv)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        trainers = originals(folder)
        if options.bomb:
            return load_limited(folder, trainers, options.bomb)
        outcomes, reasons, failures = collections.Counter(), collections.Counter(), []
        start, before = time.perf_counter(), peak_bytes()
        files = range(options.forged + options.damaged) if options.only is None else [options.only]
        for number in files:
            for way, outcome, text in load(folder, trainers, number, options):
                outcomes[way, outcome] += 1
                if outcome == REFUSED:
                    reasons[kind_of(text)] += 1
                elif outcome == FAILED:
                    failures.append(
                        f"--seed {options.seed} --forged {options.forged} --only {number}, "
                        f"{way}: {text}"
                    )
                    print(failures[-1], flush=True)
        seconds, grown = time.perf_counter() - start, peak_bytes() - before
        report(outcomes, reasons)
        largest = max(path.stat().st_size for path in folder.glob("*.safetensors"))
        print(
            f"{len(files)} files of up to {mb(largest)} in {seconds:.0f} s; "
            f"the peak of memory grew by {mb(grown)}"
        )
        if grown > 2 * largest + SLACK:
            failures.append("memory")
        if options.only is None:
            failures += [name for name in BOMBS if not explodes_in_vain(name)]
    print(f"{len(failures)} failures")
    if options.json:
        counts = {f"{way}, {outcome}": n for (way, outcome), n in outcomes.items()}
        write_json(
            options.json,
            {"outcomes": counts, "reasons": reasons, "failures": failures, "peak_bytes": grown},
        )
    return int(bool(failures))


def originals(folder):
    """Write valid checkpoints of several kinds to a folder.

    Returns a trainer for each that holds a training.
    """
    rng = np.random.default_rng(0)
    arrays = {
        f"é.{kind}": rng.integers(0, 2, (2, 3)).astype(kind)
        for kind in ("?", "u1", "i8", "f2", "f8")
    }
    info = {
        "note": "ü",
        "losses": [0.5, float("inf")],
        "nested": {"none": None, "flags": [True, {}]},
    }
    save_checkpoint(folder / "plain.safetensors", arrays | {"empty": np.zeros((0, 3))}, info)
    trainers = {
        "transformer": Trainer(
            Transformer(11, 11, **SIZES), Adam(0.01), label_smoothing=0.1, clip_norm=1.0
        ),
        "recurrent": Trainer(
            Recurrent(9, 10, d_model=8, attention="additive"), SGD(0.1, momentum=0.9), seed=3
        ),
        "bytenet": Trainer(
            ByteNet(9, 10, d_model=8, n_sets=1, dilations=(1, 2)), AdamW(0.01), frozen=["encoder"]
        ),
    }
    for name, trainer in trainers.items():
        trainer.save(
            folder / f"{name}.safetensors", {"place": [0, 0, 1], "loss_scale": [1024.0, 3]}
        )
    text = [f"{a} {b}" for a in ("the", "a", "one") for b in ("man", "horse", "bread", "house")]
    for split in ("train", "val"):
        for side in ("en", "fr"):
            (folder / f"{split}.{side}").write_text("".join(line + "\n" for line in text))
    settings = TranslationSettings(
        data=str(folder), model=SIZES, vocab_size=30, max_len=40, max_tokens=200, steps=10
    )
    run = TranslationRun.start(folder / "out", settings)
    run.trainer.state.validations = [
        {"step": 2, "val_loss": 2.0, "val_bleu": 1.5, "val_bleu_lower": 1.5}
    ]
    run.place, run.trainer.state.n_logged, run.trainer.state.n_steps = Place(0, 0, 2), 3, 2
    run.save()
    (folder / "out" / "last.safetensors").rename(folder / "run.safetensors")
    run.translator.save(folder / "translator.safetensors", {"note": 1})
    return trainers | {"run": run.trainer}


def load(folder, trainers, number, options):
    """Make the file with a number and load it in every way. Yields (way, outcome, message)."""
    draw = random.Random(f"{options.seed}/{number}")
    paths = sorted(folder.glob("*.safetensors"))
    # run.safetensors is drawn most often, as it has the most parts
    original = draw.choice([*paths, folder / "run.safetensors", folder / "run.safetensors"])
    whole = original.read_bytes()
    data = forged(draw, *parts(original)) if number < options.forged else damaged(draw, whole)
    path = folder / "out" / "last.safetensors"
    path.write_bytes(data)
    for way, call in ways(path, trainers.get(original.stem, trainers["transformer"])).items():
        yield way, *outcome_of(call, path, shown=options.only is not None)
    if (
        number >= options.forged
        and data != whole
        and outcome_of(lambda: load_checkpoint(path), path)[0] == ACCEPTED
    ):
        yield "damage", FAILED, "the damage was not noticed"


def ways(path, trainer):
    """Every public way to load a checkpoint, by name."""
    return {
        "load_checkpoint": lambda: load_checkpoint(path),
        "Trainer.load": lambda: trainer.load(path),
        "Translator.load": lambda: Translator.load(path),
        "TranslationRun.resume": lambda: TranslationRun.resume(path.parent),
    }


def outcome_of(call, path, shown=False):
    """Load, and return (outcome, message); the traceback of a failure may be shown."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("error")
            call()
    except CheckpointError as error:
        text = str(error)
        good = text.isprintable() and path.name in text and len(text) < LONGEST_MESSAGE
        return (
            (REFUSED, text.replace(str(path), "FILE"))
            if good
            else (FAILED, f"a bad message: {text!r:.500}")
        )
    except Exception as error:
        text = str(error)
        if type(error) is ValueError and text.startswith("precision="):
            return ANOTHER, text
        if type(error) is FileNotFoundError and re.search(r": expected train\..*, found", text):
            return ANOTHER, text
        if shown:
            traceback.print_exc()
        return FAILED, f"{type(error).__name__}: {text!r:.300}"
    return ACCEPTED, ""


def kind_of(text):
    """A message without what differs from file to file."""
    text = re.sub(r"cannot be read as a checkpoint: |; (try an|expected a file).*", "", text)
    text = re.sub(r"'[^']*'?|\"[^\"]*\"?|\[[^]]*\]?|\{[^}]*\}?|\([^)]*\)", "…", text)
    text = re.sub(r"=\S+", "=…", re.sub(r"[-+\d][\d,.e+]*|\bnan\b|\binf\b", "N", text))
    return re.sub(r"parameter \S+: .*", "parameter …: given …, expected …", text)[:90]


def report(outcomes, reasons):
    names = [ACCEPTED, REFUSED, ANOTHER, FAILED]
    print(f"{'':24}" + "".join(f"{name:>30}" for name in names))
    for way in dict.fromkeys(way for way, _ in outcomes):
        print(f"{way:24}" + "".join(f"{outcomes[way, name]:30,}" for name in names))
    print(f"\n{len(reasons)} kinds of CheckpointError, the most frequent:")
    for text, n in reasons.most_common(40):
        print(f"{n:7,}  {text}")


# ---- files that would take memory ----


def with_info(change):
    """A bomb: the file of the run, with a change of its info."""

    def bomb(header, data):
        info = json.loads(header["__metadata__"]["info"])
        change(info)
        return header | {"__metadata__": header["__metadata__"] | {"info": json.dumps(info)}}, data

    return bomb


def with_text(text):
    """A bomb: the file of the run, with another text as its info."""

    def bomb(header, data):
        return header | {"__metadata__": header["__metadata__"] | {"info": text}}, data

    return bomb


def larger(header, data):
    """A file of 200 MB in which one bit is wrong."""
    n = 200_000_000
    array = {"dtype": "U8", "shape": [n], "data_offsets": [len(data), len(data) + n]}
    order = json.dumps([*json.loads(header["__metadata__"]["order"]), "large"])
    return header | {
        "large": array,
        "__metadata__": header["__metadata__"] | {"order": order},
    }, data + bytes(n)


BOMBS = {
    "max_len": with_info(lambda info: info["model"].update(max_len=10**12)),
    "max_len of the settings": with_info(
        lambda info: info["settings"].update(max_len=10**12, max_tokens=10**12)
    ),
    "d_ff": with_info(lambda info: info["model"].update(d_ff=10**7)),
    "model of the settings": with_info(lambda info: info["settings"]["model"].update(d_ff=10**10)),
    "n_layers": with_info(lambda info: info["model"].update(n_layers=10**9)),
    "n_layers of the settings": with_info(
        lambda info: info["settings"]["model"].update(n_layers=10**9)
    ),
    "vocabulary": with_info(lambda info: info["model"].update(src_vocab=10**11, tgt_vocab=10**11)),
    "many lists": with_text("[" + "[]," * 1_000_000 + "[]]"),
    "lists up to the limit": with_text('{"a":[' + '{"":9.5},' * 133_000 + "1]}"),
    "numbers up to the limit": with_text('{"a":[' + "0.5," * 399_000 + "1]}"),
    "a long text": with_text(json.dumps({"a": "x" * 7_000_000})),
    "wide characters": with_text('"\U0001f600' + "x" * 7_500_000 + '"'),
    "wide characters in JSON": with_text('{"a":"\\ud83d\\ude00' + "x" * 7_500_000 + '"}'),
    "deep": with_text("[" * 300_000 + "]" * 300_000),
    "shape": lambda header, data: (
        header | {"a": {"dtype": "U8", "shape": [1] * 99_999, "data_offsets": [0, 1]}},
        data,
    ),
    "a long header": lambda header, data: (header | {"x" * 100_000_000: 1}, data),
    "200 MB, damaged": larger,
}


def explodes_in_vain(name):
    """Load a bomb in a process of its own.

    Returns whether it is refused within the memory that it may take.
    """
    arguments = [sys.executable, __file__, "--bomb", name]
    done = subprocess.run(arguments, capture_output=True, text=True)
    print(
        f"{name:26}" + (done.stdout.strip() or f"FAILURE: {done.stderr.strip()[-300:]}"), flush=True
    )
    return done.returncode == 0


def load_limited(folder, trainers, name):
    """Load a bomb in every way, with a limit to the memory of this process.

    Returns an exit code.
    """
    import resource

    path = folder / "out" / "last.safetensors"
    original = folder / "run.safetensors"
    header, data = BOMBS[name](*parts(original))
    path.write_bytes(
        joined(json.dumps(header, ensure_ascii=name != "wide characters").encode(), data)
    )
    del header, data
    size = path.stat().st_size
    calls = ways(path, trainers["run"])
    outcome_of(lambda: load_checkpoint(original), original)  # what is imported and compiled once
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    reset_peak()
    before = peak_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (now + 2 * size + SLACK, resource.RLIM_INFINITY))
    outcomes = [outcome_of(call, path)[0] for call in calls.values()]
    print(f"{mb(size)}: {mb(peak_bytes() - before)} more; " + ", ".join(outcomes))
    return int(FAILED in outcomes or REFUSED not in outcomes)


def mb(n):
    return f"{n / 1e6:.1f} MB"


def parse_arguments(argv):
    parser = new_parser(__doc__)
    add = parser.add_argument
    add(
        "--seed",
        type=natural,
        default=0,
        help="seed of the forgeries and of the damage (default: 0)",
    )
    add(
        "--forged",
        type=natural,
        default=10_000,
        metavar="N",
        help="number of forgeries (default: 10,000)",
    )
    add(
        "--damaged",
        type=natural,
        default=2000,
        metavar="N",
        help="number of damaged files (default: 2,000)",
    )
    add("--only", type=natural, metavar="I", help="only the file with this number, from 0")
    add("--json", type=output_file, metavar="FILE", help="write the counts to FILE")
    add("--bomb", choices=BOMBS, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
