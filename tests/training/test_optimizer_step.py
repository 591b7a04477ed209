"""``Optimizer.init`` and ``step``: training in a loop by hand."""

import re

import numpy as np
import pytest

import npformer as nf
from npformer import tree
from npformer.training import OPTIMIZERS

MODEL = nf.Transformer(
    11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=16, norm="post", dtype="float64"
)
TASK = nf.CopyTask(vocab=11, max_len=5)
KINDS = [
    nf.SGD(0.1),
    nf.SGD(0.1, momentum=0.9, nesterov=True),
    nf.Adam(0.01),
    nf.AdamW(0.01, weight_decay=0.3),
    nf.Lion(0.01, weight_decay=0.3),
]


def reversed_order(params):
    if not isinstance(params, dict):
        return params
    return {name: reversed_order(child) for name, child in reversed(params.items())}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("optimizer", KINDS, ids=repr)
def test_a_loop_by_hand_is_a_training(optimizer, backend):
    """Leaves are updated as the flat array, bit for bit, whatever the order of the gradients."""
    trainer = nf.Trainer(MODEL, optimizer, backend=backend, n_shards=1, seed=3)
    params = MODEL.init(3)
    state = optimizer.init(params)
    for step in range(4):
        batch = TASK.batch(step, 4)
        key = nf.derive_key(3, step, 0)
        _, grads, _ = MODEL.loss_and_grad(params, *batch, dropout_key=key, backend=backend)
        optimizer.step(params, reversed_order(grads), state, backend=backend)
        trainer.step(*batch)
    assert state["n_steps"] == 4
    assert tree.flatten(params)[0].tobytes() == trainer.flat_params.tobytes()
    for name in optimizer.moments:
        assert tree.flatten(state[name])[0].tobytes() == trainer.state.moments[name].tobytes()


def test_clipping_is_that_of_the_trainer():
    optimizer = nf.SGD(0.1)
    trainer = nf.Trainer(MODEL, optimizer, n_shards=1, clip_norm=0.1)
    params, batch = MODEL.init(0), TASK.batch(0, 4)
    _, grads, _ = MODEL.loss_and_grad(params, *batch, dropout_key=nf.derive_key(0, 0, 0))
    clipped, norm = nf.clip_by_global_norm(grads, 0.1)
    optimizer.step(params, clipped, optimizer.init(params))
    trainer.step(*batch)
    assert abs(norm - trainer.last.grad_norm) <= 1e-15 * norm
    np.testing.assert_allclose(tree.flatten(params)[0], trainer.flat_params, rtol=0, atol=1e-15)
    same, _ = nf.clip_by_global_norm(grads, 1e9)
    assert same is grads


def test_a_schedule_is_followed_from_step_one():
    optimizer = nf.SGD(lambda step: 0.1 * step)
    params = {"x": np.zeros(1)}
    state = optimizer.init(params)
    seen = []
    for _ in range(3):
        optimizer.step(params, {"x": np.ones(1)}, state)
        seen.append(round(-float(params["x"][0]), 6))
    assert seen == [0.1, 0.3, 0.6]


PARAMS = {"layer": {"weight": np.ones((2, 3)), "bias": np.zeros(3)}}
GRADS = {"layer": {"weight": np.ones((2, 3)), "bias": np.ones(3)}}
ADAM = nf.Adam(0.1)


