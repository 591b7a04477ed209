"""``diagnose``: all checks, one after another."""

import warnings
from typing import Any

import numpy as np

from npformer import tree
from npformer.backends import AnyBackend, get_backend
from npformer.checks import check_no_class
from npformer.diagnosis.finding import SURE, TABLE, Finding, Findings, causes_of, sign
from npformer.diagnosis.questions import COSTLY, OF_DATA, QUICK
from npformer.diagnosis.subject import Decoding, Subject, WithoutOutputs, with_type
from npformer.errors import UserError
from npformer.models.batch import count_of
from npformer.operations.options import check_instance

SPOILING = {"not finite", "not repeatable", "rows leak"}  # with which nothing else can be examined
# With which a check is not made: the errors of a model, which may be any. So would be a bug of the
# check; the tests take this away, and see it.
FAILURES: tuple[type[Exception], ...] = (Exception,)
WITHOUT_OUTPUTS = """\
The outputs were not examined: {why}.
These questions were not asked:
  {questions}
To have them asked, give the model one of these methods, or repair the one it has:
  logits(params, *inputs), which returns logits (B, T, V), or
  outputs(params, *inputs), if it predicts anything else."""


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
    """Look for the usual mistakes, for which a model does not learn, on a few rows of a batch.

    Nothing is changed.

    Parameters
    ----------
    model
        Any object that ``Trainer`` takes; what cannot be examined of a model without ``logits`` is
        said.
    params : nested dict
        ``model.init(seed)``, or those of a trainer.
    batch : tuple of arrays
        What ``Trainer.step`` takes, such as (src, tgt).
    trainer : Trainer, optional
        Then its rate and settings are examined, too. ``trainer.diagnose(*batch)`` is the same.
    bos_id, eos_id, max_len : int, optional
        What you decode with.
    n_steps : int, optional
        The steps that the trainer will have made at the end, for which its schedule has to last,
        and no longer. If not given, they are those of the schedule; one of fewer than 30 is taken
        for one of epochs.
    backend : "auto", "reference", "cpu", "gpu" or an Ops
        What the trainer computes with.
    quick : bool
        Only what takes a moment: the data, the weights, what depends on what, and the loss.

    Returns
    -------
    Findings
        A list of ``Finding``, which prints as a report; ``docs/guides/it-does-not-learn.md``
        explains each.

    Raises
    ------
    TypeError
        If the parameters are no dict, or the batch is not one tuple of arrays.

    Examples
    --------
    >>> from npformer import CopyTask, LanguageModel
    >>> model = LanguageModel(11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    >>> _, ids = CopyTask().batch(0, 32)
    >>> diagnose(model, model.init(0), (ids, ids), quick=True).names
    ['targets not shifted', 'padding counted']
    """
    check_no_class("model", model)
    expected = "a dict of parameters; a trainer has a method: trainer.diagnose(*batch)"
    check_instance("params", params, dict, expected)
    batch = checked_batch(batch, more)
    if trainer is not None and backend == "auto":
        ops = trainer.ops
    else:
        ops = get_backend(backend, params)
    subject = Subject(
        model=model,
        original_params=params,
        params=tree.map_leaves(lambda x: x.copy(), params),
        batch=batch,
        ops=ops,
        trainer=trainer,
        n_steps=n_steps,
        decoding=Decoding(bos_id, eos_id, max_len),
    )
    state = np.random.get_state()
    try:
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            return examined(subject, QUICK if quick else QUICK + COSTLY)
    finally:
        np.random.set_state(state)  # of a model that draws from it


def checked_batch(batch, more):
    """The arrays of a batch; raises if it is not one tuple, as if ``Trainer.step`` were called."""
    if more:
        raise TypeError(
            f"params is followed by {1 + len(more)} arguments, "
            "expected one batch, a tuple of arrays such as (src, tgt), then options by name"
        )
    if hasattr(batch, "shape"):
        raise TypeError(
            f"batch is an array of shape {batch.shape}, expected a tuple of arrays: batch=(x,)"
        )
    expected = "a tuple of arrays such as (src, tgt)"
    batch = tuple(check_instance("batch", batch, (tuple, list), expected))
    for i, x in enumerate(batch):
        if x is None:
            advice = "leave it out, or give a mask that is True everywhere"
            raise TypeError(f"batch[{i}] is None, expected an array: {advice}")
    return batch


def examined(subject, checks):
    """The ``Findings`` of the checks of the data, and of others."""
    answers = Answers(subject)
    try:
        count_of(subject.model, subject.batch)
        for check in OF_DATA:
            answers.add(check)
        _ = subject.computed  # without a loss and a gradient, no other check can be made
    except Exception as error:  # of the model, which may be any
        answers.missing["the model fails on this batch"] = ["all else"]
        if not answers.signs:
            answers.note(sign("does not run", with_type(error)))
        return answers.findings()
    for check in checks:
        answers.add(check)
        spoiled = SPOILING & answers.signs.keys()
        if spoiled:
            what = f"all that depends on '{min(spoiled)}'"
            answers.missing["mend it first, then diagnose again"] = [what]
            break
    return answers.findings()


class Answers:
    """The signs of mistakes, by name, and the checks that could not be made, by reason."""

    def __init__(self, subject):
        self.subject = subject
        self.signs = dict[str, Finding]()
        self.about_outputs = list[str]()  # the checks for which the model lacks outputs
        self.missing = dict[str, list[str]]()

    def add(self, check):
        """Make a check."""
        try:
            for finding in check(self.subject):
                self.note(finding)
        except WithoutOutputs:
            self.about_outputs.append(question_of(check))
        except FAILURES as error:
            # A question says by a UserError why it cannot be asked of this model or batch.
            reason = str(error) if isinstance(error, UserError) else with_type(error)
            self.missing.setdefault(reason, []).append(question_of(check))

    def note(self, finding):
        """Note a sign. Of those with one name, the first one stays."""
        self.signs.setdefault(finding.name, finding)

    def findings(self):
        """The causes without what follows from them, the surest first, and what is missing: first
        what cannot be known of a model without outputs.
        """
        findings = Findings(sorted(causes_of(self.signs.values()), key=urgency))
        findings.not_examined = []
        if self.about_outputs:
            why = self.subject.interface.missing
            listed = "\n  ".join(self.about_outputs)
            findings.not_examined.append(WITHOUT_OUTPUTS.format(why=why, questions=listed))
            findings.has_outputs = False
        for reason, questions in self.missing.items():
            findings.not_examined.append(
                f"not examined, which is no mistake: {'; '.join(questions)}: {reason}"
            )
        return findings


def question_of(check):
    """What a check asks, in one line, as its docstring says."""
    text = check.__doc__ or check.__name__  # there are no docstrings with -OO
    return " ".join(text.split()).rstrip(".")


def urgency(finding):
    """The order in which findings are listed: the surest first, causes before their effects."""
    return finding.sure != SURE, list(TABLE).index(finding.name)
