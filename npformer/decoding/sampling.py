"""Sampling: each next token is drawn at random from the distribution of the model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from npformer.arrays import Array, on_host, underflow_is_zero
from npformer.backends import AnyBackend
from npformer.checks import check_callable, check_key
from npformer.decoding.generation import generate
from npformer.decoding.prompts import Prompts
from npformer.decoding.request import checked_request
from npformer.errors import UserError
from npformer.operations.options import (
    ABOVE_0,
    PROBABILITY,
    SHARE,
    TEMPERATURE,
    Count,
    check_fields,
)
from npformer.reference import derive_key, random_bits

FEW = 1024  # tokens that are ranked at first


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How ``sample`` draws a token; ``generate`` and ``chat`` have an option for each field.

    Parameters
    ----------
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
    """

    temperature: Annotated[float, TEMPERATURE] = 1.0
    top_k: Count | None = None
    top_p: Annotated[float, PROBABILITY] = 1.0
    min_p: Annotated[float, SHARE] = 0.0
    repetition_penalty: Annotated[float, ABOVE_0] = 1.0

    def __post_init__(self):
        check_fields(self)


def sample(
    model: Any,
    params: dict,
    src: Any,
    *,
    bos_id: int | None = None,
    eos_id: int | Sequence[int] | None = None,
    max_len: int | Array,
    seed: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    min_len: int = 0,
    slide: bool = False,
    on_step: Callable[[Array, Array], object] | None = None,
    decoder: Any = None,
    backend: AnyBackend = "auto",
) -> Array:
    """Generate a target for each source, or go on after each prompt, drawn token by token.

    Parameters
    ----------
    model : EncoderDecoder or LanguageModel
    params : nested dict
    src, bos_id, eos_id, max_len, min_len, slide, on_step, decoder, backend
        As for ``greedy_decode``.
    seed : int
        The random numbers are a function of (seed, row, position), so the same seed gives the same
        targets.
    temperature : float
        The logits are divided by it; a value below 1 makes probable tokens more probable.
    top_k : int, optional
        Draw from the k most probable tokens only (Fan et al. 2018): from exactly k, of equally
        probable ones those with the lowest ids. (The library transformers keeps all that are as
        probable as token k.)
    top_p : float
        Draw from the smallest set of most probable tokens that together have at least this
        probability (Holtzman et al. 2020); 1 means all tokens.
    min_p : float
        Draw from the tokens only that are at least ``min_p`` times as probable as the most probable
        one (Nguyen et al. 2025); 0 means all tokens.
    repetition_penalty : float
        Logits of tokens that occur already, also in the prompt, are divided by it if they are
        positive, and multiplied if negative (Keskar et al. 2019); 1 means none.

    Returns
    -------
    (B, T) int
        As for ``greedy_decode``.

    Raises
    ------
    UserError
        As ``greedy_decode``.

    Examples
    --------
    >>> from npformer import Transformer
    >>> model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> params, src = model.init(0), np.array([[3, 4, 5]])
    >>> options = {"bos_id": 1, "eos_id": 2, "max_len": 8}
    >>> a, b, c = [sample(model, params, src, **options, seed=seed) for seed in (1, 1, 2)]
    >>> np.array_equal(a, b), np.array_equal(a, c)
    (True, False)
    """
    if on_step is not None:
        check_callable("on_step", on_step)
    request = checked_request(model, src, bos_id, eos_id, max_len, min_len, slide)
    seed = check_key("seed", seed)
    options = SamplingOptions(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
    )
    occurs = None if options.repetition_penalty == 1 else occurring(request)

    def choose(logits, rows, t):
        logits = on_host(logits)
        if occurs is not None:
            logits = penalised(logits, occurs[rows], options.repetition_penalty)
        # A function of (seed, row, position): a row is drawn the same whichever rows are left.
        uniform = (random_bits(rows, derive_key(seed, t)) + 0.5) / 2**32
        return draw(logits, uniform, options)

    def remember(rows, tokens):
        if occurs is not None:
            occurs[rows, tokens] = True
        if on_step is not None:
            on_step(rows, tokens)

    return generate(request, params, choose, backend, remember, decoder)


