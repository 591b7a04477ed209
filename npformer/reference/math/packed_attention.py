"""Multi-head attention of the result of one matrix product, in which q, k, v and all heads are side by side."""

from itertools import accumulate
from typing import Any

import numpy as np

from npformer.arrays import Array
from npformer.checks import shown
from npformer.operations.formula import backward_of, operation
from npformer.operations.options import check_rate_and_key
from npformer.reference.math.attention import attention, attention_backward, scores_of
from npformer.reference.math.heads import merge_heads
from npformer.reference.settings import AttentionOptions, AttentionSettings


def check_settings(settings, dropout_key, **others):
    """Raise for settings of a layer, or if weights are to be dropped, and there is no key to draw from."""
    check_operation_settings(settings)
    check_rate_and_key(settings.dropout_rate, dropout_key)


def check_operation_settings(settings, **others):
    """Raise for settings that a layer applies before the operation, which would ignore them."""
    if settings.of_layer:
        given = ", ".join(f"{name}={shown(value)}" for name, value in settings.of_layer.items())
        raise ValueError(f"settings with {given}: expected without, as layers.self_attention calls the operation")


@operation(
    "qkv: B T (H+2*G)*K>0, settings.n_heads = H, settings.n_kv_heads = G or H, "
    "keep_mask: ~ B H T T mask, bias: ~ B H T T -> out: B T H*K, peak: B H T wide, total: B H T wide",
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
    """Multi-head self-attention, with queries, keys and values side by side in one array (section 3.2.2).

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
        For the backward pass, which makes the weights again: the largest score of each query, -inf if it may attend to
        no key, and Σ_s exp(score - peak).

    >>> from npformer.reference.settings import AttentionSettings
    >>> out, peak, total = self_attention(np.ones((1, 10, 3 * 512)), AttentionSettings(n_heads=8))
    >>> out.shape, peak.shape, total.shape
    ((1, 10, 512), (1, 8, 10), (1, 8, 10))
    """
    q, k, v = for_all_heads(*split_parts(qkv, *settings.parts))
    heads, _ = attention(q, k, v, keep_mask, bias=bias, **settings.keywords(), dropout_key=dropout_key)
    # the scores again, so that attention is the formula of the paper
    return merge_heads(heads), *peak_and_total(scores_for(q, k, settings, keep_mask, bias))


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
) -> Any:
    """dqkv, or (dqkv, dbias) if there is a bias; the options must be those of the forward pass.

    >>> from npformer.reference.settings import AttentionSettings
    >>> qkv, settings = np.array([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]), AttentionSettings(1, causal=True)
    >>> saved = self_attention(qkv, settings)
    >>> dout = np.array([[[1.0], [0.0]]])  # only of position 0, which attends only to itself: out[0] = v[0]
    >>> self_attention_backward(dout, qkv, *saved, settings)
    array([[[0., 0., 1.],
            [0., 0., 0.]]])
    """
    q, k, v = for_all_heads(*split_parts(qkv, *settings.parts))
    weights = weights_again(scores_for(q, k, settings, keep_mask, bias), peak, total)
    dq, dk, dv, *dbias = gradients_of_heads(dout, q, k, v, weights, settings, bias, dropout_key)
    dqkv = join_parts(dq, *of_shared_heads(settings, dk, dv))
    return (dqkv, *dbias) if dbias else dqkv


