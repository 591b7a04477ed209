"""Compare the Transformer with its predecessors: quality, path length and time against the length of the sequence.

python scripts/studies/study_length.py --quick               # a minute
python scripts/studies/study_length.py --out docs/figures    # copy and reverse, three seeds, and times
python scripts/studies/study_length.py --data data/multi30k  # the same, and English to French
python scripts/studies/study_length.py --data data/multi30k --only joined       # an hour
python scripts/studies/study_length.py --only reverse --longest 30 --beyond 10  # up to ten times the training length
python scripts/studies/study_length.py --only rates                              # half an hour

The five systems have about the same number of parameters: a recurrent encoder-decoder without attention, with "general"
and with additive attention, ByteNet, and the Transformer.

"copy" and "reverse" train on random symbols and test on sequences of each length that were not trained on. "wishes"
(what the Transformer's paper asks of a layer) has the path length between two words, and the time of an update. With
--data, "translation" has the BLEU of sentences of each length, and "joined" that of texts of 1 to N sentences:
docs/before/length.md. "rates" searches the learning rate of each system, with a seed that no other part uses.
"""

import argparse
import itertools
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from timeit import timeit

import numpy as np

from npformer.commands.arguments import natural, new_parser, positive  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, add_pictures, output_folder, will_draw, write_json
from scripts.bench.options import add_sizes, add_some, sizes_of
from scripts.studies.systems import SYSTEMS, count, of_size, trained
from scripts.studies.translations import check, study_joined, study_translation

from npformer import Adam, CopyTask, Trainer
from npformer.data.copy_task import exact_match

LEARNING_RATES = {**dict.fromkeys(SYSTEMS, 0.002), "recurrent": 0.01, "ByteNet": 0.01}  # found with --only rates
FULL = {
    "rates": LEARNING_RATES,
    "parameters": 150_000,
    "batch": 64,
    "longest": 20,
    "lengths": [4, 6, 8, 10, 12, 14, 16, 18, 20],
    "steps": 3000,
    "seeds": 3,
    "tested": 200,
    "timed": [16, 32, 64, 128, 256, 512],
}
QUICK = FULL | {"rates": dict.fromkeys(SYSTEMS, 0.01), "parameters": 40_000, "longest": 8, "lengths": [4, 6, 8]}
QUICK |= {"steps": 400, "seeds": 2, "tested": 50, "timed": [8, 32, 128]}
VOCAB = 11
FACTORS = (1.5, 2, 5, 10)  # times the longest of the training
TASKS = ("copy", "reverse")
ON_TEXT = {"translation": study_translation, "joined": study_joined}
PARTS = (*TASKS, "wishes", *ON_TEXT, "rates")
RATES = (0.001, 0.002, 0.005, 0.01, 0.02)  # of which the best is searched
SEED_OF_RATES = 100  # which no other part uses


@command
def main(argv=None):
    options = parse_arguments(argv)
    sizes = with_lengths(sizes_of(options, FULL, QUICK), options)
    systems = options.systems or list(SYSTEMS)
    start, figures = time.perf_counter(), {"sizes": sizes}
    for task in TASKS:
        if task in options.only:
            figures[task] = {}
            for system in systems:
                figures[task][system] = study_task(system, task, sizes, options)
                write_json(options.json, figures)  # so far, since the next part may take hours
            show(f"{task}: exact match, %, by length", figures[task], sizes["lengths"])
            show(f"{task}: symbols right, %, by length", figures[task], sizes["lengths"], "symbols")
    if "rates" in options.only:
        figures["rates"] = {}
        for system in systems:
            figures["rates"][system] = search_rates(system, sizes)
            write_json(options.json, figures)
    if "wishes" in options.only:
        figures["times"] = study_times(sizes)
        show("milliseconds per update, batch of 8, by length", figures["times"], sizes["timed"])
        figures["paths"] = {"lengths": sizes["timed"], **path_lengths(sizes["timed"])}
        write_json(options.json, figures)
    for part, study in ON_TEXT.items():
        if part in options.only:
            for found in study(options, sizes):
                figures[part] = found
                write_json(options.json, figures)  # so far, since the next model may take half an hour
    figures["seconds"] = time.perf_counter() - start
    write_json(options.json, figures)
    if options.draws:
        draw(options.out, figures, sizes)
    print(f"\n{figures['seconds']:.0f} seconds")


