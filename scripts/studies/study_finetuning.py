"""Fine-tune a model that exists in three ways, and measure what each brings: its head, all of it, low-rank adapters.

python scripts/studies/study_finetuning.py --model FOLDER --data data/multi30k --json finetuning.json   # ten minutes
python scripts/studies/study_finetuning.py --quick                       # seconds, a random model, on this file

FOLDER holds a BERT, such as all-MiniLM-L6-v2. The task: the two parts of a caption, cut between two words; in half of
the pairs the second is that of another caption. Does it continue the first? The labels come from the text alone. Held
out is the validation text. docs/guides/fine-tuning.md explains the three ways.
"""

import dataclasses
import statistics
import sys
from pathlib import Path

import numpy as np

from npformer.commands.arguments import new_parser  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, write_json
from scripts.bench.options import add_sizes, sizes_of

from npformer import Adam, Encoder, Trainer, pretrained, tree, warmup_cosine
from npformer.data.in_batches import pack
from npformer.data.lines import read_lines
from npformer.language import Characters
from npformer.models import LowRank

FULL = {"steps": 400, "seeds": 3, "batch": 32, "rank": 8, "words": 12, "tests": 32}
QUICK = {"steps": 2, "seeds": 1, "batch": 4, "rank": 2, "words": 12, "tests": 2}
RATES = {"head": 1e-2, "all": 1e-4, "adapters": 1e-3}  # the best of two to four, with another seed
TESTED = 64  # pairs of a batch that is only tested


@command
def main(argv=None):
    options = parse_arguments(argv)
    sizes = sizes_of(options, FULL, QUICK)
    if options.quick:
        texts = [Path(__file__).read_text(encoding="utf-8").splitlines()[i::2] for i in range(2)]
        characters = Characters("".join(map("".join, texts)))
        encode = lambda text: 1 + characters.encode(text)
        model = Encoder(1 + len(characters), d_model=16, n_heads=2, n_layers=1, d_ff=32, n_types=2)
        params = model.init(0)
    else:
        texts = [list(read_lines(options.data / f"{split}.en.gz")) for split in ("train", "val")]
        model, params, tokenizer = pretrained.load(options.model)
        encode = tokenizer.encode
    model = dataclasses.replace(model, task="classes", n_outputs=2, pooler=False)
    training, held_out = ([x for x in text if 4 <= len(x.split()) <= sizes["words"]] for text in texts)
    draw = lambda lines, n, seed: batch_of(lines, encode, n, np.random.default_rng(seed))
    tests = [draw(held_out, TESTED, (seed, 1)) for seed in range(sizes["tests"])]
    figures = []
    print(f"{'':<10}{'trained':>12}{'held out, %':>13}{'(of each seed)':>20}{'seconds':>9}")
    for way in RATES:
        found = []
        for seed in range(sizes["seeds"]):
            batches = (draw(training, sizes["batch"], (seed, 0, step)) for step in range(sizes["steps"]))
            found.append(measured(trainer_of(way, model, params, sizes, seed), batches, tests))
        right, seconds = [each["right"] for each in found], statistics.median(each["seconds"] for each in found)
        n, of_seeds = found[0]["n_trained"], " ".join(f"{x:.1f}" for x in right)
        print(f"{way:<10}{n:>12,}{statistics.mean(right):>13.1f}{of_seeds:>20}{seconds:>9.0f}", flush=True)
        figures.append({"way": way, "n_trained": n, "right": right, "seconds": round(seconds, 1)})
        write_json(options.json, {"sizes": sizes, "rates": RATES, "ways": figures})


def batch_of(lines, encode, n, rng):
    """Ids (n, T), classes (n,), None and types of pairs: 1 if the second part continues the first."""
    ids, types, classes = [], [], rng.integers(0, 2, n)
    for is_true in classes:
        words, others = (lines[i].split() for i in rng.choice(len(lines), 2, replace=False))
        first, second = (rng.integers(2, len(x) - 1) for x in (words, others))
        parts = words[:first], words[first:] if is_true else others[second:]
        first, second = (list(encode(" ".join(part))) for part in parts)
        ids.append(first + second[1:])  # which begins with a token of its own
        types.append([0] * len(first) + [1] * (len(second) - 1))
    ids = pack(ids, 0)
    return ids, classes, ids != 0, pack(types, 0)


def trainer_of(way, model, params, sizes, seed):
    """The trainer of one of the three ways."""
    params, *_ = tree.merged(params, model.init(seed))
    optimizer = Adam(warmup_cosine(RATES[way], max(1, sizes["steps"] // 10), sizes["steps"]))
    if way == "adapters":
        adapted = LowRank(model, params, sizes["rank"], 2.0 * sizes["rank"], whole=("output",))
        return Trainer(adapted, optimizer, seed=seed, clip_norm=1.0)
    frozen = [name for name in params if name != "output"] if way == "head" else []
    return Trainer(model, optimizer, params=params, frozen=frozen, seed=seed, clip_norm=1.0)


def measured(trainer, batches, tests):
    """Train, and return the percentage of held-out pairs that are told right, with the seconds of the steps."""
    history = trainer.fit(batches, progress=False)
    merged = isinstance(trainer.model, LowRank)
    model = trainer.model.model if merged else trainer.model
    params = trainer.model.merged(trainer.params) if merged else trainer.params
    right = [model.outputs(params, ids, *others).argmax(-1) == classes for ids, classes, *others in tests]
    n_trained = sum(each.place.stop - each.place.start for each in trainer.flat_optimizer.pieces if not each.frozen)
    return {
        "right": round(100 * float(np.mean(right)), 2),
        "seconds": sum(info.seconds for info in history),
        "n_trained": n_trained,
    }


def parse_arguments(argv):
    parser = new_parser(__doc__)
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="a BERT, as npformer.pretrained.load reads it")
    parser.add_argument("--data", type=Path, default=Path("data/multi30k"), metavar="DIR", help="folder of Multi30k")
    parser.add_argument("--quick", action="store_true", help="a tiny random model, for seconds")
    meanings = {"steps": "steps of each training", "seeds": "trainings of each way", "rank": "rank of the adapters"}
    add_sizes(parser, FULL, QUICK, **meanings)
    add_json(parser)
    options = parser.parse_args(argv)
    if not (options.quick or options.model):
        parser.error("--model is missing: expected a folder, or --quick")
    return options


if __name__ == "__main__":
    sys.exit(main())
