"""What a diagnosis finds, and how it is told."""

import re
from typing import NamedTuple

from npformer.errors import UserError
from npformer.operations.explain import Listing

SURE = "certain"
LIKELY = "likely"

# Findings that are often hidden together.
UNLEARNED = "one batch is not learned, stuck, overfitting"
RATES = "rate too large, rate too small"
GRADIENT = "wrong gradient, no gradient"
OF_THE_LOSS = "start far from ln V, worse than chance"
# A paragraph for each finding: its name, how sure it is, and why it matters; what to do; and, after
# "hides:", its consequences. They are not listed beside their cause: if one is still there when the
# cause is mended, the next diagnosis names it. Causes come before consequences, as they are listed
# in this order.
TEXT = f"""
does not run (certain): Nothing can be learned from an error.
  what the message says.

not finite (certain): One NaN makes all results NaN.
  find it in the data; in parameters, lower the rate.
  hides: {UNLEARNED}, {RATES}, {GRADIENT}, loss differs, cache differs

equal weights (certain): What begins equal stays equal.
  draw them at random: model.init(seed).
  hides: {UNLEARNED}, {RATES}, scale of weights, input ignored, no positions, no gradient

scale of the data (likely): Layers expect mean 0, deviation 1.
  subtract the mean, divide by the deviation.
  hides: {UNLEARNED}, {RATES}, worse than chance, no gradient, scale of weights

padding inside (likely): Padding is not seen, even if it is a word.
  a pad_id that no word has, at the end.
  hides: padding leaks, begin token, end token, cache differs

padding counted (likely): It is easy: the loss looks good.
  pad by an id of no word, and give it as pad_id.
  hides: padding inside, padding leaks, end token, nothing to learn, cache differs

nothing to learn (likely): One answer is right for all inputs.
  print a batch; shuffle the rows.
  hides: {UNLEARNED}, {RATES}, {OF_THE_LOSS}, copied rows, rows in order

answers in the input (likely): The model copies them; later it has none.
  leave them out of the input.

copied rows (likely): There is less to learn than it seems.
  print a batch; look at how rows are chosen.
  hides: {UNLEARNED}, one batch again and again

one batch again and again (likely): No other row is learned.
  new rows in each step, unless it is a trial.

rows do not match (likely): Inputs then say nothing of their targets.
  print five pairs; shuffle both alike.
  hides: {UNLEARNED}, {RATES}, worse than chance, rows in order

rows in order (likely): It forgets what it learned first.
  shuffle the rows before each epoch.
  hides: {UNLEARNED}, {RATES}

begin token (likely): The first prediction is made from it.
  one token before all targets, also as bos_id.

end token (likely): Else decoding does not stop in time.
  one token after all targets, also as eos_id.

targets not shifted (certain): Output t predicts token t+1.
  the batch (ids,), or (ids[:, :-1], ids[:, 1:]); of pairs tgt[:, :-1] in, tgt[:, 1:] out.
  hides: {UNLEARNED}, {OF_THE_LOSS}, begin token, later tokens leak

not repeatable (certain): Losses cannot be compared.
  draw from dropout_key alone; keep no state or gradient.

later tokens leak (certain): It sees the answers.
  causal = True; a mask, also backward; softmax over keys.
  hides: {UNLEARNED}, {OF_THE_LOSS}, wrong gradient, cache differs

rows leak (certain): A prediction depends on other rows.
  look for a reshape, mean or position along the rows.

padding leaks (certain): Predictions depend on the batch.
  mask padding (True = word) in attention and pooling.
  hides: wrong gradient, cache differs

input ignored (certain): What is not seen cannot be learned.
  look at masks (True = may attend) and layers.
  hides: {UNLEARNED}, {GRADIENT}, no positions, cache differs, worse than chance

no positions (likely): “dog bites man” is “man bites dog”.
  add another vector at each position.

cache differs (likely): Decoding sees another model.
  look at the newest position, and at what a row reads.

loss differs (certain): What is minimised is not the loss of the outputs.
  the same masks and targets in both.
  hides: {GRADIENT}, worse than chance

not the mean (certain): The best rate depends on the size of the batch.
  divide by the number of targets.
  hides: {UNLEARNED}, n_tokens ignored, start far from ln V, wrong gradient

n_tokens ignored (certain): With k shards, the gradient is k times too large.
  divide the sum by n_tokens.

gradients overwritten (certain): A trainer keeps those of several shards.
  return new arrays from each call.

wrong count (certain): Means over batches are weighted by it.
  count the targets that are in the loss.

start far from ln V (likely): To know nothing costs ln V.
  if above, smaller weights; if below, a leak.

worse than chance (certain): It has learned something else.
  its own vocabulary, in this order; pairs, padding.
  hides: {UNLEARNED}

dropout (likely): Too little signal remains.
  0.1 to 0.3; 0 while you look for a mistake.

dropout has no effect (certain): It overfits as without dropout.
  give dropout_key to layers, a new one a step.

wrong gradient (certain): A step does not go downhill.
  compare this part's backward: docs/guides/own-model.md.
  hides: {UNLEARNED}, no gradient

no gradient (certain): These parameters stay as they are.
  use them in the forward and the backward pass.
  hides: one batch is not learned, stuck

scale of weights (likely): Each layer multiplies by it.
  a variance of about 1/D: model.init(seed).
  hides: {UNLEARNED}, {RATES}, start far from ln V, no positions, input ignored, scale of scores

scale of scores (likely): The softmax then sees one key alone.
  divide them by the root of a head's width.

stale parameters (certain): The trainer changes its own arrays, not these.
  trainer.params, also to decode.

wrong update (certain): A step does not go downhill.
  the optimizer: all parameters, minus the gradient.
  hides: {UNLEARNED}, {RATES}

rate too large (likely): Each step throws away what others learned.
  a tenth of this rate, and warm-up.
  hides: {UNLEARNED}

rate too small (likely): The parameters hardly move.
  schedules for your steps, not epochs; a larger rate.
  hides: stuck

frozen (likely): Layers that never learn stay random.
  freeze only what was trained before.
  hides: stuck

unusual setting (likely): Trainings hardly work so.
  betas=(0.9, 0.98), label_smoothing=0.1, clip_norm=1.
  hides: rate too small, stuck

one batch is not learned (likely): More rows are harder.
  mend the rest; then width, depth, backward pass.

validation differs (likely): It measures something else.
  one vocabulary, padding and preparation for both.
  hides: overfitting

overfitting (likely): It learns the rows by heart.
  end at the best; more data, dropout, a smaller model.

stuck (likely): The loss does not fall.
  call trainer.diagnose(*batch), which looks closer.
"""
PARAGRAPH = re.compile(
    r"(?P<name>.+) \((?P<sure>certain|likely)\): (?P<why>.+)\n"
    r"  (?P<what_to_do>.+)"
    r"(\n  hides: (?P<hides>.+))?"
)


