"""The operations of decoding, which processes one token at a time. They have no backward pass.

There is one query for each of B rows, H heads of width K side by side. The cache is a table of P
entries, and ``at`` says which S of them each row sees.
"""

import numpy as np

from npformer.arrays import Array
from npformer.operations.formula import operation
from npformer.operations.settings import AttentionOptions, AttentionSettings
from npformer.reference.math.attention import attention
from npformer.reference.math.packed_attention import check_operation_settings, heads_of
from npformer.reference.math.softmax import log_softmax


@operation(
    "q: B H*K>0, kv: P 2*G*K, at: B S ids<P, settings.n_heads = H, settings.n_kv_heads = G or H, "
    "keep_mask: B 1 1 S mask, bias: ~ B H 1 S -> out: B H*K",
    check=check_operation_settings,
    flops="4*B*H*S*K",
    options=AttentionOptions,
)
def cached_attention(
    q: Array,
    kv: Array,
    at: Array,
    settings: AttentionSettings,
    keep_mask: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """Attention of one query per row to keys and values that were computed before and are stored in
    a cache.

    Several rows may point to the same entry, as beams with a common beginning do: no entry is
    copied when the beams diverge.

    Parameters
    ----------
    kv
        The cache: a key and a value, all heads side by side, in each of its P entries.
    at
        The cache entries of the S keys of each row.
    settings
        Only keys that may be attended to are in the cache, and nothing is dropped: ``causal`` and
        ``dropout_rate`` are not used.
    keep_mask
        As of ``padding_mask``: True = may attend.
    bias
        Is added to the scores.

    Returns
    -------
    out
        The outputs of all heads, side by side.

    >>> from npformer.operations.settings import AttentionSettings
    >>> kv = np.array([[0.0, 1.0], [0.0, 3.0], [0.0, np.nan]])  # three entries, D = 1
    >>> cached_attention(np.ones((2, 1)), kv, np.array([[0, 1], [1, 1]]), AttentionSettings(1))
    array([[2.],
           [3.]])
    """
    queries, k, v = heads_of(q[:, None], kv[at], settings)
    options = settings.keywords_of_scores  # a single query, the newest, sees all keys if causal
    heads, _ = attention(queries, k, v, keep_mask, bias=bias, **options)
    return heads.reshape(q.shape)


@operation("x: B V>0 -> values: B k, ids: B k ids")
def log_softmax_top_k(x: Array, k: int) -> tuple[Array, Array]:
    """The k largest entries of log softmax(x) in each row, the largest first, and their indices.

    k is at least 1; if V < k, all V entries are returned. If logits are equal, the one with the
    lowest id comes first, as with ``argmax``.

    >>> values, ids = log_softmax_top_k(np.log(np.array([[0.1, 0.6, 0.3]])), k=2)
    >>> np.exp(values).round(3), ids
    (array([[0.6, 0.3]]), array([[1, 2]]))
    """
    order = np.argsort(-x.real, axis=-1, kind="stable")
    ids = order[:, :k]
    log_p = log_softmax(x)
    return np.take_along_axis(log_p, ids, axis=-1), ids
