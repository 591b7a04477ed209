"""Multi-head attention of packed projections, in which all heads are side by side.

The width H·K becomes H heads of width K, which stand before the T positions, as each head attends
on its own (Vaswani et al. 2017, section 3.2.2). A projection makes queries, keys and values of all
heads with one matrix product, which is faster than one for each. So a packed array has the axes
(B, T, heads · K): the H heads of the queries, then the G of the keys, then the G of the values. If
G < H, H / G heads of queries share a head of keys and values.
"""

import numpy as np

from npformer.arrays import Array
from npformer.checks import shown
from npformer.errors import UserError
from npformer.operations.formula import backward_of, operation
from npformer.operations.options import check_rate_and_key
from npformer.operations.settings import AttentionOptions, AttentionSettings
from npformer.reference.math.attention import attention, attention_backward, scores_of


@operation("x: ... T H*K, n_heads = H -> y: ... H T K")
def split_heads(x: Array, n_heads: int) -> Array:
    """Split the width D into H heads of width K = D/H and move the head axis before T: (B, T, D) ->
    (B, H, T, K).

    Head h is ``x[..., h * K : (h + 1) * K]``. ``merge_heads`` is the inverse, and the backward
    pass. A UserError is raised if D is not divisible by ``n_heads``.

    >>> split_heads(np.zeros((1, 10, 512)), n_heads=8).shape
    (1, 8, 10, 64)
    """
    *batch, T, D = x.shape
    return x.reshape(*batch, T, n_heads, D // n_heads).swapaxes(-2, -3)


@operation("x: ... H T K -> y: ... T H*K")
def merge_heads(x: Array) -> Array:
    """Concatenate the heads: (B, H, T, K) -> (B, T, D). ``split_heads`` is the inverse, and the
    backward pass.

    >>> merge_heads(np.zeros((1, 8, 10, 64))).shape
    (1, 10, 512)
    """
    *batch, H, T, K = x.shape
    return x.swapaxes(-2, -3).reshape(*batch, T, H * K)


def check_settings(settings, dropout_key, **others):
    """Raise for settings of a layer, or if weights are to be dropped, and there is no key to draw
    from.
    """
    check_operation_settings(settings)
    check_rate_and_key(settings.dropout_rate, dropout_key)


def check_operation_settings(settings, **others):
    """Raise for settings that a layer applies before the operation, which would ignore them."""
    if settings.layer_options:
        pairs = settings.layer_options.items()
        options = ", ".join(f"{name}={shown(value)}" for name, value in pairs)
        expected = "without, as layers.self_attention calls the operation"
        raise UserError(f"settings with {options}: expected {expected}")


@operation(
    "qkv: B T (H+2*G)*K>0, settings.n_heads = H, settings.n_kv_heads = G or H, "
    "keep_mask: ~ B H T T mask, bias: ~ B H T T "
    "-> out: B T H*K, peak: B H T wide, total: B H T wide",
    check=check_settings,
    flops="4*B*H*T*T*K",
    options=AttentionOptions,
)
def self_attention(
    qkv: Array,
    settings: AttentionSettings,
    keep_mask: Array | None = None,
    *,
    bias: Array | None = None,
    dropout_key: int | None = None,
) -> tuple[Array, Array, Array]:
    """Multi-head self-attention, with queries, keys and values side by side in one array (section
    3.2.2).

    The mask, the bias and the dropout are those of ``attention``.

    Parameters
    ----------
    qkv
        Queries, keys and values: one projection of one input.

    Returns
    -------
    out
        The outputs of all heads, side by side.
    peak, total
        For the backward pass, which makes the weights again: the largest score of each query, -inf
        if it may attend to no key, and Σ_s exp(score - peak).

    >>> from npformer.operations.settings import AttentionSettings
    >>> out, peak, total = self_attention(np.ones((1, 10, 3 * 512)), AttentionSettings(n_heads=8))
    >>> out.shape, peak.shape, total.shape
    ((1, 10, 512), (1, 8, 10), (1, 8, 10))
    """
    q, kv = split_qkv(qkv, settings)
    return cross_attention(q, kv, settings, keep_mask, bias=bias, dropout_key=dropout_key)


@backward_of(self_attention, check=check_settings, flops="10*B*H*T*T*K")
def self_attention_backward(
    dout: Array,
    qkv: Array,
    out: Array,
    peak: Array,
    total: Array,
    settings: AttentionSettings,
    keep_mask: Array | None = None,
    *,
    bias: Array | None = None,
    dropout_key: int | None = None,
) -> Array | tuple[Array, ...]:
    """dqkv, or (dqkv, dbias) if there is a bias; the options must be those of the forward pass.

    >>> from npformer.operations.settings import AttentionSettings
    >>> qkv = np.array([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])
    >>> settings = AttentionSettings(1, causal=True)
    >>> saved = self_attention(qkv, settings)
    >>> dout = np.array([[[1.0], [0.0]]])  # only of position 0, where out[0] = v[0]
    >>> self_attention_backward(dout, qkv, *saved, settings)
    array([[[0., 0., 1.],
            [0., 0., 0.]]])
    """
    q, kv = split_qkv(qkv, settings)
    saved = (q, kv, out, peak, total)
    dq, dkv, *dbias = cross_attention_backward(
        dout, *saved, settings, keep_mask, bias=bias, dropout_key=dropout_key
    )
    dqkv = np.concatenate([dq, dkv], axis=-1)
    return (dqkv, *dbias) if dbias else dqkv


@operation(
    "q: B T H*K>0, kv: B S 2*G*K, settings.n_heads = H, settings.n_kv_heads = G or H, "
    "keep_mask: ~ B H T S mask, bias: ~ B H T S "
    "-> out: B T H*K, peak: B H T wide, total: B H T wide",
    check=check_settings,
    flops="4*B*H*T*S*K",
    options=AttentionOptions,
)
def cross_attention(
    q: Array,
    kv: Array,
    settings: AttentionSettings,
    keep_mask: Array | None = None,
    *,
    bias: Array | None = None,
    dropout_key: int | None = None,
) -> tuple[Array, Array, Array]:
    """Multi-head attention to another sequence, whose keys and values are side by side, as of a
    decoder to the source.

    >>> from npformer.operations.settings import AttentionSettings
    >>> q, kv = np.ones((1, 10, 512)), np.ones((1, 7, 2 * 512))
    >>> cross_attention(q, kv, AttentionSettings(n_heads=8))[0].shape
    (1, 10, 512)
    """
    q, k, v = heads_of(q, kv, settings)
    options = settings.keywords
    heads, _ = attention(q, k, v, keep_mask, bias=bias, **options, dropout_key=dropout_key)

    # The scores again, as ``attention`` is the formula of the paper, which does not return them. Of
    # each row the backward pass needs these two numbers, to make the weights again.
    scores = scores_of(q, k, keep_mask, bias=bias, **settings.keywords_of_scores)
    peak, total = peak_and_total(scores)
    return merge_heads(heads), peak, total


@backward_of(cross_attention, check=check_settings, flops="10*B*H*T*S*K")
def cross_attention_backward(
    dout: Array,
    q: Array,
    kv: Array,
    out: Array,
    peak: Array,
    total: Array,
    settings: AttentionSettings,
    keep_mask: Array | None = None,
    *,
    bias: Array | None = None,
    dropout_key: int | None = None,
) -> tuple[Array, ...]:
    """The gradients (dq, dkv), and dbias if there is a bias; the options must be those of the
    forward pass.

    >>> from npformer.operations.settings import AttentionSettings
    >>> q = np.array([[[1.0, 0.0]]])
    >>> kv = np.array([[[2.0, 1.0, 10.0, 10.0], [2.0, -1.0, 20.0, 20.0]]])
    >>> saved = cross_attention(q, kv, AttentionSettings(2))  # equal scores in both heads: out = 15
    >>> dq, dkv = cross_attention_backward(np.ones((1, 1, 2)), q, kv, *saved, AttentionSettings(2))
    >>> dq.round(6)  # in both heads, dscores = (10 - 15, 20 - 15) / 2
    array([[[ 0., -5.]]])
    >>> dkv.round(6)
    array([[[-2.5,  0. ,  0.5,  0.5],
            [ 2.5,  0. ,  0.5,  0.5]]])
    """
    # The weights again: the forward pass returned two numbers for each query in place of S weights.
    q, k, v = heads_of(q, kv, settings)
    scores = scores_of(q, k, keep_mask, bias=bias, **settings.keywords_of_scores)
    weights = exponentials(scores, peak.real) / np.where(total == 0, 1, total)[..., None]

    # Each head on its own. The causal mask is not needed: a masked key has weight 0.
    dheads = split_heads(dout, settings.n_heads)
    options = settings.keywords_of_backward
    dq, dk, dv, *dbias = attention_backward(
        dheads, q, k, v, weights, bias=bias, **options, dropout_key=dropout_key
    )

    # Side by side, as kv is.
    dk = merge_heads(added_up(dk, settings.n_key_heads))
    dv = merge_heads(added_up(dv, settings.n_key_heads))
    dkv = np.concatenate([dk, dv], axis=-1)
    return merge_heads(dq), dkv, *dbias


def split_qkv(qkv, settings):
    """Queries (B, T, H·K), and keys with values (B, T, 2·G·K), as views."""
    K = qkv.shape[-1] // settings.n_packed_heads
    width = settings.n_heads * K
    return qkv[..., :width], qkv[..., width:]


def split_q_kv(q, kv, settings):
    """The heads of queries, keys and values, as views: (B, H, T, K), and twice (B, G, S, K)."""
    G = settings.n_key_heads
    heads = split_heads(kv, 2 * G)
    return split_heads(q, settings.n_heads), heads[:, :G], heads[:, G:]


def heads_of(q, kv, settings):
    """``split_q_kv``, with each head of keys and values once for each head of queries that shares
    it: all three have H heads.
    """
    q, k, v = split_q_kv(q, kv, settings)
    n_shared = settings.n_heads // settings.n_key_heads
    k = np.repeat(k, n_shared, axis=1)
    v = np.repeat(v, n_shared, axis=1)
    return q, k, v


def added_up(dheads, n_kv_heads):
    """The backward pass of ``np.repeat``: the gradients of heads that share one are added."""
    B, H, S, K = dheads.shape
    return dheads.reshape(B, n_kv_heads, H // n_kv_heads, S, K).sum(axis=2)


def peak_and_total(scores):
    """The largest score of each query, and Σ_s exp(score - peak); -inf and 0 if it may attend to no
    key.

    One number, peak + log(total), would not do: where scores are large, it has no digits left for
    the logarithm.

    >>> peak_and_total(np.array([[1e9, 1e9, -np.inf]]))
    (array([1.e+09]), array([2.]))
    """
    if scores.shape[-1] == 0:  # there is no largest of no scores
        peak = np.full_like(scores, -np.inf, shape=scores.shape[:-1])
        return peak, np.zeros_like(peak)
    peak = scores.real.max(axis=-1)
    total = exponentials(scores, peak).sum(axis=-1)
    return peak.astype(scores.dtype), total


def exponentials(scores, peak):
    """exp(score - peak); 0 for a query that may attend to no key, whose peak is -inf."""
    shift = np.where(np.isneginf(peak), 0, peak)
    return np.exp(scores - shift[..., None])
