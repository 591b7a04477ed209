"""The options of attention, in the form that kernels take."""

from typing import NamedTuple

import numpy as np

from npformer.cpu.draws import dropout_arguments
from npformer.reference.math.attention import scale_of

KNOWN = "causal scale dropout_rate softcap"  # the fields of AttentionOptions that the kernels know
NO_MASK = np.ones((1, 1, 1, 0), bool)


class KernelOptions(NamedTuple):
    """The arguments of the kernels besides arrays; ``draw`` and ``kept_scale`` are for dropout.

    What is None is not compiled into a kernel. There is always a mask, and always a draw, so that
    one kernel serves all attentions of most trainings: it is compiled for seconds.
    """

    keep_mask: np.ndarray  # (1 or B, 1 or H, 1 or T, S), or NO_MASK
    bias: np.ndarray | None  # the same
    causal: bool
    scale: float
    draw: tuple
    kept_scale: float
    softcap: float | None


def kernel_options(q, k, keep_mask, bias, options, dropout_key):
    """The options, ``AttentionOptions``, in the form that the kernels take. Without a key nothing
    is dropped.
    """
    number = q.dtype.type
    S = k.shape[-2]
    hides = keep_mask is not None and np.count_nonzero(keep_mask) < keep_mask.size
    dropout_rate = 0.0 if dropout_key is None else options.dropout_rate
    draw, kept_scale = dropout_arguments(dropout_rate, dropout_key, q.dtype)
    return KernelOptions(
        keep_mask=with_four_axes(keep_mask, q.shape, S) if hides else NO_MASK,
        bias=None if bias is None else with_four_axes(bias, q.shape, S),
        causal=options.causal,
        scale=number(scale_of(q.shape[-1], options.scale)),
        draw=draw,
        kept_scale=kept_scale,
        softcap=None if options.softcap is None else number(options.softcap),
    )


def with_four_axes(x, q_shape, S):
    """A mask or bias that broadcasts to the scores as (1 or B, 1 or H, 1 or T, S)."""
    x = x.reshape((1,) * (4 - x.ndim) + x.shape)
    if x.shape[-1] == S and len(q_shape) <= 4:
        return x
    leading = q_shape[:-3] if len(q_shape) > 4 else x.shape[:1]
    whole = np.broadcast_to(x, (*leading, *x.shape[-3:-1], S))
    return whole.copy().reshape(-1, *whole.shape[-3:])
