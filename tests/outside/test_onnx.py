"""npformer's operations against the test cases that ONNX publishes for its operators.

``pytest tests/outside -s -rs`` prints how many cases of each operator are run, and why others are
not.
"""

import warnings
from collections import Counter
from functools import cache

import numpy as np
import pytest
from onnx_operators import OPERATORS, NotExpressed
from oracles import assert_close

from npformer import reference

onnx = pytest.importorskip("onnx")

# Errors are relative to the largest entry, or to 1: four units in the last place, and two of half
# precision, in which ONNX rounds after each step, and npformer the result alone. (ONNX's own bound
# is 0.001 of each entry, which is 8,389 units of float32, and less than one of bfloat16.)
TOLERANCE = {
    "float64": 4 * 2**-52,
    "float32": 4 * 2**-23,
    "float16": 2 * 2**-10,
    "bfloat16": 2 * 2**-7,
}


def collected():
    """The cases of the operators that npformer has, by name,
    except for those in which ONNX expands an operator.
    """
    from onnx.backend.test.case.node import collect_testcases

    state = np.random.get_state()
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of cases of other operators
        cases = collect_testcases(None)
    np.random.set_state(state)
    cases = {case.name: (case.model.graph.node[0], *case.data_sets[0]) for case in cases}
    return {
        n: case
        for n, case in cases.items()
        if case[0].op_type in OPERATORS and "_expanded" not in n
    }


CASES = collected()


@cache
def computed(name, ops):
    """The outputs of the node, once for each way to compute them,
    or the reason why there is none.
    """
    node, given, _ = CASES[name]
    given = iter(given)
    inputs = [next(given) if name else None for name in node.input]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    attributes = {name: x.decode() if isinstance(x, bytes) else x for name, x in attributes.items()}
    try:
        return list(OPERATORS[node.op_type](ops, *inputs, **attributes))
    except NotExpressed as reason:
        return reason


@pytest.mark.parametrize("name", CASES)
def test_outputs(name, every_backend):
    (node, _, expected), ways = CASES[name], computed(name, every_backend)
    if isinstance(ways, NotExpressed):
        pytest.skip(f"{node.op_type}: {ways}")
    places = [i for i, output in enumerate(node.output) if output]
    assert all(ways[0][i] is not None for i in places)
    for outputs in ways:
        for i, y in zip(places, expected, strict=True):
            if i < len(outputs) and outputs[i] is not None:
                assert_same(np.asarray(outputs[i]), np.asarray(y))


def assert_same(actual, expected):
    assert actual.dtype == expected.dtype
    dtype, masked = expected.dtype.name, np.isneginf(expected)  # scores before softmax
    assert (np.isneginf(actual) == masked).all()
    actual, expected = (np.where(masked, 0, x).astype("float64") for x in (actual, expected))
    assert_close(actual, expected, TOLERANCE.get(dtype, 0))


def test_most_cases_are_run():
    cases = Counter(node.op_type for node, *_ in CASES.values())
    run = Counter(
        CASES[name][0].op_type for name in CASES if isinstance(computed(name, reference.ops), list)
    )
    for name in sorted(cases):
        print(f"{name:26} {cases[name]:4} cases, {run[name]:4} run")
    of_attention = {name for name in cases if name.endswith("Attention")}
    for operators in (of_attention, {"Gather", "Gemm"}, cases.keys()):
        assert share(run, cases, operators) >= 0.95, operators


def share(run, cases, operators):
    return sum(run[name] for name in operators) / sum(cases[name] for name in operators)
