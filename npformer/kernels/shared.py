"""Kernels that are the same in each backend except for the functions that they call.

These functions are given: ``kernel_of`` of the backend, and ``empty(shape, dtype)``, which returns
a new array, among them. ``Backend.kernel_of`` (``operations/backend.py``) says what it does, and
what ``as_it_lies`` and ``without`` are.
"""

from functools import partial
from typing import NamedTuple, Protocol

from npformer import reference
from npformer.reference.math.attention import summed_to
from npformer.reference.math.convolution import taps
from npformer.reference.math.packed_attention import split_heads, split_q_kv, split_qkv


class LossOptions(NamedTuple):
    """The options of a loss. In a recorded step, numbers are arrays of shape () on the GPU."""

    ignore_id: int | None
    label_smoothing: float
    n_tokens: int | None
    loss_scale: float
    consistency: float | None = None  # of two predictions


def make_loss_kernels(kernel_of, linear, loss_and_gradient):
    """Make the kernels of cross-entropy, also of two predictions, and also after a linear map.

    ``loss_and_gradient(logits, bias, targets, options, may_overwrite)`` returns the loss of the
    logits plus the bias, and its gradient, which it may write over the logits. ``options`` is a
    ``LossOptions`` whose ``n_tokens`` is a number.
    """

    @kernel_of(reference.cross_entropy)
    def cross_entropy(logits, targets, ignore_id, label_smoothing, n_tokens, loss_scale):
        options = LossOptions(ignore_id, label_smoothing, n_tokens, loss_scale)
        return loss_of(logits, None, targets, options, may_overwrite=False)

    @kernel_of(reference.linear_cross_entropy, as_it_lies="weight")
    def linear_cross_entropy(
        x, weight, bias, targets, ignore_id, label_smoothing, n_tokens, loss_scale
    ):
        options = LossOptions(ignore_id, label_smoothing, n_tokens, loss_scale)
        return loss_of(linear(x, weight), bias, targets, options, may_overwrite=True)

    @kernel_of(reference.paired_cross_entropy)
    def paired_cross_entropy(
        logits, targets, consistency, ignore_id, label_smoothing, n_tokens, loss_scale
    ):
        options = LossOptions(ignore_id, label_smoothing, n_tokens, loss_scale, consistency)
        return loss_of(logits, None, targets, options, may_overwrite=False)

    @kernel_of(reference.linear_paired_cross_entropy, as_it_lies="weight")
    def linear_paired_cross_entropy(
        x, weight, bias, targets, consistency, ignore_id, label_smoothing, n_tokens, loss_scale
    ):
        options = LossOptions(ignore_id, label_smoothing, n_tokens, loss_scale, consistency)
        return loss_of(linear(x, weight), bias, targets, options, may_overwrite=True)

    def loss_of(logits, bias, targets, options, may_overwrite):
        if options.n_tokens is None:
            n_tokens = targets.size  # known without a look at the GPU
            if options.ignore_id is not None:
                n_tokens = int((targets != options.ignore_id).sum())
            if n_tokens == 0:
                return NotImplemented  # The reference warns that no target is counted.
            options = options._replace(n_tokens=n_tokens)
        return loss_and_gradient(logits, bias, targets, options, may_overwrite)


def make_rotary_kernels(kernel_of, turned):
    """Make the kernels of rotary positions, forward and backward, of a function with the arguments
    of ``rotary``.
    """
    kernel_of(reference.rotary)(turned)

    @kernel_of(reference.rotary_backward)
    def rotary_backward(dy, positions, n_heads, n_plain, base, scaling, pairs, llama3):
        # Positions are divided by the scaling: a negative one turns by the opposite angles.
        return turned(dy, positions, n_heads, n_plain, base, -scaling, pairs, llama3)


