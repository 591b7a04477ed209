"""What a diagnosis finds, and how it is told."""

from typing import NamedTuple

from npformer.operations.explain import Listing

SURE, LIKELY = "certain", "likely"
TABLE = {  # how sure it is, why it matters, what to do; causes come before consequences
    "does not run": (SURE, "Nothing can be learned from an error.", "what the message says."),
    "not finite": (SURE, "One NaN makes all results NaN.", "find it in the data; in parameters, lower the rate."),
    "equal weights": (SURE, "What begins equal stays equal.", "draw them at random: model.init(seed)."),
    "scale of the data": (LIKELY, "Layers expect mean 0, deviation 1.", "subtract the mean, divide by the deviation."),
    "padding inside": (LIKELY, "Padding is not seen, even if it is a word.", "a pad_id that no word has, at the end."),
    "padding counted": (LIKELY, "It is easy: the loss looks good.", "pad by an id of no word, and give it as pad_id."),
    "nothing to learn": (LIKELY, "One answer is right for all inputs.", "print a batch; shuffle the rows."),
    "answers in the input": (LIKELY, "The model copies them; later it has none.", "leave them out of the input."),
    "copied rows": (LIKELY, "There is less to learn than it seems.", "print a batch; look at how rows are chosen."),
    "one batch again and again": (LIKELY, "No other row is learned.", "new rows in each step, unless it is a trial."),
    "rows do not match": (LIKELY, "Inputs then say nothing of their targets.", "print five pairs; shuffle both alike."),
    "rows in order": (LIKELY, "It forgets what it learned first.", "shuffle the rows before each epoch."),
    "begin token": (LIKELY, "The first prediction is made from it.", "one token before all targets, also as bos_id."),
    "end token": (LIKELY, "Else decoding does not stop in time.", "one token after all targets, also as eos_id."),
    "targets not shifted": (SURE, "Output t predicts token t+1.", "the batch (ids,), or (ids[:, :-1], ids[:, 1:])."),
    "not repeatable": (SURE, "Losses cannot be compared.", "draw from dropout_key alone; keep no state or gradient."),
    "later tokens leak": (SURE, "It sees the answers.", "causal = True; a mask, also backward; softmax over keys."),
    "rows leak": (SURE, "A prediction depends on other rows.", "look for a reshape, mean or position along the rows."),
    "padding leaks": (SURE, "Predictions depend on the batch.", "mask padding (True = word) in attention and pooling."),
    "input ignored": (SURE, "What is not seen cannot be learned.", "look at masks (True = may attend) and layers."),
    "no positions": (LIKELY, "“dog bites man” is “man bites dog”.", "add another vector at each position."),
    "cache differs": (LIKELY, "Decoding sees another model.", "look at the newest position, and at what a row reads."),
    "loss differs": (SURE, "What is minimised is not the loss of the outputs.", "the same masks and targets in both."),
    "not the mean": (SURE, "The best rate depends on the size of the batch.", "divide by the number of targets."),
    "n_tokens ignored": (SURE, "With k shards, the gradient is k times too large.", "divide the sum by n_tokens."),
    "gradients overwritten": (SURE, "A trainer keeps those of several shards.", "return new arrays from each call."),
    "wrong count": (SURE, "Means over batches are weighted by it.", "count the targets that are in the loss."),
    "start far from ln V": (LIKELY, "To know nothing costs ln V.", "if above, smaller weights; if below, a leak."),
    "worse than chance": (SURE, "It has learned something else.", "its own vocabulary, in this order; pairs, padding."),
    "dropout": (LIKELY, "Too little signal remains.", "0.1 to 0.3; 0 while you look for a mistake."),
    "dropout has no effect": (SURE, "It overfits as without dropout.", "give dropout_key to layers, a new one a step."),
    "wrong gradient": (SURE, "A step does not go downhill.", "compare this part's backward: docs/guides/own-model.md."),
    "no gradient": (SURE, "These parameters stay as they are.", "use them in the forward and the backward pass."),
    "scale of weights": (LIKELY, "Each layer multiplies by it.", "a variance of about 1/D: model.init(seed)."),
    "scale of scores": (LIKELY, "The softmax then sees one key alone.", "divide them by the root of a head's width."),
    "stale parameters": (SURE, "The trainer changes its own arrays, not these.", "trainer.params, also to decode."),
    "wrong update": (SURE, "A step does not go downhill.", "the optimizer: all parameters, minus the gradient."),
    "rate too large": (LIKELY, "Each step throws away what others learned.", "a tenth of this rate, and warm-up."),
    "rate too small": (LIKELY, "The parameters hardly move.", "schedules for your steps, not epochs; a larger rate."),
    "frozen": (LIKELY, "Layers that never learn stay random.", "freeze only what was trained before."),
    "unusual setting": (LIKELY, "Trainings hardly work so.", "betas=(0.9, 0.98), label_smoothing=0.1, clip_norm=1."),
    "one batch is not learned": (LIKELY, "More rows are harder.", "mend the rest; then width, depth, backward pass."),
    "validation differs": (LIKELY, "It measures something else.", "one vocabulary, padding and preparation for both."),
    "overfitting": (LIKELY, "It learns the rows by heart.", "end at the best; more data, dropout, a smaller model."),
    "stuck": (LIKELY, "The loss does not fall.", "call trainer.diagnose(*batch), which looks closer."),
}