def occurring(request):
    """Whether each token occurs in what each row begins with: (B, V) bool."""
    occurs = np.zeros((len(request.first_tokens), request.model.tgt_vocab), bool)
    occurs[np.arange(len(occurs)), request.first_tokens] = True
    if isinstance(request.sources, Prompts):
        prompts = request.sources
        for row, ids, n in zip(occurs, prompts.ids, prompts.lengths, strict=True):
            row[ids[:n]] = True
    return occurs


def penalised(logits, occurs, penalty):
    """Logits (B, V), float64, those of tokens that occur already changed by the repetition penalty.

    >>> penalised(np.array([[2.0, 1.0, -1.0]]), np.array([[True, False, True]]), 2.0)
    array([[ 1.,  1., -2.]])
    """
    logits = logits.astype(np.float64)  # float32 would round a small penalty to 0
    before = logits[occurs]
    with underflow_is_zero(over="ignore"):
        logits[occurs] = np.where(before > 0, before / penalty, before * penalty)
    if not np.isfinite(logits.max(axis=-1)).all():
        advice = "expected one that is nearer to 1"
        raise UserError(f"repetition_penalty={penalty:g} makes logits infinite: {advice}")
    return logits


def draw(logits, uniform, options):
    """Draw a token for each row of logits (B, V), by inverting its cumulative distribution.

    ``uniform`` (B,) holds a random number in (0, 1) for each row.

    >>> logits = np.log(np.array([[0.2, 0.5, 0.3]] * 3))
    >>> draw(logits, np.array([0.4, 0.6, 0.9]), SamplingOptions())
    array([1, 2, 0])
    """
    # Differences that are divided by a low temperature may overflow to -inf, and improbable tokens
    # underflow to 0.
    with underflow_is_zero(over="ignore"):
        rows = zip(logits, uniform, strict=True)
        return np.array([_drawn(row, u, options) for row, u in rows])


def _drawn(row, u, options):
    """The token of one row of logits."""
    if options.top_k is not None:
        ids = _most_probable(row, options.top_k)
        p = _probabilities(row[ids], row[ids[0]], options.temperature)
        return ids[_place(p, u, options, is_all=True)]
    p = _probabilities(row, row.max(), options.temperature)
    # To rank all of a large vocabulary takes long, and the token is nearly always among a few.
    ids = _most_probable(row, FEW)
    place = _place(p[ids], u, options, is_all=len(ids) == len(row))
    if place is None:
        ids = _most_probable(row, len(row))
        place = _place(p[ids], u, options, is_all=True)
    return ids[place]


def _place(p, u, options, is_all):
    """The place of the drawn token among the most probable ones; None if it is none of these.

    ``p`` has their probabilities, the largest first. It ``is_all`` if there are no other tokens.
    """
    before = np.cumsum(p) - p  # the probability of all more probable tokens
    kept = (before < options.top_p) & (p >= options.min_p * p[0])
    cumulative = np.cumsum(np.where(kept, p, 0))
    if is_all or not kept[-1]:  # all tokens that are kept are in ``p``
        target = u * cumulative[-1]
    elif options.top_p == 1 and options.min_p == 0 and u <= cumulative[-1]:
        target = u
    else:
        return None
    return (cumulative < target).sum()


def _probabilities(logits, largest, temperature):
    """softmax(logits / temperature), in float64."""
    powers = np.exp((logits.astype(np.float64) - largest) / temperature)
    return powers / powers.sum()


def _most_probable(row, n):
    """The ids of the n largest logits, the largest first; of equal ones the first."""
    ids = np.arange(len(row))
    if n < len(row):
        # As many as n, and those that are equal to the last: the sort decides between them.
        least = np.partition(row, -n)[-n]
        ids = np.flatnonzero(row >= least)
    order = np.argsort(-row[ids], kind="stable")
    return ids[order][:n]
