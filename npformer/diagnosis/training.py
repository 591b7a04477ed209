"""The update: can one batch be learned, and are the rate and the settings of a trainer such that it will be."""

import numpy as np

from npformer import tree
from npformer.arrays import beside, on_host
from npformer.diagnosis.given import LARGEST
from npformer.diagnosis.losses import norm, size

WORK = 3e10  # additions and multiplications, about, for learning one batch by heart
SAMPLED = [1, 2, 5, *(m * 10**e for e in range(1, 6) for m in (1, 2, 5))]  # steps at which a schedule is asked


def one_batch(case):
    """Whether a few rows can be learned by heart, with Adam and without dropout."""
    n = int(np.clip(WORK / (6 * tree.count(case.params) * sum(x.size for x in case.inputs)), 4, 40))
    if V := case.n_answers:
        known = 0.4 * np.log(V)  # at which nothing is left to learn
    else:
        known = 0.05 * np.nanvar(case.targets) if case.targets.dtype.kind == "f" else 0
    enough = max((0.97 if n < 15 else 0.85) * case.loss, known)
    usual = float(np.median([size(x) for _, x in tree.leaves(case.params) if x.ndim > 1] or [1.0]))
    for lr in (0.02 * usual, 0.2 * usual):  # one layer of small numbers has far to go
        flat, params = tree.flatten(case.params)
        m, v, grads = np.zeros_like(flat), np.zeros_like(flat), case.grads
        for step in range(1, n):
            case.ops.adam_update(flat, beside(tree.flatten(grads)[0], flat), m, v, lr=lr, step=step, beta2=0.98)
            last, grads, _ = case.gradient(params=params)
        if last < enough:
            return
    yield "one batch is not learned", f"in {n} steps on a few rows, the loss goes from {case.loss:.3g} to {last:.3g}"


def schedule(optimizer, n_steps, n_made):
    """Whether a schedule lasts as long as the training, of ``n_steps`` if known, and no longer."""
    steps = np.unique(np.linspace(1, n_steps or max(150, n_made), 300).astype(int))  # a short training may end later
    spent = np.cumsum([optimizer.learning_rate(int(step)) for step in steps])
    highest = max(map(optimizer.learning_rate, SAMPLED))
    n, end, most = steps[-1], steps[np.searchsorted(spent, 0.99 * spent[-1])], np.diff(spent, prepend=0).max()
    if end < n / 2 or (n > 9 and spent[-1] == spent[-3]):
        seen = f"of all rates up to step {n}, 99% are spent by step {end}"
        yield "rate too small", f"{seen}, as if `total`, or a decay, were in epochs"
    elif n_steps and n > 99 and most < highest / 4:  # fewer are a trial
        seen = f"up to step {n}, the last, no rate is above {most:.2g}, and it rises to {highest:.2g} later"
        yield "rate too small", f"{seen}, as if `warmup` were longer than the training"


def settings(case):
    """The learning rate and the settings of the training."""
    if case.trainer is None:
        raise ValueError("call trainer.diagnose(*batch), which knows them")
    optimizer, training, own = case.trainer.optimizer, case.trainer.settings, dict(tree.leaves(case.trainer.params))
    if differ := [path for path, x in tree.leaves(case.given) if not np.array_equal(on_host(x), on_host(own[path]))]:
        yield "stale parameters", f"{len(differ)} arrays differ from the trainer's, such as {differ[0]}"
    rates = [optimizer.learning_rate(step) for step in SAMPLED]
    some = lambda x: np.atleast_1d(x)[..., :: max(1, x.size // LARGEST)]  # columns
    few, grads = (tree.map_leaves(some, x) for x in (case.params, case.grads))
    flat = tree.flatten(few)[0]
    gradient, after = beside(tree.flatten(grads)[0], flat), flat.copy()
    optimizer.update(case.ops, after, gradient.copy(), optimizer.init(flat), 1, lr=max(rates), decay=False)
    parts = [tree.leaves(tree.view_as(x, few)) for x in (flat, after - flat, gradient)]
    known = [(x, d) for (_, x), (_, d), (_, g) in zip(*parts, strict=True) if x.ndim > 1 and x.any() and g.any()]
    ratio = float(np.median([size(d) / size(x) for x, d in known] or [0.01]))
    seen = f"with the largest rate, {max(rates):.3g}, a first step changes weights by {ratio:.2g} times their size"
    wanted = 0.01 * max(rates) / max(ratio, 1e-30)
    more = f"a rate of {wanted:.1g} would change them by a hundredth" if wanted < 100 else "the gradient is almost 0"
    seen += f"; {more}"
    if ratio > (0.2 if rates[0] < max(rates) / 3 else 0.1):  # after a warm-up, steps may be larger
        yield "rate too large", seen
    elif ratio * max(rates[:10]) < (1e-4 if case.is_new else 1e-6) * max(rates):
        yield "rate too small", f"{seen}; up to step {SAMPLED[9]:,} no rate is above {max(rates[:10]):.3g}"
    elif max(rates[:4]) == 0:
        yield "rate too small", f"the rate is 0 up to step {SAMPLED[3]}"
    else:
        yield from schedule(optimizer, case.n_steps, case.trainer.n_steps)
    if training.frozen and case.is_new and case.trainer.n_steps == 0:
        yield "frozen", f"{', '.join(training.frozen)} as they were drawn"
    beta1, beta2 = getattr(optimizer, "betas", (getattr(optimizer, "momentum", 0), 1))
    usual = float(np.median(np.abs(gradient[:: 1 + gradient.size // LARGEST])))
    length = norm(case.grads)
    is_unusual = {
        "betas": beta1 > min(beta2, 0.98),
        "weight_decay": optimizer.weight_decay > 2,
        "eps": getattr(optimizer, "eps", 0) > 3 * usual > 0,
        "label_smoothing": training.label_smoothing > 0.4,
        "clip_norm": (training.clip_norm or np.inf) < 0.01 * length,
    }
    for name in filter(is_unusual.get, is_unusual):
        value = getattr(optimizer, name, getattr(training, name, beta1))  # which SGD calls momentum
        yield "unusual setting", f"{name}={value}; the gradient has the norm {length:.2g}, and entries near {usual:.1g}"
