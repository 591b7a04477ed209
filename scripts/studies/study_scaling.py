"""Why attention divides by √K: scores, softmax and learning for queries and keys of different widths.

python scripts/studies/study_scaling.py --quick             # seconds
python scripts/studies/study_scaling.py --out docs/figures  # everything: some minutes on one core

It measures random queries and keys, the additive score with the entropy of another score, and how well each score
learns which of 16 words a query asks for: docs/before/scores.md.
"""

import itertools
import sys
import time

import numpy as np

from npformer.commands.arguments import natural, new_parser  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, add_pictures, will_draw, write_json
from scripts.bench.options import add_sizes, sizes_of

from npformer import Adam, reference as ops, tree

LABELS = {"dot": "dot product", "scaled_dot": "dot product / √K", "additive": "additive"}
N_QUERIES, N_KEYS = 64, 64
N_WORDS, N_SHOWN, N_ANSWERS, BATCH, N_EVALUATED = 64, 16, 8, 64, 2000
FULL = {"widths": [4, 16, 64, 256, 1024], "learning_widths": [4, 16, 64, 256], "steps": 300, "seeds": 5}
FULL["learning_rates"] = [0.003, 0.01, 0.03, 0.1]
QUICK = {"widths": [4, 64, 1024], "learning_widths": [4, 64], "steps": 200, "seeds": 3, "learning_rates": [0.01, 0.03]}


@command
def main(argv=None):
    parser = new_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer widths, seeds and steps: seconds")
    parser.add_argument("--seed", type=natural, default=0, help="the first seed (default: 0)")
    add_sizes(parser, FULL, QUICK, seeds="how many seeds", steps="steps of learning")
    add_pictures(parser, default="runs/scaling")
    add_json(parser)
    options = parser.parse_args(argv)
    options.draws = will_draw(parser, options, "runs/scaling")
    sizes = sizes_of(options, FULL, QUICK)
    seeds = range(options.seed, options.seed + sizes["seeds"])
    start = time.perf_counter()
    figures = {
        "sizes": sizes,
        "seeds": list(seeds),
        "random": study_random(sizes, seeds),
        "same_entropy": study_same_entropy(sizes, seeds),
        "learned": study_learning(sizes, seeds),
    }
    figures["seconds"] = time.perf_counter() - start
    write_json(options.json, figures)
    if options.draws:
        draw(options.out, figures)
    print(f"\n{figures['seconds']:.0f} seconds")


def random_params(score, width, rng):
    """The parameters of a score, divided by √width as in an initialisation, so that no sum grows with the width."""
    if score != "additive":
        return {}
    shapes = {"w_q": (width, width), "w_k": (width, width), "w_score": width}
    return {name: rng.standard_normal(shape) / width**0.5 for name, shape in shapes.items()}


def study_random(sizes, seeds):
    print(
        f"1. {N_QUERIES} random queries and {N_KEYS} keys, mean of {len(seeds)} seeds; norms of gradients for a query\n"
    )
    print("score        width   variance   entropy    gradient of scores      gradient of query")
    print("                                 (nats)       mean     median                   mean")
    form = "{:10.2f} {:9.2f} {:10.4f} {:10.2g} {:22.3f}"
    return over_widths(LABELS, sizes["widths"], seeds, random_scores, form)


def over_widths(scores, widths, seeds, measure, form):
    """A row of ``measure(score, width, rng)`` of all seeds for each score and width, printed with their means."""
    rows = []
    for score, width in itertools.product(scores, widths):
        of_seeds = [measure(score, width, np.random.default_rng(seed)) for seed in seeds]
        row = {name: [float(figures[name]) for figures in of_seeds] for name in of_seeds[0]}
        print(f"{score:<10} {width:7}", form.format(*map(np.mean, row.values())))
        rows.append({"score": score, "width": width, **row})
    return rows


def random_scores(score, width, rng):
    """Figures of the softmax of random scores, and of its backward pass for a random gradient of the weights."""
    q, k = rng.standard_normal((N_QUERIES, width)), rng.standard_normal((N_KEYS, width))
    dweights = rng.standard_normal((N_QUERIES, N_KEYS))
    params = random_params(score, width, rng).values()
    scores = getattr(ops, f"{score}_score")(q, k, *params)
    entropy, dscores = soften(scores, dweights)
    dq, *_ = getattr(ops, f"{score}_score_backward")(dscores, q, k, *params)
    norms = np.linalg.norm(dscores, axis=-1)
    return {
        "variance": scores.var(),
        "entropy": entropy,
        "gradient_mean": norms.mean(),
        "gradient_median": np.median(norms),
        "query_gradient_mean": np.linalg.norm(dq, axis=-1).mean(),
    }


def soften(scores, dweights):
    """The mean entropy of the weights, and the gradient of the scores."""
    weights = ops.softmax(scores)
    entropy = -(weights * ops.log_softmax(scores)).sum(axis=-1).mean()
    return entropy, ops.softmax_backward(dweights, weights)


def study_same_entropy(sizes, seeds):
    print("\n2. the additive score, times a factor that gives its weights the entropy of another score\n")
    print("entropy of   width   factor   gradient of scores, mean: additive   the other")
    form = "{:8.1f} {:34.4f} {:11.4f}"
    return over_widths(("dot", "scaled_dot"), sizes["widths"], seeds, additive_with_the_entropy_of, form)


