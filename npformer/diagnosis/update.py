"""The update: can one batch be learned, and are the rate and the settings of a trainer such that it will be."""

from typing import NamedTuple

import numpy as np

from npformer import reference, tree
from npformer.arrays import beside, on_host
from npformer.diagnosis.losses import norm
from npformer.diagnosis.subject import size
from npformer.diagnosis.weights import LARGEST, usual_size

WORK = 3e10  # additions and multiplications, about, for learning one batch by heart
RATES = 0.02, 0.2, 0.002  # of steps, relative to the size of the weights: one layer of small numbers has far to go
N_STEPS = 150  # of a training that may end later
FEWEST = 30  # steps of a training: a schedule with a smaller ``total`` is taken for one of epochs
SAMPLED = [1, 2, 5, *(m * 10**e for e in range(1, 6) for m in (1, 2, 5))]  # steps at which a schedule is asked


def one_batch(case):
    """Whether a few rows can be learned by heart, with Adam and without dropout."""
    n_numbers = sum(x.size for x in case.inputs)
    n_steps = int(np.clip(WORK / (6 * tree.count(case.params) * n_numbers), 4, 40))
    enough = max((0.97 if n_steps < 15 else 0.85) * case.loss, loss_of_the_learned(case))
    usual = float(np.median([size(x) for x in case.params_by_path.values() if x.ndim > 1] or [1.0]))
    for rate in RATES:
        last = loss_after_steps(case, rate * usual, n_steps, enough)
        if last < enough:
            return
    seen = f"in {n_steps} steps on a few rows, the loss goes from {case.loss:.3g} to {last:.3g}"
    yield "one batch is not learned", seen


def loss_of_the_learned(case):
    """The loss at which nothing is left to learn."""
    if case.interface.n_answers:
        return 0.4 * np.log(case.interface.n_answers)
    return 0.05 * np.nanvar(case.targets) if case.targets.dtype.kind == "f" else 0


def loss_after_steps(case, lr, n_steps, enough):
    """The loss of the rows after some steps of Adam, or as soon as it is small enough."""
    flat, params = tree.flatten(case.params)
    m, v = np.zeros_like(flat), np.zeros_like(flat)
    grads = case.grads
    loss = case.loss
    for step in range(1, n_steps):
        gradient = beside(tree.flatten(grads)[0], flat)
        case.ops.adam_update(flat, gradient, m, v, lr=lr, step=step, beta2=0.98)
        loss, grads, _ = case.gradient(params=params)
        if loss < enough:
            break
    return loss


def settings(case):
    """The learning rate and the settings of the training."""
    if case.trainer is None:
        raise ValueError("call trainer.diagnose(*batch), which knows them")
    first = first_step(case)
    yield from stale(case)
    yield from direction(first)
    yield from rate(case, first)
    yield from frozen(case)
    yield from unusual(case, first)


class Move(NamedTuple):
    """What a first step does to an array, or to some of its columns."""

    path: str
    x: np.ndarray
    gradient: np.ndarray
    change: np.ndarray


