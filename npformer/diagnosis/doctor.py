"""``diagnose``: all checks, one after another."""

import warnings
from typing import Any

import numpy as np

from npformer.backends import AnyBackend, get_backend
from npformer.diagnosis import dependence, given, losses, training
from npformer.diagnosis.finding import SURE, TABLE, Finding, Findings
from npformer.diagnosis.subject import Subject

# A check is a function of a ``Subject`` that yields (name, what was seen).
OF_DATA = given.numbers, given.padding, given.special_tokens, given.partners, given.shift
QUICK = (
    *(given.weights, dependence.repeatable, dependence.rows, dependence.tokens, dependence.padding, dependence.order),
    *(losses.of_outputs, losses.at_the_start, losses.divided),
)
COSTLY = losses.differences, losses.by_parameter, training.settings, training.one_batch, dependence.cache


def diagnose(
    model: Any,
    params: dict,
    batch: tuple,
    *,
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
        not given, a schedule of fewer than about 90 steps is taken for one of epochs.
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
    ['targets not shifted', 'padding counted', 'start far from ln V']
    """
    if hasattr(batch, "shape"):
        raise TypeError(f"batch is an array of shape {batch.shape}, expected a tuple of arrays: batch=(x,)")
    ops = trainer.ops if trainer is not None and backend == "auto" else get_backend(backend, params)
    case, state = Subject(model, params, batch, ops, trainer, (bos_id, eos_id, max_len), n_steps), np.random.get_state()
    try:
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            found, missing = examined(case, QUICK if quick else QUICK + COSTLY)
    finally:
        np.random.set_state(state)  # of a model that draws from it
    told = {name: Finding.named(name, *seen) for name, *seen in reversed(found)}  # each once
    if "input ignored" in told:
        told.pop("no positions", None)  # which follows from it
    last = lambda name: TABLE[name][0] != SURE or name == "cache differs"  # as it may follow from padding, or a token
    findings = Findings(sorted(told.values(), key=lambda each: (last(each.name), list(TABLE).index(each.name))))
    findings.not_examined = [f"{'; '.join(whats)}: {why}" for why, whats in missing.items()]
    return findings


def examined(case, checks):
    """What the checks yield, and why some could not be made."""
    found, missing = [], dict[str, list[str]]()  # what was not examined, by reason

    def make(check):
        try:
            found.extend(check(case))
        except Exception as error:
            missing.setdefault(str(error), []).append(check.__doc__.rstrip("."))

    try:
        case.model.count(*case.batch)
        make(Subject.ask_outputs)  # what it learns, the checks ask for
        for check in OF_DATA:
            make(check)
        case.choose_rows()
    except Exception as error:
        missing["the model fails on this batch"] = ["all else"]
        return found or [("does not run", f"{type(error).__name__}: {error}")], missing
    for check in checks:
        make(check)
        if spoiled := {"not finite", "not repeatable", "rows leak"} & {name for name, *_ in found}:
            missing["mend it first, then diagnose again"] = [f"all that depends on '{min(spoiled)}'"]
            break
    return found, missing