def make_convolution_kernels(kernel_of, empty, multiply, sum_over_rows, as_it_lies=""):
    """Make the kernels of convolution, in which each tap is one matrix product.

    The arrays are in (T, B, D) order, in which the inputs that a tap sees are contiguous, and so
    are the outputs that see them; in (B, T, D) order each sequence would need a product of its own.
    ``multiply(a, b, out, add)`` writes a b, or adds it to ``out``. In half precision the sum is
    rounded after each tap. Inputs and dy are copied into this order, so they may lie anywhere;
    ``as_it_lies`` is "weight" if ``multiply`` reads that in any layout.
    """

    @kernel_of(reference.conv1d, as_it_lies=f"x {as_it_lies}")
    def conv1d(x, weight, bias, dilation, causal):
        B, T, _ = x.shape
        rows = by_time(x)
        y = empty((T * B, weight.shape[2]), x.dtype)
        y[...] = 0 if bias is None else bias
        for w, outputs, inputs in taps(T, len(weight), dilation, causal):
            multiply(rows[all_of(inputs, B)], weight[w], y[all_of(outputs, B)], add=True)
        return by_sequence(y, B)

    @kernel_of(reference.conv1d_backward, as_it_lies=f"x dy {as_it_lies}")
    def conv1d_backward(dy, x, weight, bias, dilation, causal):
        B, T, _ = x.shape
        rows = by_time(x)
        drows = by_time(dy)
        dx = empty(rows.shape, x.dtype)
        dweight = empty(weight.shape, x.dtype)
        dx[...] = 0
        dweight[...] = 0
        for w, outputs, inputs in taps(T, len(weight), dilation, causal):
            multiply(drows[all_of(outputs, B)], weight[w].T, dx[all_of(inputs, B)], add=True)
            multiply(rows[all_of(inputs, B)].T, drows[all_of(outputs, B)], dweight[w], add=False)
        return by_sequence(dx, B), dweight, None if bias is None else sum_over_rows(drows)

    def by_time(x):
        """(B, T, D) as (T·B, D)."""
        B, T, D = x.shape
        rows = empty((T * B, D), x.dtype)
        rows.reshape(T, B, D)[...] = x.swapaxes(0, 1)
        return rows

    def by_sequence(rows, B):
        """(T·B, D) as (B, T, D)."""
        T = len(rows) // B
        D = rows.shape[1]
        x = empty((B, T, D), rows.dtype)
        x[...] = rows.reshape(T, B, D).swapaxes(0, 1)
        return x

    def all_of(positions, B):
        """The rows of a (T·B, D) array that belong to these time steps."""
        return slice(positions.start * B, positions.stop * B)


class HeadAttention(Protocol):
    """Attention of heads (B, H, T, K) that lie anywhere: a module of a backend."""

    KNOWN: str  # the fields of ``AttentionOptions`` that it knows

    def as_heads(self, x):
        """(..., T, K) as (B, H, T, K)."""

    def kernel_options(self, q, k, keep_mask, bias, options, dropout_key):
        """The options as ``attend`` and ``attend_backward`` take them."""

    def attend(self, q, k, v, out, options):
        """Write ``out``, and return (peak, total), or ``NotImplemented``."""

    def attend_backward(self, dout, heads, saved, gradients, options):
        """Write the gradients (dq, dk, dv) from the heads (q, k, v, out) and (peak, total). Return
        that of the bias for each head, or ``NotImplemented``.
        """


def make_flash_kernels(kernel_of, empty, module: HeadAttention, without=""):
    """Make the kernels of ``flash_attention``, whose arguments have any number of leading axes.

    The output and the gradients are C-contiguous, head by head, so ``merge_heads`` copies them. The
    packed kernels below write heads side by side: nothing is copied there.
    """
    flash_kernel_of = partial(kernel_of, without=without, knows=module.KNOWN)

    @flash_kernel_of(reference.flash_attention, as_it_lies="q k v")
    def flash_attention(q, k, v, keep_mask, bias, options, dropout_key):
        out = empty((*q.shape[:-1], v.shape[-1]), q.dtype)
        heads = map(module.as_heads, (q, k, v, out))
        kernel_options = module.kernel_options(q, k, keep_mask, bias, options, dropout_key)
        peak_and_total = module.attend(*heads, kernel_options)
        if peak_and_total is NotImplemented:
            return NotImplemented
        peak, total = peak_and_total
        return out, peak.reshape(q.shape[:-1]), total.reshape(q.shape[:-1])

    @flash_kernel_of(reference.flash_attention_backward, as_it_lies="dout q k v out")
    def flash_attention_backward(
        dout, q, k, v, out, peak, total, keep_mask, bias, options, dropout_key
    ):
        heads = tuple(map(module.as_heads, (q, k, v, out)))
        rows_shape = heads[0].shape[:-1]
        saved = (peak.reshape(rows_shape), total.reshape(rows_shape))
        gradients = tuple(empty(x.shape, x.dtype) for x in (q, k, v))
        dheads = tuple(map(module.as_heads, gradients))
        kernel_options = module.kernel_options(q, k, keep_mask, bias, options, dropout_key)
        dbias = module.attend_backward(module.as_heads(dout), heads, saved, dheads, kernel_options)
        if dbias is NotImplemented:
            return NotImplemented
        return gradients if bias is None else (*gradients, of_bias(dbias, bias, q))


