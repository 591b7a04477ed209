"""Attention in tiles, with a running softmax."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw


def running_attention(q, blocks):
    peak, total, out = -np.inf, 0.0, 0.0
    for k, v in blocks:
        scores = k @ q / np.sqrt(len(q))
        new_peak = np.maximum(peak, scores.max())
        e = np.exp(scores - new_peak)
        shrink = np.exp(peak - new_peak)
        total = total * shrink + e.sum()
        out = out * shrink + e @ v
        peak = new_peak
    return out / total


class Blocks:
    """Blocks of keys and values, which can be gone through once, as an iterator."""

    def __init__(self, *blocks):
        self.blocks = blocks

    def fresh(self):
        """The iterator that a function is given; a block is overwritten when the next one is asked for."""
        given = []
        for k, v in self.blocks:
            for x in given:
                x[:] = np.nan
            given = [k.copy(), v.copy()]
            yield tuple(given)

    def __repr__(self):
        return f"(blocks of {', '.join(str(len(k)) for k, _ in self.blocks)} keys)"


def blocks_of(rng, lengths, K, Kv, scale=1.0):
    return Blocks(*((scale * draw(rng, S, K), draw(rng, S, Kv)) for S in lengths))


def expected(q, blocks):
    k, v = (
        np.concatenate(side)
        for side in zip(*((k.copy(), v.copy()) for k, v in blocks), strict=True)
    )
    return reference.attention(q[None], k, v)[0][0]


def cases(rng):
    K, Kv, S = (int(n) for n in rng.integers(1, 7, size=3))
    rising = Blocks(*((np.full((1, 1), x), draw(rng, 1, 2)) for x in (0.0, 400.0, 900.0)))
    falling = Blocks(*((np.full((1, 1), x), draw(rng, 1, 2)) for x in (900.0, 400.0, 0.0)))
    low = Blocks(*((np.full((1, 1), x), draw(rng, 1, 2)) for x in (-901.0, -900.0)))
    return [
        Case("one block", draw(rng, 2), blocks_of(rng, [3], 2, 2)),
        Case("two blocks", draw(rng, 4), blocks_of(rng, [2, 3], 4, 2)),
        Case("blocks of one key", draw(rng, K), blocks_of(rng, [1] * S, K, Kv)),
        Case("many blocks", draw(rng, K), blocks_of(rng, [4, 4, 4, 2], K, Kv)),
        Case("scores that grow to 900", np.ones(1), rising),
        Case("scores that fall from 900", np.ones(1), falling),
        Case(
            "scores of 0 and 900 in one block",
            np.ones(1),
            Blocks((np.array([[0.0], [900.0]]), draw(rng, 2, 2))),
        ),
        Case("scores of -900", np.ones(1), low),
    ]


exercise = Task(
    answer=running_attention,
    title="attention in tiles, with a running softmax",
    page="gradients/tiles",
    task="""
        Attention of one query, without all scores in memory: the keys and values come in blocks, and each block is seen
        once.

            for k, v in blocks: ...            k is (S, K), v is (S, Kv); S may differ from block to block

        Return softmax(q kᵀ / √K) v over the keys of all blocks. Keep three things: the largest score so far, the sum of
        the exponentials, and the sum of the values times the exponentials. When a larger score comes, the old sums have
        to be made smaller. Scores of 900 must not overflow. A block is overwritten when the next one comes, so do not
        collect them.""",
    arguments={"q": "(K,) array", "blocks": "iterator of (k, v)"},
    results={"out": "(Kv,) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {"out * shrink": "out", "total * shrink": "total"},
            "neither of the old sums is made smaller when the maximum grows",
        ),
        Mistake(
            {"in blocks": "in list(blocks)"},
            "the blocks are collected, but a block is overwritten when the next one comes: use each block at once",
        ),
        Mistake(
            {"scores - new_peak": "scores", "peak - new_peak": "0"},
            "exp(900) overflows: subtract the largest score so far",
        ),
        Mistake(
            {"out * shrink": "out"},
            "the sum of the values is not made smaller when the maximum grows",
        ),
        Mistake(
            {"total * shrink": "total"},
            "the sum of the exponentials is not made smaller when the maximum grows",
        ),
        Mistake(
            {"shrink = np.exp(peak - new_peak)": "shrink = np.exp(new_peak - peak)"},
            "the old sums are multiplied by exp(new - old); they have to shrink: exp(old - new)",
        ),
        Mistake(
            {"np.maximum(peak, scores.max())": "scores.max()"},
            "the maximum is that of the block, not the largest so far: it can overflow when the scores fall",
        ),
        Mistake(
            {"return out / total": "return out"},
            "the division by the sum of the exponentials is missing",
        ),
        Mistake({" / np.sqrt(len(q))": ""}, explanations.NOT_DIVIDED),
        Mistake(
            {
                "        total = total": "        out = out / max(total, 1e-300)\n        total = total"
            },
            "the division is done in every block: divide once, at the end",
        ),
        Mistake(
            {"peak, total, out = -np.inf": "peak, total, out = 0.0"},
            "the maximum begins at 0: scores of -900 then give 0 / 0; begin at -inf",
        ),
    ),
    hints=(
        "With a maximum m, the sums are Σ exp(s - m) and Σ exp(s - m) v; out is their quotient, whatever m is.",
        "If m grows to m', multiply both old sums by exp(m - m').",
        "Begin with m = -inf and sums of 0: exp(-inf) = 0.",
    ),
)
