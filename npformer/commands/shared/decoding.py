"""How a command draws tokens, or searches for the best: records of options."""

from dataclasses import dataclass
from typing import Annotated, Literal

from npformer.commands.shared.signature import Reading

from npformer.operations.options import Count


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The settings of ``sample`` that commands have, with the number of tokens.

    Parameters
    ----------
    n_tokens
        most tokens that are drawn
    temperature
        lower: more probable tokens
    top_k
        draw from the N most probable tokens only (default: all)
    top_p
        draw from the most probable tokens, of probability X together
    min_p
        draw from tokens at least X times as probable as the most probable
    repetition_penalty
        above 1: fewer repetitions
    seed
        of the random numbers
    """

    n_tokens: int = 200
    temperature: float = 0.8
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Search:
    """The settings of ``beam_search`` that commands have.

    Parameters
    ----------
    beam_size
        number of hypotheses; 1 is greedy search
    length_penalty : A
        larger: longer translations
    penalty_form
        length^A or ((5 + length)/6)^A
    """

    beam_size: Annotated[Count, Reading(flag="--beam")] = 5
    length_penalty: float = 1.0
    penalty_form: Literal["power", "gnmt"] = "power"