def of_bias(dbias, bias, q):
    """The gradient of a bias, from that for each head."""
    return summed_to(dbias.reshape(*q.shape[:-2], *dbias.shape[2:]), bias.shape)


def make_packed_kernels(kernel_of, empty, module: HeadAttention, without=""):
    """Make the kernels of attention on packed projections, whose heads are views of them."""
    packed_kernel_of = partial(kernel_of, without=without, knows=module.KNOWN)

    def forward(q, kv, settings, keep_mask, bias, dropout_key):
        q, k, v = split_q_kv(q, kv, settings)
        B, H, T, K = q.shape
        out = empty((B, T, H * K), q.dtype)
        options = module.kernel_options(q, k, keep_mask, bias, settings, dropout_key)
        peak_and_total = module.attend(q, k, v, split_heads(out, H), options)
        if peak_and_total is NotImplemented:
            return NotImplemented
        return out, *peak_and_total

    packed_kernel_of(reference.cross_attention)(forward)

    @packed_kernel_of(reference.self_attention)
    def self_attention(qkv, settings, keep_mask, bias, dropout_key):
        q, kv = split_qkv(qkv, settings)
        return forward(q, kv, settings, keep_mask, bias, dropout_key)

    @packed_kernel_of(reference.cross_attention_backward)
    def cross_attention_backward(
        dout, q, kv, out, peak, total, settings, keep_mask, bias, dropout_key
    ):
        dq = empty(q.shape, q.dtype)
        dkv = empty(kv.shape, kv.dtype)
        inputs = (q, kv)
        results = (out, peak, total)
        gradients = (dq, dkv)
        dbias = backward(dout, inputs, results, gradients, settings, keep_mask, bias, dropout_key)
        if dbias is NotImplemented:
            return NotImplemented
        return (dq, dkv) if dbias is None else (dq, dkv, dbias)

    @packed_kernel_of(reference.self_attention_backward)
    def self_attention_backward(
        dout, qkv, out, peak, total, settings, keep_mask, bias, dropout_key
    ):
        dqkv = empty(qkv.shape, qkv.dtype)
        inputs = split_qkv(qkv, settings)
        gradients = split_qkv(dqkv, settings)
        results = (out, peak, total)
        dbias = backward(dout, inputs, results, gradients, settings, keep_mask, bias, dropout_key)
        if dbias is NotImplemented:
            return NotImplemented
        return dqkv if dbias is None else (dqkv, dbias)

    def backward(dout, inputs, results, gradients, settings, keep_mask, bias, dropout_key):
        """Write the gradients (dq, dkv) of the inputs (q, kv), and return that of the bias, or None
        without one.
        """
        out, peak, total = results
        q, k, v = split_q_kv(*inputs, settings)
        heads = (q, k, v, split_heads(out, settings.n_heads))
        dout_heads = split_heads(dout, settings.n_heads)
        dheads = split_q_kv(*gradients, settings)
        options = module.kernel_options(q, k, keep_mask, bias, settings, dropout_key)
        dbias = module.attend_backward(dout_heads, heads, (peak, total), dheads, options)
        if dbias is NotImplemented or bias is None:
            return dbias
        return summed_to(dbias, bias.shape)
