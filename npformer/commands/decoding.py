"""How a command draws tokens, or searches for the best: the options, and what they say."""

from dataclasses import dataclass, replace

from npformer.commands.arguments import add_settings, option, settings_in

SEARCH = "beam_size", "length_penalty", "penalty_form"  # keywords of ``beam_search``


@dataclass(frozen=True)
class Sampling:
    """The settings of ``sample`` that commands have, with the number of tokens."""

    n_tokens: int = 200
    temperature: float = 0.8
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0


SAMPLING = {  # what each field does
    "n_tokens": "most tokens that are drawn",
    "temperature": "lower: more probable tokens",
    "top_k": "draw from the N most probable tokens only",
    "top_p": "draw from the most probable tokens, of probability X together",
    "min_p": "draw from tokens at least X times as probable as the most probable",
    "repetition_penalty": "above 1: fewer repetitions",
    "seed": "of the random numbers",
}


def add_sampling(parser, defaults):
    """The options for the fields of ``Sampling``."""
    add_settings(parser, defaults, SAMPLING, {})


def sampling_of(options, defaults):
    """The record that was typed, the rest of which is as in ``defaults``."""
    return replace(defaults, **settings_in(options, defaults))


def add_search(parser):
    """The options of beam search, which ``search_of`` reads."""
    parser.add(
        "--beam",
        "number of hypotheses; 1 is greedy search",
        dest="beam_size",
        type=option("beam_size"),
        default=5,
        metavar="N",
    )
    penalty = option("length_penalty")
    meaning = "larger: longer translations"
    parser.add("--length-penalty", meaning, type=penalty, default=1.0, metavar="A")
    forms = ["power", "gnmt"]
    parser.add("--penalty-form", "length^A or ((5 + length)/6)^A", choices=forms, default="power")


def search_of(options):
    """The keywords of ``beam_search``."""
    return {name: getattr(options, name) for name in SEARCH}
