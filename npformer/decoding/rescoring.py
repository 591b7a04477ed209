"""The probability of a given target."""

from typing import Any

import numpy as np

from npformer.arrays import Array, on_host, underflow_is_zero
from npformer.backends import AnyBackend
from npformer.checks import check_ids, check_no_class, check_two_axes
from npformer.decoding.generation import culprit
from npformer.errors import UserError
from npformer.reference import log_softmax


def log_probability(
    model: Any, params: dict, src: Array, tgt: Array, *, backend: AnyBackend = "auto"
) -> Array:
    """Return log p(target | source), the sum over the tokens of the target.

    Parameters
    ----------
    model : EncoderDecoder
    params : nested dict
    src : (B, S) int
    tgt : (B, T+1) int
        The target with the begin token, whose own probability is not counted; neither is that of
        padding.

    Returns
    -------
    (B,)
        -inf if a token has probability 0, or if the sum is out of the range of the dtype.

    Raises
    ------
    UserError
        If the log-probability of a target is NaN, with the parameter that is.

    Examples
    --------
    >>> from npformer import Transformer
    >>> model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> src, tgt = np.array([[3, 4, 5]]), np.array([[1, 3, 2]])
    >>> bool(log_probability(model, model.init(0), src, tgt)[0] < 0)
    True
    """
    check_no_class("model", model)
    if not hasattr(model, "src_vocab"):
        expected = "a model from a source to a target such as a Transformer"
        raise TypeError(f"model is a {type(model).__name__}, expected {expected}")
    check_ids(tgt, model.tgt_vocab, "tgt")
    check_two_axes("tgt", tgt, "expected (B, T+1), a begin token, then one or more", n_least=2)
    logits = on_host(model.logits(params, src, tgt[:, :-1], backend=backend))
    targets = tgt[:, 1:]
    with underflow_is_zero(over="ignore"):  # a sum that is out of the range of the dtype is -inf
        log_p = log_softmax(logits)
        of_tokens = np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]
        total = np.where(targets == model.pad_id, 0, of_tokens).sum(axis=-1)
    is_nan = np.isnan(total)
    if is_nan.any():
        row = f"the log-probability of row {is_nan.argmax()}"
        raise UserError(f"{row} is NaN; {culprit(params)}")
    return total
