"""Sampling: each next token is drawn at random from the distribution of the model."""

from typing import Any

import numpy as np

from npformer.arrays import Array, on_host
from npformer.backends import AnyBackend
from npformer.checks import check_key
from npformer.decoding.common import check_limits, generate
from npformer.operations.options import check_option
from npformer.reference import derive_key, random_bits


def sample(
    model: Any,
    params: dict,
    src: Array,
    *,
    bos_id: int,
    eos_id: int,
    max_len: int | Array,
    seed: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_len: int = 0,
    backend: AnyBackend = "auto",
) -> Array:
    """Generate a target for each source, drawn token by token from the model's distribution.

    Parameters
    ----------
    model : EncoderDecoder
    params : nested dict
    src : (B, S) int
    bos_id, eos_id, max_len, min_len, backend
        As for ``greedy_decode``.
    seed : int
        The random numbers are a function of (seed, row, position), so the same seed gives the same targets.
    temperature : float
        The logits are divided by it; a value below 1 makes probable tokens more probable.
    top_k : int, optional
        Draw from the k most probable tokens only (Fan et al. 2018).
    top_p : float
        Draw from the smallest set of most probable tokens that together have at least this probability (Holtzman et
        al. 2020); 1 means all tokens.

    Returns
    -------
    (B, T) int
        As for ``greedy_decode``.

    Raises
    ------
    ValueError
        As ``greedy_decode``.

    Examples
    --------
    >>> from npformer import Transformer
    >>> model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> params, src = model.init(0), np.array([[3, 4, 5]])
    >>> a, b, c = (sample(model, params, src, bos_id=1, eos_id=2, max_len=8, seed=seed) for seed in (1, 1, 2))
    >>> np.array_equal(a, b), np.array_equal(a, c)
    (True, False)
    """
    bos_id, eos_id, limits, min_len = check_limits(model, src, bos_id, eos_id, max_len, min_len)
    seed, temperature = check_key("seed", seed), check_option("temperature", temperature)
    top_p = check_option("top_p", top_p)
    if top_k is not None:
        top_k = check_option("top_k", top_k)

    def choose(logits, rows, t):
        uniform = (random_bits(rows, derive_key(seed, t)) + 0.5) / 2**32
        return draw(on_host(logits), uniform, temperature, top_k, top_p)

    return generate(model, params, src, choose, bos_id, eos_id, limits, min_len, backend)


def draw(logits, uniform, temperature=1.0, top_k=None, top_p=1.0):
    """Draw a token for each row of logits (B, V), by inverting its cumulative distribution function.

    ``uniform`` (B,) holds a random number in (0, 1) for each row.

    >>> draw(np.log(np.array([[0.2, 0.5, 0.3]] * 3)), np.array([0.4, 0.6, 0.9]))
    array([1, 2, 0])
    """
    order = np.argsort(-logits, axis=-1, kind="stable")[:, :top_k]
    ranked = np.take_along_axis(logits, order, axis=-1).astype(np.float64)
    with np.errstate(over="ignore"):  # at a low temperature the division may overflow to -inf
        p = np.exp((ranked - ranked[:, :1]) / temperature)
    p /= p.sum(axis=-1, keepdims=True)
    before = np.cumsum(p, axis=-1) - p  # the probability of all more probable tokens
    p[before >= top_p] = 0
    cumulative = np.cumsum(p, axis=-1)
    chosen = (cumulative < uniform[:, None] * cumulative[:, -1:]).sum(axis=-1)
    return np.take_along_axis(order, chosen[:, None], axis=-1)[:, 0]
