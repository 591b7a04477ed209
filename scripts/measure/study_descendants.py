"""Train the same language model with each change that became usual after 2017, and measure what it brings.

python scripts/measure/study_descendants.py --text train.en.gz --held-out val.en.gz --json descendants.json
python scripts/measure/study_descendants.py --quick                       # seconds, on the text of this file

A decoder of 2017 (normalisation after each sum, ReLU, sines and cosines, biases, an output layer of its own) is trained
on the text, then with one change at a time, then with all of them; each with several seeds. The numbers are bits per
character of the held-out text: docs/descendants/.
"""

import statistics
import sys
import time
from pathlib import Path

from npformer.commands.arguments import new_parser  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, write_json
from scripts.bench.options import add_sizes, add_some, sizes_of

from npformer import Adam, LanguageModel, Trainer, tree, warmup_cosine
from npformer.data.lines import read_both
from npformer.language import Characters, Text
from npformer.models.batch import mean_loss

FULL = {"steps": 400, "seeds": 3, "width": 128, "layers": 4, "length": 128, "batch": 32}
QUICK = {"steps": 5, "seeds": 1, "width": 16, "layers": 1, "length": 32, "batch": 4}
OF_2017 = {
    "norm": "post",
    "norm_type": "layer_norm",
    "activation": "relu",
    "positions": "sinusoidal",
    "tie_embeddings": False,
    "bias": True,
}
CHANGES = {  # what each changes in the model of 2017
    "2017": {},
    "pre-norm": {"norm": "pre"},
    "rotary": {"positions": "rotary"},
    "learned positions": {"positions": "learned"},
    "RMSNorm": {"norm_type": "rms_norm"},
    "GELU": {"activation": "gelu"},
    "SwiGLU": {"activation": "swiglu"},  # with a hidden layer of 2/3 of the width, as each unit has a gate
    "grouped heads": {"n_kv_heads": 1},
    "no biases": {"bias": False},
    "tied output": {"tie_embeddings": True},
}
TODAY = ("pre-norm", "rotary", "RMSNorm", "SwiGLU", "no biases", "tied output")
LR, WARMUP = 3e-3, 4  # a quarter of the steps, which normalisation after the sums needs


@command
def main(argv=None):
    options = parse_arguments(argv)
    sizes = sizes_of(options, FULL, QUICK)
    training, held_out = read_both(options.text, options.held_out)
    text = Text(training, held_out, Characters(training + held_out), sizes["length"])
    changes = {name: CHANGES[name] for name in options.changes or CHANGES}
    if options.changes is None:
        changes["all of today's"] = {key: value for name in TODAY for key, value in CHANGES[name].items()}
    figures = []
    print(f"{'':<20}{'parameters':>12}{'bits per character':>20}{'(of each seed)':>24}{'ms a step':>11}")
    for name, change in changes.items():
        found = [measured(text, {**OF_2017, **change}, sizes, seed) for seed in range(sizes["seeds"])]
        bits, ms = [each["bits"] for each in found], statistics.median(each["ms"] for each in found)
        figures.append({"name": name, "bits": bits, "ms": round(ms, 1), "n_parameters": found[0]["n_parameters"]})
        of_seeds = " ".join(f"{x:.3f}" for x in bits)
        mean = statistics.mean(bits)
        print(f"{name:<20}{found[0]['n_parameters']:>12,}{mean:>20.3f}{of_seeds:>24}{ms:>11.1f}", flush=True)
        write_json(options.json, {"sizes": sizes, "lr": LR, "changes": figures})


def measured(text, change, sizes, seed):
    """Train one model, and return its bits per character and the median time of a step."""
    D = sizes["width"]
    d_ff = 4 * D if change["activation"] != "swiglu" else 4 * (2 * D // 3)
    shape = {"d_model": D, "n_heads": 4, "n_layers": sizes["layers"], "d_ff": d_ff, "max_len": sizes["length"]}
    model = LanguageModel(len(text.tokens), **shape, **change)
    steps, times = sizes["steps"], []
    optimizer = Adam(warmup_cosine(LR, max(1, steps // WARMUP), steps), betas=(0.9, 0.95))
    trainer = Trainer(model, optimizer, seed=seed, clip_norm=1.0)
    for step in range(steps):
        batch = text.batch(seed, step, sizes["batch"])
        began = time.perf_counter()
        trainer.step(*batch)
        times.append(1000 * (time.perf_counter() - began))
    loss = mean_loss(trainer, trainer.params, text.held_out_batches(sizes["batch"]))
    n_parameters = tree.count(trainer.params)
    return {
        "bits": round(text.bits_per_character(loss), 4),
        "ms": statistics.median(times),
        "n_parameters": n_parameters,
    }


def parse_arguments(argv):
    parser = new_parser(__doc__)
    parser.add_argument("--text", type=Path, default=Path(__file__), metavar="FILE", help="(default: this file)")
    parser.add_argument("--held-out", type=Path, metavar="FILE", help="(default: the last tenth of the text)")
    parser.add_argument("--quick", action="store_true", help="a tiny model, for seconds")
    add_some(parser, "--changes", CHANGES, help="only these (default: all, and all of today's together)")
    meanings = {"steps": "steps of each training", "seeds": "trainings of each model", "width": "width D"}
    add_sizes(parser, FULL, QUICK, **meanings)
    add_json(parser)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