def first_step(case):
    """A ``Move`` for each array, with the largest rate, without weight decay, and in float64, as it may be tiny."""
    optimizer = case.trainer.optimizer

    def some_columns(x):
        return np.atleast_1d(x)[..., :: max(1, x.size // LARGEST)].astype(np.float64)

    params = {path: some_columns(x) for path, x in case.params_by_path.items()}
    gradients = {path: some_columns(g) for path, g in case.grads.items()}
    before = tree.flatten(params)[0]
    after = before.copy()
    gradient = tree.flatten(gradients)[0]
    lr = max(rates_of(case))
    optimizer.update(reference.ops, after, gradient, optimizer.init(before), 1, lr=lr, decay=False)
    changes = tree.view_as(after - before, params)
    return [Move(path, x, gradients[path], changes[path]) for path, x in params.items()]


def rates_of(case):
    """The learning rates of some steps."""
    return [case.trainer.optimizer.learning_rate(step) for step in SAMPLED]


def stale(case):
    """Whether the parameters are those of the trainer."""
    own = dict(tree.leaves(case.trainer.params))
    leaves = tree.leaves(case.original_params)
    differ = [path for path, x in leaves if not np.array_equal(on_host(x), on_host(own[path]))]
    if differ:
        yield "stale parameters", f"{len(differ)} arrays differ from the trainer's, such as {differ[0]}"


def direction(first):
    """Whether the step goes against the gradient, in each array."""
    for path, _, gradient, change in first:
        if not gradient.any():
            continue
        if not change.any():
            yield "wrong update", f"{path} has a gradient, and a step does not change it"
            return
        if np.vdot(gradient, change) > 0:
            yield "wrong update", f"a step changes {path} along its gradient, so that the loss rises"
            return


def rate(case, first):
    """Whether the learning rate is too large or too small."""
    rates = rates_of(case)
    highest = max(rates)
    ratios = [relative_change(move) for move in first if move.x.ndim > 1 and move.gradient.any()]
    ratio = float(np.median(ratios or [0.01]))
    wanted = 0.01 * highest / max(ratio, 1e-30)
    seen = f"with the largest rate, {highest:.3g}, a first step changes weights by {ratio:.2g} times their size"
    if wanted < 100:
        seen += f"; a rate of {wanted:.1g} would change them by a hundredth"
    else:
        seen += "; the gradient is almost 0"
    has_warmup = rates[0] < highest / 3  # after which steps may be larger
    least = 1e-4 if case.is_new else 1e-6  # of what is trained already, small steps may be wanted
    if ratio > (0.2 if has_warmup else 0.1):
        yield "rate too large", seen
    elif ratio * max(rates[:10]) < least * highest:
        yield "rate too small", f"{seen}; up to step {SAMPLED[9]:,} no rate is above {max(rates[:10]):.3g}"
    elif max(rates[:4]) == 0:
        yield "rate too small", f"the rate is 0 up to step {SAMPLED[3]}"
    else:
        yield from schedule(case.trainer.optimizer, case.n_steps, case.trainer.n_steps)


def relative_change(move):
    """How much a step changes an array, relative to its size, or to the usual size if it is smaller."""
    return size(move.change) / max(size(move.x), usual_size(move.path, move.x.shape[-2:]))


def schedule(optimizer, n_steps, n_made):
    """Whether a schedule lasts as long as the training, of ``n_steps`` if known, and no longer."""
    n = n_steps or expected_steps(optimizer, n_made)
    steps = np.unique(np.linspace(1, n, 300).astype(int))
    rates = np.array([optimizer.learning_rate(int(step)) for step in steps])
    spent = np.cumsum(rates)
    highest = max(map(optimizer.learning_rate, SAMPLED))
    end = steps[np.searchsorted(spent, 0.99 * spent[-1])]
    if end < n / 2 or (n > 9 and spent[-1] == spent[-3]):
        seen = f"of all rates up to step {n}, 99% are spent by step {end}"
        yield "rate too small", f"{seen}, as if `total`, or a decay, were in epochs"
    elif n_steps and n > 99 and rates.max() < highest / 4:  # fewer are a trial
        seen = f"up to step {n}, the last, no rate is above {rates.max():.2g}, and it rises to {highest:.2g} later"
        yield "rate too small", f"{seen}, as if `warmup` were longer than the training"


def expected_steps(optimizer, n_made):
    """The steps of a training, if they are not known: those that its schedule is made for, until they are over."""
    total = getattr(optimizer.lr, "total", 0)
    return total if max(FEWEST, n_made) <= total else max(N_STEPS, n_made)


def frozen(case):
    """Whether what is frozen is as it was drawn."""
    if not case.trainer.settings.frozen:
        return
    drawn = case.trainer.model.init(case.trainer.settings.seed)
    drawn = {path: on_host(x) for path, x in tree.leaves(drawn)}
    names = [name for name in case.trainer.settings.frozen if is_as_drawn(case, name, drawn)]
    if names:
        yield "frozen", f"{', '.join(names)} as they were drawn"


def is_as_drawn(case, name, drawn):
    """Whether the arrays below a path are those of a new model."""
    arrays = {path: x for path, x in case.params_by_path.items() if f"{path}.".startswith(f"{name}.")}
    vectors = [x for x in arrays.values() if x.ndim == 1]
    if vectors:
        return all(np.isin(x, (0, 1)).all() for x in vectors)
    return all(np.array_equal(x, drawn[path]) for path, x in arrays.items())


def unusual(case, first):
    """Settings with which trainings hardly work."""
    optimizer = case.trainer.optimizer
    training = case.trainer.settings
    entries = np.abs(np.concatenate([move.gradient.ravel() for move in first]))
    usual = float(np.median(entries[:: 1 + entries.size // LARGEST]))
    length = norm(case.grads)
    beta1, beta2 = getattr(optimizer, "betas", (getattr(optimizer, "momentum", 0), 1))
    are_unusual = {
        "betas" if hasattr(optimizer, "betas") else "momentum": beta1 > min(beta2, 0.98),
        "weight_decay": optimizer.weight_decay > 2,
        "eps": getattr(optimizer, "eps", 0) > 3 * usual > 0,
        "label_smoothing": training.label_smoothing > 0.4,
        "clip_norm": (training.clip_norm or np.inf) < 0.01 * length,
    }
    for name, is_unusual in are_unusual.items():
        if is_unusual:
            value = getattr(optimizer, name, getattr(training, name, None))
            numbers = f"the gradient has the norm {length:.2g}, and entries near {usual:.1g}"
            yield "unusual setting", f"{name}={value}; {numbers}"
