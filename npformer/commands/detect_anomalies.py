"""Detect sequences that break a pattern, with an auto-encoder that was trained on sequences that follow it.

npformer detect-anomalies
npformer detect-anomalies --quick --json anomalies.json

A sequence that follows the pattern repeats a motif of 2 to 4 symbols, "abcabcabcab". Its score is the error with which
the auto-encoder reconstructs it: docs/before/autoencoder.md.
"""

import time

import numpy as np

from npformer.commands.arguments import add_backend, natural, new_parser, positive
from npformer.commands.command import command
from npformer.commands.compile import compile_ahead
from npformer.commands.output import add_json, add_pictures, will_draw, write_json
from npformer.commands.training import add_quiet, saying_where_it_stopped

from npformer.data.copy_task import BOS, EOS, FIRST_SYMBOL, PAD, exact_match, is_held_out
from npformer.data.parallel_text import pack
from npformer.models import SequenceAutoencoder
from npformer.training import Adam, Trainer, warmup_cosine

N_SYMBOLS = 12
MOTIF_LENGTHS, LENGTHS = (2, 4), (12, 20)
N_TESTED = 1000
QUICK = {"steps": 600, "d_model": 64}
FULL = {"steps": 3000, "d_model": 128}


@command
def main(argv=None):
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="a smaller model and fewer steps: a few seconds")
    numbers = f"(default: {FULL['steps']}, with --quick {QUICK['steps']})"
    add("--steps", type=positive, metavar="N", help=f"training steps {numbers}")
    add("--seed", type=natural, default=0, help="seed of parameters and data (default: 0)")
    add_backend(parser)
    add_pictures(parser, default="runs/anomalies")
    add_json(parser)
    add_quiet(parser)
    options = parser.parse_args(argv)
    options.draws = will_draw(parser, options, "runs/anomalies")
    start, size = time.perf_counter(), QUICK if options.quick else FULL
    steps = options.steps or size["steps"]
    model = SequenceAutoencoder(FIRST_SYMBOL + N_SYMBOLS, d_model=size["d_model"], code_size=16, pad_id=PAD)
    optimizer = Adam(warmup_cosine(5e-3, warmup=steps // 12, total=steps))
    trainer = Trainer(model, optimizer, seed=options.seed, clip_norm=1.0, backend=options.backend)
    compile_ahead(trainer, progress=not options.quiet)
    with saying_where_it_stopped(trainer, steps):
        trainer.fit(training_batches(options.seed), steps, progress=not options.quiet)
    result = evaluate(model, trainer.params, options.seed)
    result |= {"steps": steps, "quick": options.quick, "seed": options.seed, "seconds": time.perf_counter() - start}
    write_json(options.json, result)
    if options.draws:
        draw(options.out, result["tests"])
    report(result)


def draw(folder, tests):
    """How the reconstruction errors of what follows the pattern and of each kind of anomaly are distributed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    ax = figure.subplots()
    values = [np.maximum(found["errors"], 1e-6) for found in tests.values()]  # on a logarithmic axis
    edges = np.geomspace(min(map(np.min, values)), max(map(np.max, values)), 60)
    for name, of_kind in zip(tests, values, strict=True):
        ax.hist(of_kind, edges, histtype="stepfilled", alpha=0.5, label=name)
    ax.set(xscale="log", xlabel="mean -log p a token (nats)", ylabel="sequences")
    ax.set_title("Reconstruction error of sequences that were never seen")
    ax.legend(fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "anomaly_scores.png")
    print(f"wrote {folder / 'anomaly_scores.png'}")


def training_batches(seed, size=64):
    """Batches without end of sequences that follow the pattern. One set of symbols in ten is left out."""
    rng = np.random.default_rng([seed, 0])
    while True:
        yield packed([repeated(rng, held_out=False) for _ in range(size)])


def repeated(rng, held_out):
    """A random motif, repeated up to a random length."""
    while True:
        motif = rng.integers(FIRST_SYMBOL, FIRST_SYMBOL + N_SYMBOLS, rng.integers(*MOTIF_LENGTHS, endpoint=True))
        symbols = np.unique(motif)  # the same for all rotations of the motif
        if len(symbols) > 1 and is_held_out(symbols) == held_out:
            return np.resize(motif, rng.integers(*LENGTHS, endpoint=True))


def with_wrong_symbols(rng, sequence, n):
    """The sequence with ``n`` of its symbols replaced by others."""
    broken = sequence.copy()
    for at in rng.choice(len(sequence), n, replace=False):
        others = np.setdiff1d(np.arange(FIRST_SYMBOL, FIRST_SYMBOL + N_SYMBOLS), sequence[at])
        broken[at] = rng.choice(others)
    return broken


def packed(sequences):
    """(src, tgt): the sequences, and the same with a begin and an end token around them."""
    return pack(sequences, PAD), pack(sequences, PAD, begin=BOS, end=EOS)


def evaluate(model, params, seed):
    """Scores of unseen sequences, and the ROC AUC for three kinds of anomalies."""
    rng = np.random.default_rng([seed, 1])
    changes = {
        "follows the pattern": lambda sequence: sequence,
        "one wrong symbol": lambda sequence: with_wrong_symbols(rng, sequence, 1),
        "two wrong symbols": lambda sequence: with_wrong_symbols(rng, sequence, 2),
        "the same symbols in any order": rng.permutation,
    }
    tests = {name: [change(repeated(rng, held_out=True)) for _ in range(N_TESTED)] for name, change in changes.items()}
    said_again, _ = exact_match(model, params, *packed(tests["follows the pattern"]))
    errors = {name: model.reconstruction_error(params, *packed(sequences)) for name, sequences in tests.items()}
    normal = errors["follows the pattern"]
    return {
        "said_again_exactly": said_again,
        "tests": {
            name: {"errors": values.tolist(), "auc": None if values is normal else roc_auc(normal, values)}
            for name, values in errors.items()
        },
    }


def roc_auc(normal, anomalies):
    """The probability that an anomaly's score is above a normal one's, half of the ties counted (Hanley 1982).

    Examples
    --------
    >>> roc_auc([1.0, 2.0], [2.0, 3.0])
    0.875
    """
    normal = np.sort(normal)
    below = np.searchsorted(normal, anomalies, side="left")
    not_above = np.searchsorted(normal, anomalies, side="right")
    return float((below + not_above).mean() / 2 / len(normal))


def report(result):
    size = "a small model, trained briefly: " if result["quick"] else ""
    print(
        f"{size}{result['steps']} steps, seed {result['seed']}, {result['seconds']:.0f} s; "
        f"{100 * result['said_again_exactly']:.1f} % of unseen sequences are reconstructed exactly\n"
    )
    print(f"{'':<30}median error (nats per token)   ROC AUC")
    for name, found in result["tests"].items():
        auc = "" if found["auc"] is None else f"{found['auc']:.4f}"
        print(f"{name:<32}{np.median(found['errors']):>27.4f}   {auc:>7}")
