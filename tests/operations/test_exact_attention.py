"""Attention in tiles is as exact as attention, which holds all weights.

It is so where scores are large, and where nothing moves.

The exact result is what the reference computes in NumPy's long double.
"""

import numpy as np
import pytest
from on_gpu import ON_GPU, smaller
from results import BACKENDS, WITH_LONG_DOUBLE, attend, normal

from npformer import reference
from npformer.gradients.drawing import cast

pytestmark = WITH_LONG_DOUBLE
T = 7
HUGE = np.float32(-1e9)  # added to scores, it leaves them no digits
BIASED = {
    "a bias of -1e9 on one row": lambda S: np.full(S, 2) == np.arange(T)[:, None],
    "a bias of -1e9 on all": np.ones,
    "a bias of -1e9 on two thirds": lambda S: np.arange(S) % 3,
}
SEES_ONE_KEY = {"one visible key": T, "one visible key or all": 3}  # the first rows
FACTORS = {  # of the queries and of the keys
    "scores of 1e4": (1e4, 1),
    "scores of 1e4 and keys of 100": (1e2, 1e2),
}
HARD = ["standard normal", "causal", *BIASED, *SEES_ONE_KEY, *FACTORS]


def options_of(name, S):
    """The options of attention to S keys with which rounding is hard."""
    if name in BIASED:
        return {"bias": np.where(BIASED[name](S), HUGE, np.float32(0))}
    if name in SEES_ONE_KEY:
        rows = SEES_ONE_KEY[name]
        visible = np.random.default_rng(0).integers(0, S, (rows, 1))
        keep_mask = np.ones((T, S), bool)
        keep_mask[:rows] = np.arange(S) == visible
        return {"keep_mask": keep_mask}
    return {"causal": name == "causal"}


def errors(actual, exact):
    """The errors of all numbers of the output, and of each gradient, together.

    The largest one alone depends on the order of the sums, which processors choose.
    """
    found = []
    for x, wanted in zip(actual, exact, strict=True):
        found.append(np.linalg.norm((x - wanted).astype(float)))
    return np.array(found)


@pytest.mark.parametrize("ops", BACKENDS)
@pytest.mark.parametrize("S", [2, 60, 200, 300, 5000])
@pytest.mark.parametrize("name", HARD)
def test_tiles_are_four_times_as_far_off_as_attention_at_most(ops, name, S):
    """Where a query sees one key, the gradients of queries and keys are exactly 0 in both."""
    if ops is ON_GPU:
        S = smaller(S)
    options = options_of(name, S)
    of_queries, of_keys = FACTORS.get(name, (1, 1))
    q = of_queries * normal(1, 2, T, 16, seed=1)
    k = of_keys * normal(1, 2, S, 16, seed=2)
    v = normal(1, 2, S, 12, seed=3)
    arrays = cast((q, k, v, normal(1, 2, T, 12)), "float32")
    exact = attend("attention", *cast(arrays, np.longdouble), ops=reference, **options)
    bounds = 4 * errors(attend("attention", *arrays, ops=ops, **options), exact)
    tiled = attend("flash_attention", *arrays, ops=ops, **options)
    assert (errors(tiled, exact) <= bounds).all()
