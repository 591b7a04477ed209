"""``diagnose``: all checks, one after another."""

import warnings
from typing import Any

import numpy as np

from npformer.backends import AnyBackend, get_backend
from npformer.diagnosis import data, dependence, gradient, losses, update, weights
from npformer.diagnosis.finding import SURE, TABLE, Finding, Findings, causes_of
from npformer.diagnosis.subject import Subject
from npformer.models.batch import count_of

# A check is a function of a ``Subject`` that yields (name, what was seen), and perhaps how sure it is.
OF_DATA = (
    *(data.numbers, data.answers, data.copies, data.padding, data.special_tokens),
    *(data.partners, data.shift),
)
QUICK = (
    *(weights.finite, weights.equal, weights.scale),
    *(dependence.repeatable, dependence.rows, dependence.tokens, dependence.both_sides),
    *(dependence.positions_or_tokens, dependence.padding, dependence.order),
    *(losses.of_outputs, losses.at_the_start, dependence.scores, losses.after_training, losses.dropout, losses.divided),
)
COSTLY = gradient.differences, gradient.by_parameter, update.settings, update.one_batch, dependence.cache
SPOILING = {"not finite", "not repeatable", "rows leak"}  # with which nothing else can be examined


def diagnose(
    model: Any,
    params: dict,
    batch: tuple,
    *more: Any,
    trainer: Any = None,
    bos_id: int | None = None,
    eos_id: int | None = None,
    max_len: int | None = None,
    n_steps: int | None = None,
    backend: AnyBackend = "auto",
    quick: bool = False,
) -> Findings:
    """Look for the usual mistakes, for which a model does not learn, on a few rows of a batch; nothing is changed.

    Parameters
    ----------
    model
        Any object that ``Trainer`` takes; what cannot be examined of a model without ``logits`` is said.
    params : nested dict
        ``model.init(seed)``, or those of a trainer.
    batch : tuple of arrays
        What ``Trainer.step`` takes, such as (src, tgt).
    trainer : Trainer, optional
        Then its rate and settings are examined, too. ``trainer.diagnose(*batch)`` is the same.
    bos_id, eos_id, max_len : int, optional
        What you decode with.
    n_steps : int, optional
        The steps that the trainer will have made at the end, for which its schedule has to last, and no longer. If
        not given, they are those of the schedule; one of fewer than 30 is taken for one of epochs.
    backend : "auto", "reference", "cpu", "gpu" or an Ops
        What the trainer computes with.
    quick : bool
        Only what takes a moment: the data, the weights, what depends on what, and the loss.

    The result, a list of ``Finding``, prints as a report; ``docs/guides/it-does-not-learn.md`` explains each.

    Examples
    --------
    >>> from npformer import CopyTask, LanguageModel
    >>> model, ids = LanguageModel(11, d_model=16, n_heads=2, n_layers=1, d_ff=32), CopyTask().batch(0, 32)[1]
    >>> diagnose(model, model.init(0), (ids, ids), quick=True).names
    ['targets not shifted', 'padding counted']
    """
    if more:
        given = f"params is followed by {1 + len(more)} arguments"
        raise TypeError(f"{given}, expected one batch, a tuple of arrays such as (src, tgt), then options by name")
    if hasattr(batch, "shape"):
        raise TypeError(f"batch is an array of shape {batch.shape}, expected a tuple of arrays: batch=(x,)")
    if not isinstance(batch, (tuple, list)):
        raise TypeError(f"batch is a {type(batch).__name__}, expected a tuple of arrays such as (src, tgt)")
    ops = trainer.ops if trainer is not None and backend == "auto" else get_backend(backend, params)
    case = Subject(model, params, batch, ops, trainer, (bos_id, eos_id, max_len), n_steps)
    state = np.random.get_state()
    try:
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            signs, missing = examined(case, QUICK if quick else QUICK + COSTLY)
    finally:
        np.random.set_state(state)  # of a model that draws from it
    once = {name: Finding.named(name, *seen) for name, *seen in reversed(signs)}
    findings = Findings(sorted(causes_of(once.values()), key=urgency))
    findings.not_examined = [f"{'; '.join(checks)}: {reason}" for reason, checks in missing.items()]
    return findings


def urgency(finding):
    """The order in which findings are listed: the surest first, causes before what may follow from them."""
    return finding.sure != SURE, list(TABLE).index(finding.name)


def examined(case, checks):
    """The signs of mistakes, and the checks that could not be made, by reason."""
    signs = []
    missing = dict[str, list[str]]()

    def make(check):
        try:
            signs.extend(check(case))
        except Exception as error:
            missing.setdefault(str(error), []).append(check.__doc__.rstrip("."))

    try:
        count_of(case.model, case.batch)
        for check in OF_DATA:
            make(check)
        case.compute()
    except Exception as error:
        missing["the model fails on this batch"] = ["all else"]
        return signs or [("does not run", f"{type(error).__name__}: {error}")], missing
    for check in checks:
        make(check)
        spoiled = SPOILING & {name for name, *_ in signs}
        if spoiled:
            missing["mend it first, then diagnose again"] = [f"all that depends on '{min(spoiled)}'"]
            break
    return signs, missing
