"""The update: can one batch be learned, and do the rate and the settings of a trainer allow it."""

from typing import NamedTuple

import numpy as np

from npformer import reference, tree
from npformer.arrays import beside
from npformer.diagnosis.finding import sign
from npformer.diagnosis.questions.losses import norm
from npformer.diagnosis.questions.scales import LARGEST, usual_size
from npformer.diagnosis.subject import arrays_by_path, rms
from npformer.errors import UserError

WORK = 3e10  # additions and multiplications, about, for learning one batch by heart
# Of steps, relative to the weights: a layer of small numbers has far to go.
RATES = 0.02, 0.2, 0.002
N_STEPS = 150  # of a training that may end later
FEWEST = 30  # steps of a training: a schedule with a smaller ``total`` is taken for one of epochs
SAMPLED = [m * 10**e for e in range(6) for m in (1, 2, 5)]  # steps at which a schedule is asked


# -- one batch


def one_batch(subject):
    """Whether a few rows can be learned by heart, with Adam and without dropout."""
    loss = subject.computed.loss
    n_numbers = sum(x.size for x in subject.inputs)
    n_steps = int(np.clip(WORK / (6 * tree.count(subject.params) * n_numbers), 4, 40))
    enough = max((0.97 if n_steps < 15 else 0.85) * loss, loss_of_the_learned(subject))
    sizes = [rms(x) for x in subject.params_by_path.values() if x.ndim > 1]
    usual = float(np.median(sizes or [1.0]))
    for rate in RATES:
        last = loss_after_steps(subject, rate * usual, n_steps, enough)
        if last < enough:
            return
    yield sign(
        "one batch is not learned",
        f"in {n_steps} steps on a few rows, the loss goes from {loss:.3g} to {last:.3g}",
    )


def loss_of_the_learned(subject):
    """The loss at which nothing is left to learn."""
    if subject.interface.n_answers:
        return 0.4 * np.log(subject.interface.n_answers)
    targets = subject.rows.targets
    return 0.05 * np.nanvar(targets) if targets.dtype.kind == "f" else 0


def loss_after_steps(subject, lr, n_steps, enough):
    """The loss of the rows after some steps of Adam, or as soon as it is small enough."""
    flat, params = tree.flatten(subject.params)
    m = np.zeros_like(flat)
    v = np.zeros_like(flat)
    computed = subject.computed
    for step in range(1, n_steps):
        gradient = beside(tree.flatten(computed.grads)[0], flat)
        subject.ops.adam_update(flat, gradient, m, v, lr=lr, step=step, beta2=0.98)
        computed = subject.gradient(params=params)
        if computed.loss < enough:
            break
    return computed.loss


# -- the trainer


def settings(subject):
    """The learning rate and the settings of the training."""
    if subject.trainer is None:
        raise UserError("call trainer.diagnose(*batch), which knows them")
    first = first_step(subject)
    yield from stale(subject)
    yield from direction(first)
    yield from rate(subject, first)
    yield from frozen(subject)
    yield from unusual(subject, first)


class Move(NamedTuple):
    """What a first step does to an array, or to some of its columns."""

    path: str
    x: np.ndarray
    gradient: np.ndarray
    change: np.ndarray


def first_step(subject):
    """A ``Move`` for each array, with the largest rate and without weight decay.

    It is made in float64, as it may be tiny.
    """
    optimizer = subject.trainer.optimizer
    params = {path: some_columns(x) for path, x in subject.params_by_path.items()}
    gradients = {path: some_columns(g) for path, g in subject.computed.grads.items()}
    before = tree.flatten(params)[0]
    after = before.copy()
    gradient = tree.flatten(gradients)[0]
    state = {name: np.zeros_like(before) for name in optimizer.moments}
    lr = max(rates_of(optimizer))
    optimizer.update(reference.ops, after, gradient, state, 1, lr=lr, decay=False)
    changes = tree.view_as(after - before, params)
    return [Move(path, x, gradients[path], changes[path]) for path, x in params.items()]


