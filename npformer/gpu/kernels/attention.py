"""Attention that returns its weights: cuBLAS computes the products, one kernel scale, masks and
softmax of each row.
"""

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.kernels.dropout import drawing, dropout
from npformer.gpu.kernels.flash_attention import KNOWN, mask_of
from npformer.gpu.kernels.product import mended_product
from npformer.gpu.launch import for_each_row, real
from npformer.reference.math.attention import scale_of

DTYPES = "float32 float64"  # in half precision the scores would be rounded before the softmax


# which no kernel of the GPU adds
@kernel_of(reference.attention, dtypes=DTYPES, without="bias", knows=KNOWN)
def attention(q, k, v, keep_mask, bias, options, dropout_key):
    weights = multiply(_each(q), _each(k).swapaxes(1, 2))
    (_, T, S), mask = weights.shape, mask_of(keep_mask, q, k)
    heads, steps = (1, (0,) * 4) if mask is None else (mask.shape[1], mask.strides)
    given = heads, T, S, _scale(q, options.scale), mask, *steps, options.causal
    for_each_row("attention", "weigh", q.dtype, len(weights) * T, weights, *given)
    out = mended_product(dropout(weights, options.dropout_rate, dropout_key), _each(v))
    return out.reshape(*q.shape[:-1], v.shape[-1]), weights.reshape(*q.shape[:-1], S)


@kernel_of(reference.attention_backward, dtypes=DTYPES, without="bias", knows="scale dropout_rate")
def attention_backward(dout, q, k, v, weights, bias, options, dropout_key):
    dout, q_, k_, v_, weights = map(_each, (dout, q, k, v, weights))
    dscores = multiply(dout, v_.swapaxes(1, 2))
    (_, T, S), drawn = weights.shape, drawing(options.dropout_rate, dropout_key, q.dtype)
    given = weights, dscores, S, _scale(q, options.scale), *drawn
    for_each_row("attention", "differentiate", q.dtype, len(weights) * T, *given)
    dv = mended_product(dropout(weights, options.dropout_rate, dropout_key).swapaxes(1, 2), dout)
    dq, dk = mended_product(dscores, k_), mended_product(dscores.swapaxes(1, 2), q_)
    return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)


def _each(x):
    """(..., n, m) as (N, n, m)."""
    return x.reshape(-1, *x.shape[-2:])


def _scale(q, scale):
    return real(q.dtype).type(scale_of(q.shape[-1], scale))