@pytest.mark.parametrize(
    ("grads", "state", "message"),
    [
        (
            {"layer": {"weight": np.ones((2, 3))}},
            ADAM.init(PARAMS),
            "the gradient of layer.bias: given nothing",
        ),
        (
            {"layer": GRADS["layer"] | {"gain": np.ones(1)}},
            ADAM.init(PARAMS),
            "the gradient of layer.gain: given shape",
        ),
        (
            {"layer": GRADS["layer"] | {"weight": np.ones((3, 2))}},
            ADAM.init(PARAMS),
            "the gradient of layer.weight: given shape (3, 2), expected shape (2, 3): try its .T",
        ),
        ([1, 2], ADAM.init(PARAMS), "grads is a list, expected a nested dict"),
        (
            GRADS,
            nf.SGD(0.1).init(PARAMS),
            "state has ['n_steps'], expected what Adam.init(params) returns",
        ),
        (GRADS, None, "state has a NoneType, expected what Adam.init(params) returns"),
        (
            GRADS,
            ADAM.init({"other": np.ones(2)}),
            "m of layer.weight: given nothing, expected shape (2, 3)",
        ),
        (GRADS, ADAM.init(PARAMS) | {"n_steps": -1}, "state['n_steps']=-1, expected"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_changed(grads, state, message):
    params = tree.map_leaves(np.copy, PARAMS)
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        ADAM.step(params, grads, state)
    assert all(
        (x == y).all()
        for (_, x), (_, y) in zip(tree.leaves(params), tree.leaves(PARAMS), strict=True)
    )


def test_parameters_that_are_no_contiguous_arrays_are_refused():
    """An update of a copy would be lost."""
    params = {"weight": np.ones((3, 2)).T}
    with pytest.raises(
        ValueError, match="parameter weight is not contiguous, expected np.ascontiguousarray"
    ):
        ADAM.step(params, {"weight": np.ones((2, 3))}, ADAM.init(params))
    with pytest.raises(TypeError, match="the tree has a list at a, expected an array"):
        ADAM.init({"a": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("bad", "grad", "message"),
    [
        (np.asfortranarray(np.ones((2, 3))), np.ones((2, 3)), "parameter b is not contiguous"),
        (
            np.broadcast_to(np.ones(1), (3,)).copy(),
            np.ones(3, int),
            "the gradient of b has dtype int64",
        ),
        (np.ones(3), np.ones(3, complex), "the gradient of b has dtype complex128"),
    ],
)
def test_a_step_that_is_refused_has_changed_nothing(bad, grad, message):
    params = {"a": np.ones(3), "b": bad}
    state = ADAM.init(params)
    with pytest.raises((ValueError, TypeError), match=message):
        ADAM.step(params, {"a": np.ones(3), "b": grad}, state)
    assert params["a"].tolist() == [1, 1, 1]
    assert state["n_steps"] == 0
    assert not state["m"]["a"].any()


def test_a_read_only_parameter_is_refused_before_any_is_updated():
    params = {"a": np.ones(3), "b": np.ones(3)}
    state = ADAM.init(params)
    params["b"].flags.writeable = False
    with pytest.raises(ValueError, match="parameter b is read-only"):
        ADAM.step(params, {"a": np.ones(3), "b": np.ones(3)}, state)
    assert params["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["float16", "int64", "complex128", "bool"])
def test_parameters_of_other_dtypes_are_refused(dtype):
    with pytest.raises(
        TypeError, match=f"parameter a has dtype {dtype}, expected float32 or float64"
    ):
        ADAM.init({"a": np.ones(3, dtype)})


def test_what_an_update_could_not_change_or_tell_apart_is_refused():
    with pytest.raises(TypeError, match="parameter s is a float64, expected an array"):
        ADAM.init({"s": np.float64(1)})
    with pytest.raises(
        ValueError, match="two parameters have the path a.b, expected names that differ"
    ):
        ADAM.init({"a.b": np.ones(1), "a": {"b": np.ones(1)}})
    optimizer, params = nf.SGD(lambda step: 1e300), {"a": np.ones(1, np.float32)}
    with pytest.raises(ValueError, match=r"lr\(1\)=1e\+300 is inf in float32"):
        optimizer.step(params, {"a": np.ones(1, np.float32)}, optimizer.init(params))
    with pytest.raises(ValueError, match="max_norm=-1, expected"):
        nf.clip_by_global_norm(params, -1)


def test_an_array_at_two_places_would_be_updated_twice():
    weight = np.ones(3)
    with pytest.raises(
        ValueError, match="parameter b is the array of a, expected arrays of their own"
    ):
        ADAM.init({"a": weight, "b": weight})


def test_clipping_of_extreme_gradients():
    grads = {"a": np.full(2, 3e38, np.float32)}
    clipped, norm = nf.clip_by_global_norm(grads, 1e-8)
    assert abs(float(np.linalg.norm(clipped["a"].astype(float))) - 1e-8) < 1e-12
    for bad in (np.inf, np.nan):
        grads = {"a": np.array([1.0, bad])}
        same, norm = nf.clip_by_global_norm(grads, 1.0)
        assert same is grads and not np.isfinite(norm)


def test_the_registry_has_all_optimizers():
    kinds = set(nf.training.optimizers.Optimizer.__subclasses__())
    while more := {kind for each in kinds for kind in each.__subclasses__()} - kinds:
        kinds |= more
    assert {kind.__name__ for kind in kinds if kind.__module__.startswith("npformer.")} == set(
        OPTIMIZERS
    )


def test_a_dict_that_is_empty_need_not_be_in_the_gradients():
    params = {"block": {}, "w": np.ones(3)}
    optimizer = nf.SGD(0.1)
    optimizer.step(params, {"w": np.ones(3)}, optimizer.init(params))
    np.testing.assert_allclose(params["w"], 0.9)