def additive_with_the_entropy_of(score, width, rng):
    q, k = rng.standard_normal((N_QUERIES, width)), rng.standard_normal((N_KEYS, width))
    dweights = rng.standard_normal((N_QUERIES, N_KEYS))
    entropy, dscores = soften(getattr(ops, f"{score}_score")(q, k), dweights)
    additive = ops.additive_score(q, k, *random_params("additive", width, rng).values())
    low, high = 1e-3, 1e6
    while high > 1.0001 * low:  # entropy falls as the factor rises
        factor = (low * high) ** 0.5
        if soften(factor * additive, dweights)[0] > entropy:
            low = factor
        else:
            high = factor
    _, of_additive = soften(factor * additive, dweights)
    return {
        "factor": factor,
        "additive": np.linalg.norm(of_additive, axis=-1).mean(),
        "other": np.linalg.norm(dscores, axis=-1).mean(),
    }


def study_learning(sizes, seeds):
    print(f"\n3. right word found after {sizes['steps']} steps of Adam; chance: {1 / N_SHOWN:.3f}\n")
    print("score        width   best learning rate   share found: mean   lowest   highest seed")
    rows = []
    for score, width in itertools.product(LABELS, sizes["learning_widths"]):
        found_at = {
            lr: [learn(score, width, lr, sizes["steps"], seed) for seed in seeds] for lr in sizes["learning_rates"]
        }
        lr, found = max(found_at.items(), key=lambda item: np.mean(item[1]))  # so that each score is at its best
        print(f"{score:<10} {width:7} {lr:20} {np.mean(found):19.3f} {min(found):8.3f} {max(found):14.3f}")
        rows.append({"score": score, "width": width, "lr": lr, "found": found})
    return rows


def learn(score, width, lr, steps, seed):
    """Train on a new random batch in each step. Returns the share of new queries that give the right key most weight.

    Each example shows 16 of 64 words, each with one of 8 answers. The query is the translation of one of these words
    into another language; the model has to predict the answer of this word. Each language has its own embeddings, with
    components of variance 1.
    """
    rng = np.random.default_rng(seed)
    translation = rng.permutation(N_WORDS)
    flat, params = tree.flatten(new_params(score, width, rng))
    optimizer = Adam(lr)
    state = optimizer.init(flat)
    for step in range(1, steps + 1):
        grads, _ = gradients(params, score, new_batch(rng, translation, BATCH))
        optimizer.update(ops, flat, tree.flatten(grads)[0], state, step)
    batch = new_batch(rng, translation, N_EVALUATED)
    _, weights = gradients(params, score, batch)
    return float((weights[:, 0].argmax(axis=-1) == batch["at"]).mean())


def new_params(score, width, rng):
    params = {
        "queries": rng.standard_normal((N_WORDS, width)),
        "keys": rng.standard_normal((N_WORDS, width)),
        "readout": rng.standard_normal((N_ANSWERS, N_ANSWERS)) / N_ANSWERS**0.5,
        "score": random_params(score, width, rng),
    }
    return tree.map_leaves(lambda x: x.astype("float32"), params)


def new_batch(rng, translation, size):
    shown = rng.random((size, N_WORDS)).argsort(axis=1)[:, :N_SHOWN]
    answers, at = rng.integers(0, N_ANSWERS, (size, N_SHOWN)), rng.integers(0, N_SHOWN, size)
    row = np.arange(size)
    asked, target = translation[shown[row, at]], answers[row, at]
    return {"asked": asked, "shown": shown, "answers": answers, "target": target, "at": at}


def gradients(params, score, batch):
    """Attention from one query to 16 keys, a linear map and a softmax over the answers: forward and backward pass."""
    score_params = tuple(params["score"].values())
    q = ops.embedding(batch["asked"], params["queries"])[:, None]
    k = ops.embedding(batch["shown"], params["keys"])
    v = np.eye(N_ANSWERS, dtype="float32")[batch["answers"]]
    out, weights = ops.score_attention(q, k, v, score, score_params)
    _, dlogits = ops.linear_cross_entropy(out[:, 0], params["readout"], None, batch["target"])

    dout, dreadout, _ = ops.linear_backward(dlogits, out[:, 0], params["readout"])
    dq, dk, _, *dscore_params = ops.score_attention_backward(dout[:, None], q, k, v, weights, score, score_params)
    grads = {
        "queries": ops.embedding_backward(dq[:, 0], batch["asked"], params["queries"].shape),
        "keys": ops.embedding_backward(dk, batch["shown"], params["keys"].shape),
        "readout": dreadout,
        "score": dict(zip(params["score"], dscore_params, strict=True)),
    }
    return grads, weights


def draw(folder, figures):
    from npformer.plots import plot_curves

    def panel(rows, name, **settings):
        systems = {label: [row for row in rows if row["score"] == score] for score, label in LABELS.items()}
        widths = [row["width"] for row in systems["additive"]]
        values = {label: np.transpose([row[name] for row in own]) for label, own in systems.items()}
        drawn = {"at": widths, "systems": values, "middle": np.mean, "xlabel": "width K of queries and keys"}
        return drawn | {"xscale": "log"} | settings

    random, log, steps = figures["random"], {"yscale": "log"}, figures["sizes"]["steps"]
    weights, learned = f"Their weights over {N_KEYS} keys", f"After {steps} steps of learning"
    panels = [
        panel(random, "variance", title="Scores of random queries and keys", ylabel="variance", **log),
        panel(random, "entropy", title=weights, ylabel=f"entropy (nats); log {N_KEYS}: equal weights"),
        panel(random, "gradient_median", title="Gradient back through softmax", ylabel="norm, median query", **log),
        panel(figures["learned"], "found", title=learned, ylabel="share of queries that find their key"),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    plot_curves(panels, path := folder / "attention_scores.png")
    print(f"picture: {path}")


if __name__ == "__main__":
    sys.exit(main())
