"""Multi-head attention."""

import math

import numpy as np

from npformer import reference
from npformer.exercises.exercise import Case, Mistake, Task, draw, sizes
from npformer.reference import attention, merge_heads, split_heads


def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads):
    q = split_heads(x @ w_q, n_heads)
    k = split_heads(x @ w_k, n_heads)
    v = split_heads(x @ w_v, n_heads)
    out, weights = attention(q, k, v)
    return merge_heads(out) @ w_o, weights


def expected(x, w_q, w_k, w_v, w_o, n_heads):
    """Head by head, with slices of the weights."""
    K = x.shape[-1] // n_heads
    slices = [slice(h * K, (h + 1) * K) for h in range(n_heads)]
    heads = [reference.attention(x @ w_q[:, s], x @ w_k[:, s], x @ w_v[:, s]) for s in slices]
    out = sum(out @ w_o[s] for (out, _), s in zip(heads, slices, strict=True))
    weights = np.stack([weights for _, weights in heads], axis=-3)
    return out, weights


def weights_of(rng, D):
    return draw(rng, 4, D, D) / math.sqrt(D)


def cases(rng):
    B, T, H, K = sizes(rng, 4, low=2)
    return [
        Case("two words, two heads", draw(rng, 2, 4), *weights_of(rng, 4), 2),
        Case("one head", draw(rng, T, K), *weights_of(rng, K), 1),
        Case("(3, 128), four heads", draw(rng, 3, 128), *weights_of(rng, 128), 4),
        Case("a batch", draw(rng, B, T, H * K), *weights_of(rng, H * K), H),
        Case("(10, 512), eight heads", draw(rng, 10, 512), *weights_of(rng, 512), 8),
    ]


exercise = Task(
    answer=multi_head_attention,
    title="multi-head self-attention: (10, 512) with eight heads",
    page="attention/heads",
    task="""
        Self-attention with H heads: project x to queries, keys and values, split each into heads, let every head attend,
        merge the heads, and project once more.

            q = x W_q,  k = x W_k,  v = x W_v          (T, D), split into (H, T, K)
            out_h = softmax(q_h k_hᵀ / √K) v_h         (T, K) in each head
            y = [out_1 … out_H] W_o                    (T, D)

        You may use split_heads, attention and merge_heads of npformer. (3, 128) with 4 heads: q is (4, 3, 32).""",
    arguments={
        "x": "(..., T, D) array",
        "w_q": "(D, D) array",
        "w_k": "(D, D) array",
        "w_v": "(D, D) array",
        "w_o": "(D, D) array",
        "n_heads": "int, a divisor of D",
    },
    results={"y": "(..., T, D) array", "weights": "(..., H, T, T) array, the weights of each head"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {
                "x @ w_q, n_heads": "x, n_heads",
                "x @ w_k, n_heads": "x, n_heads",
                "x @ w_v, n_heads": "x, n_heads",
            },
            "x is split into heads without the projections: q = x W_q, k = x W_k, v = x W_v",
        ),
        Mistake(
            {
                "x @ w_q, n_heads)": "x @ w_q, 1)",
                "x @ w_k, n_heads)": "x @ w_k, 1)",
                "x @ w_v, n_heads)": "x @ w_v, 1)",
            },
            "there is only one head: split q, k and v into n_heads heads",
        ),
        Mistake(
            {
                "split_heads(x @ w_q, n_heads)": "x @ w_q",
                "split_heads(x @ w_k, n_heads)": "x @ w_k",
                "split_heads(x @ w_v, n_heads)": "x @ w_v",
                "merge_heads(out)": "out",
            },
            "q, k and v are not split into heads",
        ),
        Mistake(
            {"@ w_q": "@ w_q.T", "@ w_k": "@ w_k.T", "@ w_v": "@ w_v.T"},
            "W_q, W_k and W_v are transposed: q = x W_q",
        ),
        Mistake(
            {"@ w_q": "@ w_q.T", "@ w_k": "@ w_k.T", "@ w_v": "@ w_v.T", "@ w_o": "@ w_o.T"},
            "the weights are transposed: q = x W_q, y = out W_o",
        ),
        Mistake({" @ w_o": ""}, "the projection W_o after the heads are merged is missing"),
        Mistake(
            {"k = split_heads(x @ w_k": "k = split_heads(x @ w_q"},
            "the keys are projected with W_q",
        ),
        Mistake(
            {"v = split_heads(x @ w_v": "v = split_heads(x @ w_k"},
            "the values are projected with W_k",
        ),
        Mistake(
            {"attention(q, k, v)": "attention(q, k, v, scale=x.shape[-1] ** -0.5)"},
            "the scores are divided by √D; each head has the width K = D / H, so divide by √K",
        ),
        Mistake({"attention(q, k, v)": "attention(k, q, v)"}, "queries and keys are exchanged"),
        Mistake(
            {"merge_heads(out) @ w_o": "merge_heads(out) @ w_o.T"}, "W_o is transposed: y = out W_o"
        ),
        Mistake(
            {"merge_heads(out)": "out.reshape(x.shape)"},
            "the heads are joined by reshape alone, which mixes positions and heads: merge_heads swaps axes first",
        ),
    ),
    hints=(
        "x @ w_q has the shape of x; split_heads(…, n_heads) turns it into (..., H, T, K).",
        "attention works on the last two axes, so all heads are computed by one call, which also scales by √K.",
        "merge_heads brings the result back to (..., T, D), and `@ w_o` is the last step.",
    ),
    needs=("from npformer import attention, merge_heads, split_heads",),
)
