"""Detect sequences that break a pattern, with an auto-encoder that was trained on sequences that
follow it.

npformer detect-anomalies
npformer detect-anomalies --quick --json anomalies.json

A sequence that follows the pattern repeats a motif of 2 to 4 symbols, "abcabcabcab". Its score is
the error with which the auto-encoder reconstructs it: docs/before/autoencoder.md.
"""

import time
from collections.abc import Callable

import numpy as np

from npformer.commands.shared import (
    Backend,
    JsonFile,
    Pictures,
    command_line,
    write_json,
)
from npformer.commands.shared.compiling import compile_ahead
from npformer.commands.shared.training import saying_where_it_stopped

from npformer.models import SequenceAutoencoder
from npformer.text.copy_task import BOS, EOS, FIRST_SYMBOL, PAD, exact_match, is_held_out
from npformer.text.in_batches import pack
from npformer.training import Adam, Trainer, warmup_cosine

N_SYMBOLS = 12
SYMBOLS = np.arange(FIRST_SYMBOL, FIRST_SYMBOL + N_SYMBOLS)
MOTIF_LENGTHS = 2, 4
LENGTHS = 12, 20
N_TESTED = 1000
QUICK = {"steps": 600, "d_model": 64}
FULL = {"steps": 3000, "d_model": 128}
NORMAL = "follows the pattern"


@command_line
def main(
    *,
    quick: bool = False,
    steps: int | None = None,
    seed: int = 0,
    backend: Backend = "auto",
    pictures: Pictures,
    json: JsonFile | None = None,
    quiet: bool = False,
):
    """Train and test.

    Parameters
    ----------
    quick
        a smaller model and fewer steps: a few seconds
    steps
        training steps (default: 3000, with --quick 600)
    seed
        seed of parameters and data
    out : DIR
        folder of the pictures (default: runs/anomalies)
    quiet
        no progress bar, nor a line each minute where it cannot be redrawn
    """
    start = time.perf_counter()
    folder = pictures.folder("runs/anomalies")
    size = QUICK if quick else FULL
    steps = steps or size["steps"]
    vocab = FIRST_SYMBOL + N_SYMBOLS
    model = SequenceAutoencoder(vocab, d_model=size["d_model"], code_size=16, pad_id=PAD)
    optimizer = Adam(warmup_cosine(5e-3, warmup=steps // 12, total=steps))
    trainer = Trainer(model, optimizer, seed=seed, clip_norm=1.0, backend=backend)
    compile_ahead(trainer, progress=not quiet)
    with saying_where_it_stopped(trainer, steps):
        trainer.fit(training_batches(seed), steps, progress=not quiet)
    result = evaluate(model, trainer.params, seed)
    seconds = time.perf_counter() - start
    result |= {"steps": steps, "quick": quick, "seed": seed, "seconds": seconds}
    write_json(json, result)
    if folder:
        draw(folder, result["tests"])
    report(result)


def draw(folder, tests):
    """How the reconstruction errors of what follows the pattern and of each kind of anomaly are
    distributed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    ax = figure.subplots()
    # On a logarithmic axis, which has no 0.
    errors = {name: np.maximum(test["errors"], 1e-6) for name, test in tests.items()}
    smallest = min(map(np.min, errors.values()))
    largest = max(map(np.max, errors.values()))
    edges = list(np.geomspace(smallest, largest, 60))
    for name, values in errors.items():
        ax.hist(values, edges, histtype="stepfilled", alpha=0.5, label=name)
    ax.set(xscale="log", xlabel="mean -log p a token (nats)", ylabel="sequences")
    ax.set_title("Reconstruction error of sequences that were never seen")
    ax.legend(fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "anomaly_scores.png"
    figure.savefig(path)
    print(f"wrote {path}")


def training_batches(seed, size=64):
    """Batches without end of sequences that follow the pattern. One set of symbols in ten is left
    out.
    """
    rng = np.random.default_rng([seed, 0])
    while True:
        yield packed([repeated(rng, held_out=False) for _ in range(size)])


def repeated(rng, held_out):
    """A random motif, repeated up to a random length."""
    while True:
        length = rng.integers(*MOTIF_LENGTHS, endpoint=True)
        motif = rng.integers(FIRST_SYMBOL, FIRST_SYMBOL + N_SYMBOLS, length)
        symbols = np.unique(motif)  # the same for all rotations of the motif
        if len(symbols) > 1 and is_held_out(symbols) == held_out:
            return np.resize(motif, rng.integers(*LENGTHS, endpoint=True))


def with_wrong_symbols(rng, sequence, n):
    """The sequence with ``n`` of its symbols replaced by others."""
    broken = sequence.copy()
    for at in rng.choice(len(sequence), n, replace=False):
        broken[at] = rng.choice(np.setdiff1d(SYMBOLS, sequence[at]))
    return broken


def packed(sequences):
    """(src, tgt): the sequences, and the same with a begin and an end token around them."""
    return pack(sequences, PAD), pack(sequences, PAD, begin=BOS, end=EOS)


def evaluate(model, params, seed):
    """Scores of unseen sequences, and the ROC AUC for three kinds of anomalies."""
    rng = np.random.default_rng([seed, 1])
    src, tgt = packed([repeated(rng, held_out=True) for _ in range(N_TESTED)])
    exact, _ = exact_match(model, params, src, tgt)
    normal = model.reconstruction_error(params, src, tgt)
    tests = {NORMAL: {"errors": normal.tolist(), "auc": None}}
    anomalies: dict[str, Callable] = {
        "one wrong symbol": lambda sequence: with_wrong_symbols(rng, sequence, 1),
        "two wrong symbols": lambda sequence: with_wrong_symbols(rng, sequence, 2),
        "the same symbols in any order": rng.permutation,
    }
    for name, change in anomalies.items():
        sequences = [change(repeated(rng, held_out=True)) for _ in range(N_TESTED)]
        errors = model.reconstruction_error(params, *packed(sequences))
        tests[name] = {"errors": errors.tolist(), "auc": roc_auc(normal, errors)}
    return {"said_again_exactly": exact, "tests": tests}


def roc_auc(normal, anomalies):
    """The probability that an anomaly's score is above a normal one's, half of the ties counted
    (Hanley 1982).

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
        f"{100 * result['said_again_exactly']:.1f} % of unseen sequences are reconstructed exactly"
        f"\n\n{'':<30}median error (nats per token)   ROC AUC"
    )
    for name, test in result["tests"].items():
        auc = "" if test["auc"] is None else f"{test['auc']:.4f}"
        print(f"{name:<32}{np.median(test['errors']):>27.4f}   {auc:>7}")
