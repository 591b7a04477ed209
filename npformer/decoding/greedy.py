"""Greedy decoding: always the most probable next token."""

from typing import Any

from npformer.arrays import Array
from npformer.backends import AnyBackend
from npformer.decoding.common import check_limits, generate


def greedy_decode(
    model: Any,
    params: dict,
    src: Array,
    *,
    bos_id: int,
    eos_id: int,
    max_len: int | Array,
    min_len: int = 0,
    backend: AnyBackend = "auto",
) -> Array:
    """Generate a target for each source; each token is the most probable one, until the end token.

    Parameters
    ----------
    model : EncoderDecoder
    params : nested dict
    src : (B, S) int
    bos_id, eos_id : int
        The begin and end token of every target in training.
    max_len, min_len : int
        Maximum and minimum number of tokens to generate, including the end token; ``max_len`` may be an array (B,).
    backend : "auto", "reference", "cpu", "gpu", or a backend

    Returns
    -------
    (B, T) int
        The tokens after the begin token, up to and including the end token, then ``model.pad_id``, which is never
        generated. T <= max_len.

    Raises
    ------
    ValueError
        If a logit is NaN or inf, with the parameter that is; or if there is no token to choose, as all but padding (and
        the end token before ``min_len``) have a logit of -inf.

    Examples
    --------
    >>> from npformer import Transformer
    >>> model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> src = np.array([[3, 4, 5]])
    >>> greedy_decode(model, model.init(0), src, bos_id=1, eos_id=2, max_len=4).shape[0]
    1
    """
    bos_id, eos_id, limits, min_len = check_limits(model, src, bos_id, eos_id, max_len, min_len)
    most_probable = lambda logits, rows, t: logits.argmax(axis=-1)
    return generate(model, params, src, most_probable, bos_id, eos_id, limits, min_len, backend)