class Finding(NamedTuple):
    """One mistake, or a sign of one."""

    name: str
    seen: str
    sure: str  # "certain" or "likely"
    why: str
    what_to_do: str

    def __str__(self):
        return f"{self.name} ({self.sure}): {self.seen}.\n  {self.why} Try: {self.what_to_do}"


def read_table(text):
    r"""The findings in paragraphs of a text by their names, and the names of what each hides.

    >>> table, consequences = read_table("a (likely): Why.\n  what to do.\n  hides: b, c")
    >>> table["a"].what_to_do, consequences
    ('what to do.', {'a': ['b', 'c']})
    """
    table = {}
    consequences = {}
    for paragraph in text.strip().split("\n\n"):
        row = PARAGRAPH.fullmatch(paragraph)
        if row is None:
            raise UserError(f"no paragraph of a finding: {paragraph}")
        about = row.groupdict()
        hidden = about.pop("hides")
        table[row["name"]] = Finding(seen="", **about)
        if hidden:
            consequences[row["name"]] = hidden.split(", ")
    return table, consequences


TABLE, CONSEQUENCES = read_table(TEXT)


def sign(name: str, seen: str, sure: str | None = None) -> Finding:
    """The finding of the table with this name, as sure as the table says, or otherwise.

    >>> print(sign("dropout", "dropout=0.9"))
    dropout (likely): dropout=0.9.
      Too little signal remains. Try: 0.1 to 0.3; 0 while you look for a mistake.
    """
    usual = TABLE[name]
    return usual._replace(seen=seen.rstrip("."), sure=sure or usual.sure)


def causes_of(findings):
    """The findings without those that follow from others.

    >>> signs = [sign("no positions", ""), sign("input ignored", "")]
    >>> [finding.name for finding in causes_of(signs)]
    ['input ignored']
    """
    return [each for each in findings if not any(explains(cause, each) for cause in findings)]


def explains(cause, finding):
    """Whether a finding follows from another; what is likely explains nothing that is certain."""
    if finding.sure == SURE and cause.sure == LIKELY:
        return False
    return finding.name in CONSEQUENCES.get(cause.name, ())


class Findings(Listing, list[Finding]):
    """Findings, the surest first, which print as a report.

    ``not_examined`` says what could not be examined; ``has_outputs`` is False if these are the
    outputs of the model, on which most questions depend.
    """

    not_examined: list[str] | tuple = ()
    has_outputs = True

    @property
    def names(self) -> list[str]:
        """The names of the findings."""
        return [finding.name for finding in self]

    def __repr__(self) -> str:
        if not self and not self.has_outputs:
            return "\n".join([*self.not_examined, "No mistake was found in the rest."])
        return "\n".join([self._report(), *self.not_examined])

    def _report(self):
        if not self:
            return "Nothing is wrong, as far as it was examined."
        paragraphs = [str(finding) for finding in self]
        if len(self) > 1:
            paragraphs.insert(0, "Mend the first one first: others may follow from it.")
        return "\n\n".join(paragraphs)
