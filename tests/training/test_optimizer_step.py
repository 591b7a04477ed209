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
    nf.SGD(nf.inverse_sqrt(0.1, 2)),
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


PARAMS = {"layer": {"weight": np.ones((2, 3)), "bias": np.zeros(3)}}
GRADS = {"layer": {"weight": np.ones((2, 3)), "bias": np.ones(3)}}
ADAM = nf.Adam(0.1)


STATE = ADAM.init(PARAMS)
LAYER = GRADS["layer"]


@pytest.mark.parametrize(
    ("grads", "state", "message"),
    [
        (
            {"layer": {"weight": LAYER["weight"]}},
            STATE,
            "the gradient of layer.bias: given nothing",
        ),
        (
            {"layer": LAYER | {"gain": np.ones(1)}},
            STATE,
            "the gradient of layer.gain: given shape (1,), expected nothing",
        ),
        (
            {"layer": LAYER | {"weight": np.ones((3, 2))}},
            STATE,
            "the gradient of layer.weight: given shape (3, 2), expected shape (2, 3): try its .T",
        ),
        ([1, 2], STATE, "grads is a list, expected a nested dict"),
        (GRADS, {"n_steps": 0}, "state has ['n_steps'], expected what Adam.init(params) returns"),
        (GRADS, None, "state has a NoneType, expected what Adam.init(params) returns"),
        (
            GRADS,
            ADAM.init({"other": np.ones(2)}),
            "m of layer.weight: given nothing, expected shape (2, 3)",
        ),
        (GRADS, STATE | {"n_steps": -1}, "state['n_steps']=-1, expected"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_changed(grads, state, message):
    params = tree.map_leaves(np.copy, PARAMS)
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        ADAM.step(params, grads, state)
    assert str(params) == str(PARAMS)


def read_only():
    x = np.ones(3)
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    ("param", "grad", "message"),
    [
        (
            np.ones((3, 2)).T,  # an update of a copy would be lost
            np.ones((2, 3)),
            "parameter b is not contiguous, expected np.ascontiguousarray",
        ),
        (read_only(), np.ones(3), "parameter b is read-only"),
        (np.ones(3), np.ones(3, int), "the gradient of b has dtype int64"),
        (np.ones(3), np.ones(3, complex), "the gradient of b has dtype complex128"),
    ],
)
def test_a_step_that_is_refused_has_changed_nothing(param, grad, message):
    params = {"a": np.ones(3), "b": param}
    state = ADAM.init(params)
    with pytest.raises((ValueError, TypeError), match=message):
        ADAM.step(params, {"a": np.ones(3), "b": grad}, state)
    assert params["a"].tolist() == [1, 1, 1]
    assert state["n_steps"] == 0
    assert not state["m"]["a"].any()


WEIGHT = np.ones(3)
DTYPES = "float16", "int64", "complex128", "bool"


@pytest.mark.parametrize(
    "params, error, message",
    [
        *(
            (
                {"a": np.ones(3, x)},
                TypeError,
                f"parameter a has dtype {x}, expected float32 or float",
            )
            for x in DTYPES
        ),
        ({"a": [1.0, 2.0]}, TypeError, "the tree has a list at a, expected an array"),
        ({"s": np.float64(1)}, TypeError, "parameter s is a float64, expected an array"),
        (
            {"a.b": np.ones(1), "a": {"b": np.ones(1)}},
            ValueError,
            "two parameters have the path a.b, expected names that differ",
        ),
        (
            {"a": WEIGHT, "b": WEIGHT},  # it would be updated twice
            ValueError,
            "parameter b is the array of a, expected arrays of their own",
        ),
    ],
)
def test_what_an_update_could_not_change_or_tell_apart_is_refused(params, error, message):
    with pytest.raises(error, match=message):
        ADAM.init(params)


def test_numbers_that_are_too_large_or_none_are_refused():
    optimizer, params = nf.SGD(lambda step: 1e300), {"a": np.ones(1, np.float32)}
    with pytest.raises(ValueError, match=r"lr\(1\)=1e\+300 is inf in float32"):
        optimizer.step(params, params, optimizer.init(params))
    with pytest.raises(ValueError, match="max_norm=-1, expected"):
        nf.clip_by_global_norm(params, -1)


def test_clipping_of_extreme_gradients():
    grads = {"a": np.full(2, 3e38, np.float32)}
    clipped, norm = nf.clip_by_global_norm(grads, 1e-8)
    assert abs(float(np.linalg.norm(clipped["a"].astype(float))) - 1e-8) < 1e-12
    for bad in (np.inf, np.nan):
        grads = {"a": np.array([1.0, bad])}
        same, norm = nf.clip_by_global_norm(grads, 1.0)
        assert same is grads and not np.isfinite(norm)


def test_the_registry_has_all_optimizers():
    def kinds_of(kind):
        return {kind}.union(*map(kinds_of, kind.__subclasses__()))

    kinds = kinds_of(nf.training.optimizers.Optimizer)
    names = {kind.__name__ for kind in kinds if kind.__module__.startswith("npformer.")}
    assert names - {"Optimizer"} == set(OPTIMIZERS)


def test_a_dict_that_is_empty_need_not_be_in_the_gradients():
    params = {"block": {}, "w": np.ones(3)}
    optimizer = nf.SGD(0.1)
    optimizer.step(params, {"w": np.ones(3)}, optimizer.init(params))
    np.testing.assert_allclose(params["w"], 0.9)
