"""Attention that returns its weights: ``reference.attention`` and its backward pass.

cuBLAS computes the products. Scale, mask and softmax are one kernel, a block of threads for each
row of scores, so that no array is written at each step.
"""

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.kernels.dropout import dropout, dropout_arguments
from npformer.gpu.kernels.flash_attention import KNOWN, mask_of, scale_for
from npformer.gpu.kernels.product import matrices_of, mended_product
from npformer.gpu.launch import row_kernel

DTYPES = "float32 float64"  # in half precision the scores would be rounded before the softmax


# No kernel of the GPU adds the bias.
@kernel_of(reference.attention, dtypes=DTYPES, without="bias", knows=KNOWN)
def attention(q, k, v, keep_mask, bias, options, dropout_key):
    weights = multiply(matrices_of(q), matrices_of(k).swapaxes(1, 2))
    n_heads, T, S = weights.shape  # of all sequences
    H = q.shape[-3] if q.ndim > 2 else 1  # of one sequence
    scale = scale_for(q, options)
    mask_and_steps = mask_of(keep_mask, q, k)
    kernel = row_kernel("attention", "weigh", q.dtype, n_heads * T)
    # weigh(scores, H, T, S, scale, mask, mask_batch, mask_head, mask_row, mask_column, causal)
    kernel(weights, H, T, S, scale, *mask_and_steps, options.causal)
    dropped = dropout(weights, options.dropout_rate, dropout_key)
    out = mended_product(dropped, matrices_of(v))
    return out.reshape(*q.shape[:-1], v.shape[-1]), weights.reshape(*q.shape[:-1], S)


@kernel_of(reference.attention_backward, dtypes=DTYPES, without="bias", knows="scale dropout_rate")
def attention_backward(dout, q, k, v, weights, bias, options, dropout_key):
    dout = matrices_of(dout)
    weights = matrices_of(weights)
    n_heads, T, S = weights.shape
    # At first the gradient of the weights, which the kernel turns into that of the scores.
    dscores = multiply(dout, matrices_of(v).swapaxes(1, 2))
    scale = scale_for(q, options)
    drop = dropout_arguments(options.dropout_rate, dropout_key, q.dtype)
    kernel = row_kernel("attention", "differentiate", q.dtype, n_heads * T)
    # differentiate(weights, dweights, S, scale, key, threshold, kept_scale)
    kernel(weights, dscores, S, scale, *drop)
    dropped = dropout(weights, options.dropout_rate, dropout_key)
    dq = mended_product(dscores, matrices_of(k))
    dk = mended_product(dscores.swapaxes(1, 2), matrices_of(q))
    dv = mended_product(dropped.swapaxes(1, 2), dout)
    return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)