def some_columns(x):
    """Columns of an array: all, or of a large array some at equal distances."""
    return np.atleast_1d(x)[..., :: max(1, x.size // LARGEST)].astype(np.float64)


def rates_of(optimizer):
    """The learning rates of some steps."""
    return [optimizer.learning_rate(step) for step in SAMPLED]


def stale(subject):
    """Whether the parameters are those of the trainer."""
    current = arrays_by_path(subject.trainer.params)
    arrays = arrays_by_path(subject.original_params)
    paths = [path for path, x in arrays.items() if not np.array_equal(x, current[path])]
    if paths:
        yield sign(
            "stale parameters", f"{len(paths)} arrays differ from the trainer's, such as {paths[0]}"
        )


def direction(first):
    """Whether the step goes against the gradient, in each array."""
    for path, _, gradient, change in first:
        if not gradient.any():
            continue
        if not change.any():
            yield sign("wrong update", f"{path} has a gradient, and a step does not change it")
            return
        if np.vdot(gradient, change) > 0:
            yield sign(
                "wrong update", f"a step changes {path} along its gradient, so that the loss rises"
            )
            return


def rate(subject, first):
    """Whether the learning rate is too large or too small."""
    optimizer = subject.trainer.optimizer
    rates = rates_of(optimizer)
    highest = max(rates)
    early = max(rates[:10])
    ratios = [relative_change(move) for move in first if move.x.ndim > 1 and move.gradient.any()]
    ratio = float(np.median(ratios or [0.01]))
    message = (
        f"with the largest rate, {highest:.3g}, "
        f"a first step changes weights by {ratio:.2g} times their size; {better(highest, ratio)}"
    )
    has_warmup = rates[0] < highest / 3  # after which steps may be larger
    least = 1e-4 if subject.is_new else 1e-6  # small steps may be wanted after a training
    if ratio > (0.2 if has_warmup else 0.1):
        yield sign("rate too large", message)
    elif ratio * early < least * highest:
        message += f"; up to step {SAMPLED[9]:,} no rate is above {early:.3g}"
        yield sign("rate too small", message)
    elif max(rates[:4]) == 0:
        yield sign("rate too small", f"the rate is 0 up to step {SAMPLED[3]}")
    else:
        yield from schedule(optimizer, subject.n_steps, subject.trainer.n_steps)


def better(rate, ratio):
    """What is said of another rate, as this one changes weights by a ratio of their size."""
    usual = 0.01 * rate / max(ratio, 1e-30)
    if usual < 100:
        return f"a rate of {usual:.1g} would change them by a hundredth"
    return "the gradient is almost 0"


def relative_change(move):
    """How much a step changes an array, relative to its size, or the usual one if it is larger."""
    return rms(move.change) / max(rms(move.x), usual_size(move.path, move.x.shape[-2:]))


def schedule(optimizer, n_steps, n_made):
    """Whether a schedule lasts as long as the training, of ``n_steps`` if known, and no longer."""
    n = n_steps or expected_steps(optimizer, n_made)
    steps = np.unique(np.linspace(1, n, 300).astype(int))
    rates = np.array([optimizer.learning_rate(int(step)) for step in steps])
    spent = np.cumsum(rates)
    highest = max(rates_of(optimizer))
    end = steps[np.searchsorted(spent, 0.99 * spent[-1])]
    if end < n / 2 or (n > 9 and spent[-1] == spent[-3]):
        yield sign(
            "rate too small",
            f"of all rates up to step {n}, 99% are spent by step {end}, "
            "as if `total`, or a decay, were in epochs",
        )
    elif n_steps and n > 99 and rates.max() < highest / 4:  # fewer are a trial
        yield sign(
            "rate too small",
            f"up to step {n}, the last, no rate is above {rates.max():.2g}, "
            f"and it rises to {highest:.2g} later, as if `warmup` were longer than the training",
        )


def expected_steps(optimizer, n_made):
    """The steps of a training, if not known: those of its schedule, until it is over."""
    total = getattr(optimizer.lr, "total", 0)
    return total if max(FEWEST, n_made) <= total else max(N_STEPS, n_made)


def frozen(subject):
    """Whether what is frozen is as it was drawn."""
    training = subject.trainer.settings
    if not training.frozen:
        return
    new = arrays_by_path(subject.trainer.model.init(training.seed))
    names = [name for name in training.frozen if is_as_drawn(subject, name, new)]
    if names:
        yield sign("frozen", f"{', '.join(names)} as they were drawn")


def is_as_drawn(subject, name, new):
    """Whether the arrays below a path are those of a new model."""
    leaves = subject.params_by_path.items()
    arrays = {path: x for path, x in leaves if tree.is_in(path, name)}
    vectors = [x for x in arrays.values() if x.ndim == 1]
    if vectors:
        return all(np.isin(x, (0, 1)).all() for x in vectors)
    return all(np.array_equal(x, new[path]) for path, x in arrays.items())


def unusual(subject, first):
    """Settings with which trainings hardly work."""
    optimizer = subject.trainer.optimizer
    training = subject.trainer.settings
    entries = np.abs(np.concatenate([move.gradient.ravel() for move in first]))
    usual = float(np.median(entries[:: 1 + entries.size // LARGEST]))
    length = norm(subject.computed.grads)
    beta1, beta2 = getattr(optimizer, "betas", (0, 1))
    are_unusual = {
        "betas": beta1 > min(beta2, 0.98),
        "momentum": getattr(optimizer, "momentum", 0) > 0.98,
        "weight_decay": optimizer.weight_decay > 2,
        "eps": getattr(optimizer, "eps", 0) > 3 * usual > 0,
        "label_smoothing": training.label_smoothing > 0.4,
        "clip_norm": (training.clip_norm or np.inf) < 0.01 * length,
    }
    for name, is_unusual in are_unusual.items():
        if is_unusual:
            value = getattr(optimizer, name, getattr(training, name, None))
            yield sign(
                "unusual setting",
                f"{name}={value}; the gradient has the norm {length:.2g}, "
                f"and entries near {usual:.1g}",
            )