# What a mistake causes is not named beside it. What is left when it is mended, another diagnosis finds.
UNLEARNED = {"one batch is not learned", "stuck", "overfitting"}
RATES = {"rate too large", "rate too small"}
GRADIENT = {"wrong gradient", "no gradient"}
OF_THE_LOSS = {"start far from ln V", "worse than chance"}
CONSEQUENCES = {
    "not finite": UNLEARNED | RATES | GRADIENT | {"loss differs", "cache differs"},
    "equal weights": UNLEARNED | RATES | {"scale of weights", "input ignored", "no positions", "no gradient"},
    "scale of the data": UNLEARNED | RATES | {"worse than chance", "no gradient", "scale of weights"},
    "padding inside": {"padding leaks", "begin token", "end token", "cache differs"},
    "padding counted": {"padding inside", "padding leaks", "end token", "nothing to learn", "cache differs"},
    "nothing to learn": UNLEARNED | RATES | OF_THE_LOSS | {"copied rows", "rows in order"},
    "copied rows": UNLEARNED | {"one batch again and again"},
    "rows do not match": UNLEARNED | RATES | {"worse than chance", "rows in order"},
    "rows in order": UNLEARNED | RATES,
    "targets not shifted": UNLEARNED | OF_THE_LOSS | {"begin token", "later tokens leak"},
    "later tokens leak": UNLEARNED | OF_THE_LOSS | {"wrong gradient", "cache differs"},
    "padding leaks": {"wrong gradient", "cache differs"},
    "input ignored": UNLEARNED | GRADIENT | {"no positions", "cache differs", "worse than chance"},
    "loss differs": GRADIENT | {"worse than chance"},
    "not the mean": UNLEARNED | {"n_tokens ignored", "start far from ln V", "wrong gradient"},
    "worse than chance": UNLEARNED,
    "scale of weights": UNLEARNED | RATES | {"start far from ln V", "no positions", "input ignored", "scale of scores"},
    "wrong gradient": UNLEARNED | {"no gradient"},
    "no gradient": {"one batch is not learned", "stuck"},
    "wrong update": UNLEARNED | RATES,
    "rate too large": UNLEARNED,
    "rate too small": {"stuck"},
    "frozen": {"stuck"},
    "unusual setting": {"rate too small", "stuck"},
    "validation differs": {"overfitting"},
}


class Finding(NamedTuple):
    """One mistake, or a sign of one; a row of the table follows its name and what was seen.

    >>> print(Finding.named("dropout", "dropout=0.9"))
    dropout (likely): dropout=0.9.
      Too little signal remains. Try: 0.1 to 0.3; 0 while you look for a mistake.
    """

    name: str
    seen: str
    sure: str  # "certain" or "likely"
    why: str
    what_to_do: str

    @classmethod
    def named(cls, name: str, seen: str, sure: str | None = None) -> "Finding":
        """The finding of the table with this name, as sure as it says, or otherwise."""
        usual, *told = TABLE[name]
        return cls(name, seen.rstrip("."), sure or usual, *told)

    def __str__(self):
        return f"{self.name} ({self.sure}): {self.seen}.\n  {self.why} Try: {self.what_to_do}"


def causes_of(findings):
    """The findings without those that follow from others; what is likely explains nothing that is certain.

    >>> [each.name for each in causes_of([Finding.named("no positions", ""), Finding.named("input ignored", "")])]
    ['input ignored']
    """

    def explains(cause, finding):
        follows = finding.name in CONSEQUENCES.get(cause.name, ())
        return follows and (cause.sure == SURE or finding.sure == LIKELY)

    return [finding for finding in findings if not any(explains(cause, finding) for cause in findings)]


class Findings(Listing, list[Finding]):
    """Findings, the surest first, which print as a report; ``not_examined`` says what could not be examined."""

    not_examined: list[str] | tuple = ()

    @property
    def names(self) -> list[str]:
        """The names of the findings."""
        return [finding.name for finding in self]

    def __repr__(self) -> str:
        head = ["Mend the first one first: others may follow from it."] * (len(self) > 1)
        report = "\n\n".join([*head, *map(str, self)]) or "Nothing is wrong, as far as it was examined."
        return "\n".join([report, *(f"not examined, which is no mistake: {what}" for what in self.not_examined)])
