"""Train the same language model with each change that became usual after 2017, and measure what it
brings.

python scripts/measure/study_descendants.py --text train.en.gz --held-out val.en.gz
python scripts/measure/study_descendants.py --quick   # seconds, on the text of this file

A decoder of 2017 (normalisation after each sum, ReLU, sines and cosines, biases, an output layer of
its own) is trained on the text, then with one change at a time, then with all of them; each with
several seeds. The numbers are bits per character of the held-out text: docs/descendants/. A change
of your own is one more row of CHANGES.
"""

import statistics
import sys
import time
from pathlib import Path

from npformer.commands.arguments import new_parser, positive  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, write_json
from scripts.bench.options import add_some
from scripts.bench.report import print_table

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
    "SwiGLU": {"activation": "swiglu"},
    "grouped heads": {"n_kv_heads": 1},
    "no biases": {"bias": False},
    "tied output": {"tie_embeddings": True},
}
TODAY = ("pre-norm", "rotary", "RMSNorm", "SwiGLU", "no biases", "tied output")
LR = 3e-3
WARMUP = 1 / 4  # of the steps, which normalisation after the sums needs


@command
def main(argv=None):
    options = parse_arguments(argv)
    sizes = QUICK if options.quick else FULL
    sizes = sizes | {name: n for name in ("steps", "seeds", "width") if (n := vars(options)[name])}
    training, held_out = read_both(options.text, options.held_out)
    text = Text(training, held_out, Characters(training + held_out), sizes["length"])
    figures = []
    for name, change in changes_of(options.changes).items():
        trainings = [trained(text, OF_2017 | change, sizes, seed) for seed in range(sizes["seeds"])]
        bits = [each["bits"] for each in trainings]
        ms = statistics.median(each["ms"] for each in trainings)
        n_parameters = trainings[0]["n_parameters"]
        figures.append({"name": name, "bits": bits, "ms": ms, "n_parameters": n_parameters})
        print(f"{name}: {statistics.mean(bits):.3f} bits per character", flush=True)
        write_json(options.json, {"sizes": sizes, "lr": LR, "changes": figures})
    rows = []
    for of in figures:
        bits = " ".join(f"{x:.3f}" for x in of["bits"])
        mean = f"{statistics.mean(of['bits']):.3f}"
        rows.append([of["name"], f"{of['n_parameters']:,}", mean, bits, f"{of['ms']:.1f}"])
    print_table(["", "parameters", "bits per character", "of each seed", "ms a step"], rows)


def changes_of(names):
    """What the chosen rows change in the model of 2017; by default each, and all of today's."""
    if names:
        return {name: CHANGES[name] for name in names}
    together = {}
    for name in TODAY:
        together |= CHANGES[name]
    return CHANGES | {"all of today's": together}


def trained(text, settings, sizes, seed):
    """Train one model, and return its bits per character and the median time of a step."""
    D, steps = sizes["width"], sizes["steps"]
    shape = {"d_model": D, "n_heads": 4, "n_layers": sizes["layers"], "max_len": sizes["length"]}
    # With gates, each hidden unit has half as many weights again.
    shape["d_ff"] = 4 * (2 * D // 3) if settings["activation"] == "swiglu" else 4 * D
    model = LanguageModel(len(text.tokens), **shape, **settings)
    rate = warmup_cosine(LR, max(1, int(WARMUP * steps)), steps)
    trainer = Trainer(model, Adam(rate, betas=(0.9, 0.95)), seed=seed, clip_norm=1.0)
    times = []
    for step in range(steps):
        batch = text.batch(seed, step, sizes["batch"])
        start = time.perf_counter()
        trainer.step(*batch)
        times.append(1000 * (time.perf_counter() - start))
    loss = mean_loss(trainer, trainer.params, text.held_out_batches(sizes["batch"]))
    return {
        "bits": round(text.bits_per_character(loss), 4),
        "ms": round(statistics.median(times), 1),
        "n_parameters": tree.count(trainer.params),
    }


def parse_arguments(argv):
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--text", type=Path, default=Path(__file__), metavar="FILE", help="(default: this file)")
    held_out = "(default: the last tenth of the text)"
    add("--held-out", type=Path, metavar="FILE", help=held_out)
    add("--quick", action="store_true", help="a tiny model, for seconds")
    changes = "only these (default: all, and all of today's together)"
    add_some(parser, "--changes", CHANGES, help=changes)
    add("--steps", type=positive, help="steps of each training (default: 400, with --quick 5)")
    add("--seeds", type=positive, help="trainings of each model (default: 3, with --quick 1)")
    add("--width", type=positive, help="width D (default: 128, with --quick 16)")
    add_json(parser)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
