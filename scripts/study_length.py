"""Why attention won: quality against length, path length, and time, of the Transformer and what came before it.

python scripts/study_length.py --quick                        # a minute
python scripts/study_length.py --out docs                     # copy and reverse, three seeds, and times
python scripts/study_length.py --data data/multi30k           # the same, and English to French

Five systems with about equally many parameters: a recurrent encoder-decoder without attention, with "general" and with
additive attention, ByteNet, and the Transformer.

1. Copy and reverse: trained on sequences of 1 to 20 symbols, tested on others of each length. A sequence counts if all
   of it is right.
2. With --data, English to French on Multi30k: BLEU of the test sentences by the length of their source.
3. The three wishes: how many steps lie between two words, and how long an update takes, against length.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from arguments import natural, positive, write_json
from systems import SYSTEMS, count, of_size

from npformer import Adam, CopyTask, Trainer, warmup_cosine
from npformer.data.copy_task import exact_match
from npformer.plots import plot_by_length
from npformer.threads import blas_threads

FULL = {
    "parameters": 150_000,
    "longest": 20,
    "lengths": [1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20],
    "steps": 3000,
    "seeds": 3,
    "tested": 200,
    "timed": [16, 32, 64, 128, 256, 512],
}
QUICK = {
    "parameters": 20_000,
    "longest": 6,
    "lengths": [1, 2, 3, 4, 5, 6],
    "steps": 150,
    "seeds": 2,
    "tested": 50,
    "timed": [8, 32, 128],
}
LEARNING_RATES = {"ByteNet": 0.002, "Transformer": 0.003}  # the others: 0.005
VOCAB, BATCH = 11, 64


def main(argv=None):
    options = parse_arguments(argv)
    sizes = dict(QUICK if options.quick else FULL)
    sizes |= {name: getattr(options, name) for name in ("steps", "seeds") if getattr(options, name)}
    start, figures = time.perf_counter(), {"sizes": sizes}
    with blas_threads(1):  # its matrices are small
        for task in ("copy", "reverse"):
            figures[task] = {system: study_task(system, task, sizes, options) for system in SYSTEMS}
            show(f"{task}: exact match, %, by length", figures[task], sizes["lengths"], "{:.0f}")
        figures["times"] = {system: study_time(system, sizes) for system in SYSTEMS}
        show("milliseconds an update, batch of 8, by length", figures["times"], sizes["timed"], "{:.0f}")
    figures["paths"] = {"lengths": sizes["timed"], **path_lengths(sizes["timed"])}
    if options.data:
        from study_translation import study_translation

        figures["translation"] = study_translation(options, sizes)
    figures["seconds"] = time.perf_counter() - start
    print(f"\n{figures['seconds']:.0f} seconds")
    draw(options.out, figures, sizes)
    if options.json:
        write_json(options.json, figures)
    return 0


def study_task(system, task_name, sizes, options):
    """The share of sequences of each length that are all right, for each seed: {"values": (seeds, lengths)}."""
    values = []
    for seed in range(options.seed, options.seed + sizes["seeds"]):
        task = CopyTask(vocab=VOCAB, min_len=1, max_len=sizes["longest"], reverse=task_name == "reverse", seed=seed)
        model = of_size(system, sizes["parameters"], src_vocab=VOCAB, tgt_vocab=VOCAB, dropout=0.0)
        params = trained(model, task, sizes["steps"], seed, LEARNING_RATES.get(system, 0.005))
        values.append([100 * match_of_length(model, params, task, n, sizes["tested"]) for n in sizes["lengths"]])
    return {"parameters": count(model), "width": model.d_model, "values": values}


def trained(model, task, steps, seed, lr):
    """The parameters after so many updates."""
    optimizer = Adam(warmup_cosine(lr, warmup=steps // 12, total=steps), betas=(0.9, 0.98))
    trainer = Trainer(model, optimizer, seed=seed, clip_norm=1.0)
    trainer.fit((task.batch(step, BATCH) for step in range(steps)), steps, progress=False)
    return trainer.params


def match_of_length(model, params, task, length, size):
    """Exact match of sequences of one length, of those that no training batch holds where there are enough."""
    enough = (VOCAB - 3) ** length // 20 >= size  # a tenth is held out
    of_length = CopyTask(vocab=VOCAB, min_len=length, max_len=length, reverse=task.reverse, seed=task.seed)
    src, tgt = of_length.held_out(size) if enough else of_length.batch(10**6, size)
    return exact_match(model, params, src, tgt)[0]


def study_time(system, sizes, batch=8, rounds=5):
    """Milliseconds of a training step, the median of some, against length."""
    model = of_size(system, sizes["parameters"], src_vocab=VOCAB, tgt_vocab=VOCAB, dropout=0.0)
    rng, values = np.random.default_rng(0), []
    for length in sizes["timed"]:
        trainer = Trainer(model, Adam(lr=0.001))
        src, tgt = (rng.integers(3, VOCAB, (batch, n)) for n in (length, length + 1))
        tgt[:, 0] = 1
        trainer.step(src, tgt)  # compiles, and allocates
        values.append(sorted(milliseconds(trainer, src, tgt) for _ in range(rounds)))
    return {"width": model.d_model, "values": np.transpose(values).tolist()}


def milliseconds(trainer, src, tgt):
    start = time.perf_counter()
    trainer.step(src, tgt)
    return 1000 * (time.perf_counter() - start)


def path_lengths(lengths):
    """Operations that one after the other connect the first word of a source of n words with the last of its target.

    Recurrent: all the source's and all the target's steps. With attention: the target's step looks at the word's state
    itself. ByteNet: as many blocks as it takes for their dilations to add up to n, in the encoder. Transformer: one
    self-attention, one attention to the source (table 1 of the paper has the largest paths within one layer or stack).
    """
    taps = 5 - 1  # that see something else
    return {
        "recurrent": [2 * n for n in lengths],
        "recurrent + general": [1 for _ in lengths],
        "recurrent + additive": [1 for _ in lengths],
        "ByteNet": [int(np.ceil(np.log2(2 * n / taps + 1))) for n in lengths],
        "Transformer": [1 for _ in lengths],
    }


def show(title, systems, lengths, form):
    """A table: the median over seeds or rounds, and the smallest and the largest."""
    print(f"\n{title}\n{'':<22}" + "".join(f"{n:>16}" for n in lengths))
    for system, found in systems.items():
        cells = [
            f"{form} ({form} … {form})".format(np.median(v), min(v), max(v)) for v in np.transpose(found["values"])
        ]
        print(f"{system:<22}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def draw(folder, figures, sizes):
    """Two pictures, or three with translation."""
    folder.mkdir(parents=True, exist_ok=True)
    quality = {"xlabel": "symbols of the sequence", "ylabel": "all of it right, % of sequences", "ylim": (-3, 103)}
    panels = [
        {
            "title": f"{task}: {sizes['steps']} updates",
            "at": sizes["lengths"],
            "systems": values_of(figures[task]),
            **quality,
        }
        for task in ("copy", "reverse")
    ]
    save(panels, folder / "study_length.png")
    paths = {system: [values] for system, values in figures["paths"].items() if system != "lengths"}
    length = {"at": sizes["timed"], "xlabel": "words", "log": True}
    panels = [
        {
            "title": "From a source word to the last target word",
            "ylabel": "steps in between",
            "systems": paths,
            **length,
        },
        {
            "title": "A training step, 8 pairs",
            "ylabel": "milliseconds",
            "systems": values_of(figures["times"]),
            **length,
        },
    ]
    save(panels, folder / "study_wishes.png")
    if "translation" in figures:
        found = figures["translation"]
        bleu = {
            "at": found["words"],
            "xlabel": "words of the source, mean of each class",
            "ylabel": "BLEU, lower-cased",
        }
        panels = [{"title": "English to French", "systems": values_of(found["systems"]), **bleu}]
        save(panels, folder / "study_translation.png")


def values_of(systems):
    return {system: found["values"] for system, found in systems.items()}


def save(panels, path):
    plot_by_length(panels, path)
    print(f"wrote {path}")


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small models, short sequences, few updates: about a minute")
    add(
        "--data", metavar="DIR", help="Multi30k, as get_multi30k.py leaves it: also translate English to French (hours)"
    )
    add("--steps", type=positive, metavar="N", help=f"updates on copy and reverse (default: {FULL['steps']})")
    add("--seeds", type=positive, metavar="N", help=f"how many (default: {FULL['seeds']})")
    add("--seed", type=natural, default=0, help="the first of them (default: 0)")
    add("--translation-steps", type=positive, default=3000, metavar="N", help="updates on Multi30k (default: 3000)")
    add("--out", type=Path, default=Path("runs/study"), metavar="DIR", help="for pictures (default: runs/study)")
    add("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
