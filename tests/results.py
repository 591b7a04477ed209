"""Helpers for the tests of operations.

Arguments from the table of cases, and comparisons of results.
"""

import time

import numpy as np
import pytest
from on_gpu import MISSING, ON_GPU
from tested import npf

from npformer import cpu, reference
from npformer.gradients.cases import CASES
from npformer.reference.math.scores import SCORES
from npformer.runtime import threads

# on a GPU, or on the processor in its place if there is a compiler
WITH_GPU = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))
KERNELS = [pytest.param(cpu.ops, id="cpu"), pytest.param(ON_GPU, id="gpu", marks=WITH_GPU)]
EVERY_KERNEL = pytest.mark.parametrize("ops", KERNELS)
WITH_LONG_DOUBLE = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than float64 here"
)
FLOATS = pytest.mark.parametrize("dtype", ["float32", "float64"])
BOTH_ATTENTIONS = pytest.mark.parametrize("name", ["attention", "flash_attention"])
BACKENDS = [pytest.param(reference.ops, id="reference"), *KERNELS]
OPERATIONS = {name: getattr(reference.ops, name) for name in reference.Ops.names()}
# the first case of each operation
FIRST = {name: case for case in reversed(CASES) for name in case.names}


def normal(*shape, seed=0, dtype="float64"):
    """Random numbers, the same for the same seed and shape."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def arguments_of(name, dtype="float64"):
    """Valid arguments of an operation, from its first case."""
    return FIRST[name].arguments_of(name, dtype)


def dtypes_of(case):
    """The dtypes in which kernels compute a case.

    The kernels of attention are compiled apart, for seconds, for each dtype, with a bias or without
    one, and with softcap or without it. Six of these eight hold all pairs, and tell as much; with
    softcap, models train in float32 without a bias.
    """
    if case.options.get("softcap") is None:
        return ["float32", "float64"]
    has_bias = case.options.get("bias", "drawn") is not None
    return ["float64"] if has_bias else ["float32"]


def with_half_precision(case):
    """``dtypes_of`` a case, and float16, which kernels compute in float32."""
    dtypes = dtypes_of(case)
    return [*dtypes, "float16"] if "float32" in dtypes else dtypes


def written_by(name):
    """The names of the arrays that an operation changes."""
    return [x.name for x in OPERATIONS[name].record.contract.arrays.values() if x.kind == "written"]


def run(ops, name, arguments):
    """The results of an operation, followed by the arrays that it has written to."""
    return list(named_results(ops, name, arguments).values())


def named_results(ops, name, arguments):
    """The results of an operation by their names, followed by the arrays that it has written to."""
    results = arrays_of(getattr(ops, name)(**arguments))
    names = [x.name for x in OPERATIONS[name].record.contract.results]
    # A contract may leave some of them open.
    names += [f"result {i}" for i in range(len(names), len(results))]
    named = {result: x for result, x in zip(names, results, strict=False) if x is not None}
    written = {
        f"{x}, written to": arguments[x] for x in written_by(name) if arguments[x] is not None
    }
    return named | written


ATTENTIONS = ["attention", "flash_attention", *SCORES]


def attend(name, q, k, v, dout, keep_mask=None, causal=False, params=(), ops=npf, **options):
    """Attention, attention in tiles, or attention with a score of this name, and its backward
    pass: ``[out, dq, dk, dv, *dparams]``.
    """
    if name == "attention":
        out, weights = ops.attention(q, k, v, keep_mask, causal=causal, **options)
        return [out, *ops.attention_backward(dout, q, k, v, weights, **options)]
    if name == "flash_attention":
        saved = ops.flash_attention(q, k, v, keep_mask, causal=causal, **options)
        arrays = dout, q, k, v, *saved, keep_mask
        return [saved[0], *ops.flash_attention_backward(*arrays, causal=causal, **options)]
    out, weights = ops.score_attention(q, k, v, name, params, keep_mask, causal=causal)
    return [out, *ops.score_attention_backward(dout, q, k, v, weights, name, params)]


def params_of_score(name, n_query, n_key, n_hidden=17):
    """Random parameters of a score of queries and keys of these widths."""
    normal = np.random.default_rng(3).standard_normal
    if name == "bilinear":
        return (normal((n_query, n_key)),)
    if name == "additive":
        w_q, w_k = normal((n_query, n_hidden)), normal((n_key, n_hidden))
        return 0.3 * w_q, 0.3 * w_k, normal(n_hidden)
    return ()


def arrays_of(result):
    """What an operation returned, as a list of arrays."""
    return list(result) if isinstance(result, tuple) else [result]


def assert_equal_within(bound, dtype, actual, expected, labels=None):
    """Results of the same shapes and dtypes,
    which differ by ``bound`` rounding errors of the largest entry at most.
    """
    labels = labels or [f"result {i}" for i in range(len(expected))]
    for x, wanted, label in zip(actual, expected, labels, strict=True):
        x, wanted = np.asarray(x), np.asarray(wanted)
        assert (x.shape, x.dtype) == (wanted.shape, wanted.dtype), label
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(x[~finite], wanted[~finite], err_msg=label)
        atol = bound * np.finfo(dtype).eps * max(np.abs(wanted[finite]).max(initial=0), 1e-30)
        np.testing.assert_allclose(x[finite], wanted[finite], rtol=0, atol=atol, err_msg=label)


def assert_same_with_helpers(work, expected, threads, monkeypatch):
    """``work()`` returns the same bits with so many threads,
    also fifty times while all helpers are awake.
    """
    from npformer.cpu.few_rows import helpers

    monkeypatch.setattr(helpers, "n_kernel_threads", lambda: threads)
    monkeypatch.setattr(helpers, "cores_are_taken", lambda: False)
    n_awake, deadline = 0, time.monotonic() + 60  # they have to be compiled first
    while n_awake < 50 and time.monotonic() < deadline:
        np.testing.assert_array_equal(work(), expected)
        n_awake += int(helpers.board[helpers.AWAKE] == min(threads, helpers.PIECES) - 1)
    assert n_awake == 50


def wait_for_helpers():
    """Wait until the helpers of an earlier work have said that they are idle.

    A work that begins before has fewer.
    """
    until = time.monotonic() + 10
    while len(threads._idle) < len(threads._helpers) and time.monotonic() < until:
        time.sleep(0.001)
