"""How a command draws tokens, or searches for the best: records of options."""

from dataclasses import dataclass
from typing import Annotated, Literal

from npformer.commands.shared.signature import Reading

from npformer.decoding.sampling import SamplingOptions


@dataclass(frozen=True, kw_only=True)
class Sampling(SamplingOptions):
    """How many tokens are drawn, and how.

    Parameters
    ----------
    n_tokens
        most tokens that are drawn
    seed
        of the random numbers
    """

    n_tokens: int = 200
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

    beam_size: Annotated[int, Reading(flag="--beam")] = 5
    length_penalty: float = 1.0
    penalty_form: Literal["power", "gnmt"] = "power"
