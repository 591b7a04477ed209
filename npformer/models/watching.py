"""The weights of attention, which the operations of a model do not return."""

from npformer.arrays import on_host
from npformer.reference.math.packed_attention import heads_of, split_qkv


def watched(ops, weights):
    """The operations; those of attention append their weights (B, H, T, S) to a list."""

    def self_attend(qkv, settings, keep_mask=None, *, bias=None, dropout_key=None):
        return cross_attend(*split_qkv(qkv, settings), settings, keep_mask, bias=bias)

    def cross_attend(q, kv, settings, keep_mask=None, *, bias=None, dropout_key=None):
        q, k, v = heads_of(q, kv, settings)
        options = settings.keywords_of_scores  # whole weights: nothing is dropped from them
        out, of_heads = ops.attention(q, k, v, keep_mask, bias=bias, **options)
        weights.append(on_host(of_heads))
        return ops.merge_heads(out), None, None  # nothing is kept for a backward pass

    return ops.replaced(self_attention=self_attend, cross_attention=cross_attend)
