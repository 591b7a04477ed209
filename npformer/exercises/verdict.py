"""What the checker says of a function."""

from dataclasses import dataclass, field

from npformer.exercises.texts import described, one_line

BEGIN = b"\0"  # what the process of the checker prints when its time begins
STATES = "solved", "wrong", "not written"


@dataclass
class Verdict:
    """Whether a function is right, and what is not.

    Attributes
    ----------
    state : str
        One of STATES.
    lines : list of str
        What is certain.
    reason : str
        What may be the reason, if one was found.
    topic : str
        What is wrong with a result, or which direction is not written: a hint may be about that.
        Empty where the function raises an error or returns no results, as such words are not about
        the mathematics.
    """

    state: str
    lines: list[str] = field(default_factory=list)
    reason: str = ""
    topic: str = ""

    @property
    def solved(self):
        """Whether nothing is wrong."""
        return self.state == "solved"

    def text(self):
        """The text from which `from_text` makes it again."""
        return "\n".join(map(one_line, [self.state, self.reason, self.topic, *self.lines]))

    @classmethod
    def from_text(cls, text):
        """The verdict of a text. Raises ValueError if it is not that of one."""
        state, reason, topic, *lines = text.split("\n")
        if state not in STATES:
            raise ValueError("there is no verdict")
        return cls(state, lines, reason, topic)


@dataclass
class UnderWay:
    """What is being checked, for who ends the process before there is a verdict."""

    case: str = ""  # on which the function is being run, in words
    complaint: str = ""  # what is wrong with it; known while a reason is searched
    topic: str = ""  # that of the verdict

    def begin(self, exercise, case):
        """Begin with a case."""
        self.case = f"with {described(exercise, case)}"
        self.complaint = self.topic = ""

    def verdict(self, line="", reason=""):
        """That the function is wrong, with what is known of it."""
        known = [each for each in (self.case, self.complaint, line) if each]
        return Verdict("wrong", known, reason, self.topic)


def too_long(seconds):
    """What is wrong with a function that has not ended."""
    return f"it has not ended after {seconds:g} seconds: is there a loop that never ends?"