@operation(
    "q: B T H*K>0, kv: B S 2*G*K, settings.n_heads = H, settings.n_kv_heads = G or H, "
    "keep_mask: ~ B H T S mask, bias: ~ B H T S -> out: B T H*K, peak: B H T wide, total: B H T wide",
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
    """Multi-head attention to another sequence, whose keys and values are side by side, as of a decoder to the source.

    >>> from npformer.reference.settings import AttentionSettings
    >>> cross_attention(np.ones((1, 10, 512)), np.ones((1, 7, 2 * 512)), AttentionSettings(8))[0].shape
    (1, 10, 512)
    """
    q, k, v = for_all_heads(*split_q_kv(q, kv, settings))
    heads, _ = attention(q, k, v, keep_mask, bias=bias, **settings.keywords(), dropout_key=dropout_key)
    # the scores again, so that attention is the formula of the paper
    return merge_heads(heads), *peak_and_total(scores_for(q, k, settings, keep_mask, bias))


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
    """The gradients (dq, dkv), and dbias if there is a bias; the options must be those of the forward pass.

    >>> from npformer.reference.settings import AttentionSettings
    >>> q, kv = np.array([[[1.0, 0.0]]]), np.array([[[2.0, 1.0, 10.0, 10.0], [2.0, -1.0, 20.0, 20.0]]])
    >>> saved = cross_attention(q, kv, AttentionSettings(2))  # in both heads, equal scores: out = 15
    >>> dq, dkv = cross_attention_backward(np.ones((1, 1, 2)), q, kv, *saved, AttentionSettings(2))
    >>> dq.round(6)  # in both heads, dscores = (10 - 15, 20 - 15) / 2
    array([[[ 0., -5.]]])
    >>> dkv.round(6)
    array([[[-2.5,  0. ,  0.5,  0.5],
            [ 2.5,  0. ,  0.5,  0.5]]])
    """
    q, k, v = for_all_heads(*split_q_kv(q, kv, settings))
    weights = weights_again(scores_for(q, k, settings, keep_mask, bias), peak, total)
    dq, dk, dv, *dbias = gradients_of_heads(dout, q, k, v, weights, settings, bias, dropout_key)
    return join_parts(dq), join_parts(*of_shared_heads(settings, dk, dv)), *dbias


def split_parts(x: Array, *n_heads: int) -> list[Array]:
    """Parts of x that lie side by side, each with this number of heads, as views: (B, T, ΣH·K) -> (B, H, T, K) each.

    This is the layout of all packed projections: the heads of the queries, then those of the keys, then those of the
    values.
    """
    B, T, width = x.shape
    heads = x.reshape(B, T, sum(n_heads), width // sum(n_heads)).swapaxes(1, 2)
    return [heads[:, end - n : end] for n, end in zip(n_heads, accumulate(n_heads), strict=True)]


def split_q_kv(q: Array, kv: Array, settings: AttentionSettings) -> list[Array]:
    """The heads of the queries, keys and values of two projections, as views."""
    H, *of_keys = settings.parts
    return split_parts(q, H) + split_parts(kv, *of_keys)


def join_parts(*parts: Array) -> Array:
    """The inverse of ``split_parts``: merge the heads of each part, and concatenate the parts."""
    return np.concatenate([merge_heads(part) for part in parts], axis=-1)


def repeated(heads: Array, n_heads: int) -> Array:
    """Each head of keys or values for all the heads of queries that share it: (B, G, S, K) -> (B, H, S, K)."""
    return np.repeat(heads, n_heads // heads.shape[1], axis=1)


def added_up(dheads: Array, n_kv_heads: int) -> Array:
    """The backward pass of ``repeated``: the gradients of heads that share one are added."""
    B, H, S, K = dheads.shape
    return dheads.reshape(B, n_kv_heads, H // n_kv_heads, S, K).sum(axis=2)


def for_all_heads(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """The heads of queries, keys and values, as many of each."""
    H = q.shape[1]
    return q, repeated(k, H), repeated(v, H)


def of_shared_heads(settings: AttentionSettings, *gradients: Array) -> list[Array]:
    """The backward pass of ``for_all_heads`` for keys and values."""
    _, G, _ = settings.parts
    return [added_up(dheads, G) for dheads in gradients]


def gradients_of_heads(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    weights: Array,
    settings: AttentionSettings,
    bias: Array | None,
    dropout_key: int | None,
) -> tuple[Array, ...]:
    """The results of ``attention_backward`` for all heads, given the gradient of their outputs side by side."""
    (dheads,) = split_parts(dout, settings.n_heads)
    options = settings.keywords("causal")  # a masked key has weight 0
    return attention_backward(dheads, q, k, v, weights, bias=bias, **options, dropout_key=dropout_key)


def scores_for(q: Array, k: Array, settings: AttentionSettings, keep_mask: Array | None, bias: Array | None) -> Array:
    """The scores of all heads, -inf where a query may not attend to a key."""
    return scores_of(q, k, keep_mask, bias=bias, **settings.keywords("dropout_rate"))


def peak_and_total(scores: Array) -> tuple[Array, Array]:
    """The largest score of each query, and Σ_s exp(score - peak); -inf and 0 if it may attend to no key.

    One number, peak + log(total), would not do: where scores are large, it has no digits left for the logarithm.

    >>> peak_and_total(np.array([[1e9, 1e9, -np.inf]]))
    (array([1.e+09]), array([2.]))
    """
    if scores.shape[-1] == 0:  # there is no largest of no scores
        peak = np.full_like(scores, -np.inf, shape=scores.shape[:-1])
        return peak, np.zeros_like(peak)
    peak = scores.real.max(axis=-1)
    return peak.astype(scores.dtype), exponentials(scores, peak).sum(axis=-1)


def weights_again(scores: Array, peak: Array, total: Array) -> Array:
    """softmax(scores), of which ``peak_and_total`` are known.

    >>> scores = np.log([[1.0, 3.0]])
    >>> weights_again(scores, *peak_and_total(scores))
    array([[0.25, 0.75]])
    """
    return exponentials(scores, peak.real) / np.where(total == 0, 1, total)[..., None]


def exponentials(scores: Array, peak: Array) -> Array:
    """exp(score - peak), 0 for all scores of a query that may attend to no key, of which the peak is -inf."""
    return np.exp(scores - np.where(np.isneginf(peak), 0, peak)[..., None])
