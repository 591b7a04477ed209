"""The options that scripts share, beside those of npformer's commands."""

import argparse
from typing import Annotated, NamedTuple

from npformer.commands import nearest
from npformer.commands.shared import (
    LARGEST_SEED,
    Fields,
    JsonFile,
    Positive,
    Reading,
    in_range,
    one_of,
    positive,
)


def between_commas(kind):
    """The type of an argument that is several values of a type, between commas."""
    return lambda text: [kind(part) for part in text.split(",")]


natural = in_range("AT_LEAST_0", at_most=LARGEST_SEED)  # it may be a seed
above_zero = in_range("ABOVE_0")
AboveZero = Annotated[float, Reading(type=above_zero, metavar="X")]
Natural = Annotated[int, Reading(type=natural, metavar="N")]
Naturals = Annotated[list, Reading(type=between_commas(natural), metavar="N,M")]
Positives = Annotated[list, Reading(type=between_commas(positive), metavar="N,M")]


def some_of(names):
    """The type of an argument that is a comma-separated list of these names."""

    def parse(text):
        chosen = text.split(",")
        for name in chosen:
            if name not in names:
                others = nearest(name, names) or one_of("some", names)
                raise argparse.ArgumentTypeError(f"{name!r:.40}{others}")
        return chosen

    return parse


def some(names, meaning="some of {} (default: all)"):
    """The type of an option that is a comma-separated list of some of these names."""
    names = list(names)
    meaning = meaning.format(",".join(names))
    return Annotated[list, Reading(type=some_of(names), metavar="A,B", help=meaning)]


def left_out(names):
    """The type of the option that names what is not measured."""
    return some(names, "leave out some of {}")


Backends = some(["cpu", "reference"], "backends of npformer, {}; all are compared with the first")


class Turns(NamedTuple):
    """How long contenders take turns, and the file of their figures.

    Parameters
    ----------
    rounds
        turns of each contender
    seconds
        seconds per turn, at least one step
    quick
        3 short rounds
    """

    rounds: Positive
    seconds: AboveZero
    quick: bool = False
    json: JsonFile | None = None

    @property
    def sgemm_sizes(self):
        """The sizes of the matrices whose product is a limit of the machine."""
        return (1024, 2048) if self.quick else (1024, 2048, 3072, 4096)


class Usually(Fields):
    """The options of ``Turns``, in ``Annotated``, with what is usual, and the seconds of the three
    rounds of --quick.
    """

    def __init__(self, rounds, seconds, quick_seconds):
        self.usual = {"rounds": rounds, "seconds": seconds}
        self.quick = {"rounds": 3, "seconds": quick_seconds}
        shown = self.usual | {"json": ""}
        super().__init__(Turns, " ".join(Turns._fields), shown)

    def value_in(self, options):
        """The turns that are measured."""
        unless_typed = self.quick if options.quick else self.usual
        return Turns(**unless_typed | super().value_in(options))


def usually(rounds, seconds, quick_seconds):
    """The type of the parameter ``turns`` of a benchmark that usually takes so long."""
    return Annotated[Turns, Usually(rounds, seconds, quick_seconds)]