def with_lengths(sizes, options):
    """The sizes with the lengths that are tested, if --longest or --beyond change them."""
    lengths = sizes["lengths"]
    if options.longest:
        lengths = sorted({-(-options.longest * fifth // 5) for fifth in range(1, 6)})
    if options.beyond:
        lengths = lengths + [round(factor * sizes["longest"]) for factor in FACTORS if factor <= options.beyond]
    return sizes | {"lengths": lengths} | ({"beyond": options.beyond} if options.beyond else {})


def study_task(system, task_name, sizes, options):
    """The percentage of sequences and of symbols of each length that are right, for each seed: (seeds, lengths)."""
    model, found = model_of(system, sizes), []
    for seed in range(options.seed, options.seed + sizes["seeds"]):
        task = task_of(task_name, sizes["longest"], seed)
        found.append(right_by_length(model, task, sizes, sizes["rates"][system]))
        print(f"{system}, seed {seed}: {' '.join(f'{share:.0f}' for share in found[-1][0])}", flush=True)
    values, symbols = zip(*found, strict=True)
    return {"parameters": count(model), "width": model.d_model, "values": values, "symbols": symbols}


def search_rates(system, sizes):
    """For each learning rate, the percentage of reversed sequences that are right, the mean over the lengths."""
    model, task = model_of(system, sizes), task_of("reverse", sizes["longest"], SEED_OF_RATES)
    exact = {rate: float(np.mean(right_by_length(model, task, sizes, rate)[0])) for rate in RATES}
    print(f"{system}: " + ", ".join(f"{right:.1f} % at {rate}" for rate, right in exact.items()), flush=True)
    return exact


def task_of(name, longest, seed):
    return CopyTask(vocab=VOCAB, max_len=longest, reverse=name == "reverse", seed=seed)


def right_by_length(model, task, sizes, lr):
    """Train on a task. Returns the percentages of sequences and of symbols of each length that are right."""
    params = trained(model, task, sizes, lr)
    shares = [right_of_length(model, params, task, n, sizes["tested"]) for n in sizes["lengths"]]
    return (100 * np.transpose(shares)).tolist()


def model_of(system, sizes):
    return of_size(system, sizes["parameters"], src_vocab=VOCAB, tgt_vocab=VOCAB, dropout=0.0)


def right_of_length(model, params, task, length, size):
    """The shares of sequences, and of symbols, that are right, of sequences of one length that were not trained on."""
    src, tgt = replace(task, min_len=length, max_len=length).held_out(size)
    exact, decoded = exact_match(model, params, src, tgt)
    n = min(length, decoded.shape[1])
    return exact, float((decoded[:, :n] == tgt[:, 1 : n + 1]).sum() / (size * length))


def study_times(sizes, batch=8, rounds=5):
    """Milliseconds of a training step of each system at each length. The systems take turns."""
    rng, values = np.random.default_rng(0), np.zeros((len(SYSTEMS), rounds, len(sizes["timed"])))
    for at, length in enumerate(sizes["timed"]):
        src, tgt = (rng.integers(3, VOCAB, (batch, n)) for n in (length, length + 1))
        tgt[:, 0] = 1
        steps = [partial(Trainer(model_of(system, sizes), Adam(lr=0.001)).step, src, tgt) for system in SYSTEMS]
        for step in steps:
            step()  # compiles, and allocates
        for turn, (i, step) in itertools.product(range(rounds), enumerate(steps)):
            values[i, turn, at] = 1000 * timeit(step, number=1)
    return {system: {"values": of_system.tolist()} for system, of_system in zip(SYSTEMS, values, strict=True)}


def path_lengths(lengths):
    """The number of states or layers on the shortest path from a source word to the last target word, at most.

    Recurrent: the states of the encoder from the word to the nearer end, and all states of the decoder. With attention,
    and in the Transformer, the last step attends to the state of the word itself: 1. ByteNet: the fewest convolutions
    whose taps add up to the distance (residual connections are not counted); NaN if no path exists.
    """
    bytenet = SYSTEMS["ByteNet"](4, src_vocab=VOCAB, tgt_vocab=VOCAB)
    found = {system: [1 for _ in lengths] for system in SYSTEMS}
    found["recurrent"] = [n + (n + 1) // 2 for n in lengths]
    found["ByteNet"] = [float(np.max(fewest_convolutions(bytenet, n))) for n in lengths]
    return found


def fewest_convolutions(model, n):
    """The fewest convolutions of a ByteNet from a word to each of the steps 0 … n-1 after it; NaN if there are none."""
    encoder, decoder = model.kernel_sizes
    taps = [range(-(encoder // 2), encoder // 2 + 1)] * model.depths[0] + [range(decoder)] * model.depths[1]
    dilations = [model.dilation(block) for depth in model.depths for block in range(depth)]
    fewest = {0: 0}
    for dilation, of_block in zip(dilations, taps, strict=True):
        for (distance, n_before), tap in itertools.product(list(fewest.items()), of_block):
            there = distance + dilation * tap
            fewest[there] = min(n_before + 1, fewest.get(there, n_before + 1))
    return [fewest.get(distance, np.nan) for distance in range(n)]


def show(title, systems, lengths, name="values"):
    """Print a table: the median over seeds or rounds, and the smallest and the largest value."""
    print(f"\n{title}\n{'':<22}" + "".join(f"{n:>16}" for n in lengths))
    for system, found in systems.items():
        cells = [f"{np.median(v):.0f} ({min(v):.0f} … {max(v):.0f})" for v in np.transpose(found[name])]
        print(f"{system:<22}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def draw(folder, figures, sizes):
    """Draw a picture of the tasks, one of path length and time, and one of translation, as far as they were studied."""
    from npformer.plots import plot_curves

    values_of = lambda systems: {system: found["values"] for system, found in systems.items()}
    pictures, tasks = {}, [task for task in TASKS if task in figures]
    if tasks:
        quality = {"at": sizes["lengths"], "xlabel": "symbols of the sequence", "ylim": (-3, 103)}
        quality["ylabel"] = "all of it right, % of sequences"
        title = f"{{}}: {sizes['steps']} updates"
        panels = [{"title": title.format(task), "systems": values_of(figures[task]), **quality} for task in tasks]
        pictures["study_length.png"] = panels
    if "times" in figures:
        paths = {system: [values] for system, values in figures["paths"].items() if system != "lengths"}
        length = {"at": sizes["timed"], "xlabel": "words", "xscale": "log", "yscale": "log"}
        panels = [
            {"title": "From a source word to the last target word", "ylabel": "states or layers", "systems": paths},
            {"title": "A training step, 8 pairs", "ylabel": "milliseconds", "systems": values_of(figures["times"])},
        ]
        pictures["study_wishes.png"] = [panel | length for panel in panels]
    if "translation" in figures:
        found = figures["translation"]
        bleu = {"xlabel": "words of the source, mean of each class", "ylabel": "BLEU, lower-cased"}
        values = {system: np.array(all_of_them)[:, 1:] for system, all_of_them in values_of(found["systems"]).items()}
        panel = {"title": "English to French", "at": found["words"][1:], "systems": values, **bleu}
        pictures["study_translation.png"] = [panel]
    folder.mkdir(parents=True, exist_ok=True)
    for name, panels in pictures.items():
        plot_curves(panels, folder / name)
        print(f"wrote {folder / name}")


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--quick", action="store_true", help="small models, short sequences, few updates: about a minute")
    add("--data", metavar="DIR", help="folder of get_multi30k.py: also translate English to French (takes hours)")
    add_some(parser, "--only", PARTS, help=f"some of {','.join(PARTS)}; {' and '.join(ON_TEXT)} need --data")
    add("--seed", type=natural, default=0, help="the first seed (default: 0)")
    add_sizes(
        parser,
        FULL,
        QUICK,
        steps="updates on copy and reverse",
        seeds="number of seeds",
        parameters="number of parameters of each system on copy and reverse",
        batch="number of sequences of an update on copy and reverse",
        longest="symbols of the longest sequence of the training, of which a fifth to five fifths are tested",
    )
    add("--beyond", type=positive, metavar="N", help="also test sequences up to N times as long as the longest")
    add_some(parser, "--systems", SYSTEMS, help=f"some of {','.join(SYSTEMS)} (default: all)")
    add("--translation-steps", type=positive, default=2000, metavar="N", help="updates on Multi30k (default: 2000)")
    add("--join", type=positive, default=3, metavar="N", help="join up to N sentences of Multi30k (default: 3)")
    add("--joined-steps", type=positive, default=2500, metavar="N", help="updates on joined sentences (default: 2500)")
    add("--runs", type=Path, default=Path("runs/study"), metavar="DIR", help="its models' folder (default: runs/study)")
    add_pictures(parser, default="runs/study")
    add_json(parser)
    options = parser.parse_args(argv)
    if options.quick and options.data:
        parser.error("argument --quick: not with --data, which takes hours")
    options.only = options.only or [*TASKS, "wishes", *(ON_TEXT if options.data else ())]
    if any(part in options.only for part in ON_TEXT):
        if not options.data:
            parser.error("argument --only: translation and joined need --data, the folder of Multi30k")
        try:
            check(options.data)
            output_folder(options.runs)
        except (OSError, ImportError, argparse.ArgumentTypeError) as error:
            parser.error(str(error))
    options.draws = will_draw(parser, options, "runs/study")
    return options


if __name__ == "__main__":
    sys.exit(main())
