"""``Optimizer.init`` and ``step``: training in a loop by hand."""

import re

import numpy as np
import pytest
from promises import assert_trees_close
from refusals import refuses
from trainings import reversed_order

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


@pytest.mark.parametrize("optimizer", KINDS, ids=repr)
def test_a_loop_by_hand_is_a_training(optimizer, every_backend):
    """Leaves are updated as the flat array, bit for bit, whatever the order of the gradients."""
    trainer = nf.Trainer(MODEL, optimizer, backend=every_backend, n_shards=1, seed=3)
    params = MODEL.init(3)
    state = optimizer.init(params)
    for step in range(4):
        batch = TASK.batch(step, 4)
        key = nf.derive_key(3, step, 0)
        _, grads, _ = MODEL.loss_and_grad(params, *batch, dropout_key=key, backend=every_backend)
        optimizer.step(params, reversed_order(grads), state, backend=every_backend)
        trainer.step(*batch)
    assert state["n_steps"] == 4
    flat, _ = tree.flatten(params)
    assert flat.tobytes() == trainer.flat_params.tobytes()
    for name in optimizer.moments:
        flat, _ = tree.flatten(state[name])
        assert flat.tobytes() == trainer.state.moments[name].tobytes()


@pytest.mark.parametrize("clip_norm", [0.1, 1e9])
def test_clipping_is_that_of_the_trainer(clip_norm):
    optimizer = nf.SGD(0.1)
    trainer = nf.Trainer(MODEL, optimizer, n_shards=1, clip_norm=clip_norm)
    params = MODEL.init(0)
    batch = TASK.batch(0, 4)
    _, grads, _ = MODEL.loss_and_grad(params, *batch, dropout_key=nf.derive_key(0, 0, 0))
    clipped, norm = nf.clip_by_global_norm(grads, clip_norm)
    optimizer.step(params, clipped, optimizer.init(params))
    trainer.step(*batch)
    assert abs(norm - trainer.last.grad_norm) <= 1e-15 * norm
    assert_trees_close(params, trainer.params, 1e-15)
    assert (clipped is grads) == (norm < clip_norm)


LAYER = {"weight": np.ones((2, 3)), "bias": np.ones(3)}
ADAM = nf.Adam(0.1)


def test_what_does_not_fit_is_named_and_nothing_is_changed():
    params = {"layer": tree.map_leaves(np.copy, LAYER)}
    state = ADAM.init(params)

    def refused(message, grads, state=state, error=ValueError):
        refuses(error, re.escape(message), ADAM.step, params, grads, state)

    def refused_layer(message, **layer):
        refused(f"the gradient of layer.{message}", {"layer": layer})

    refused_layer("bias: given nothing", weight=LAYER["weight"])
    refused_layer("gain: given shape (1,), expected nothing", **LAYER, gain=np.ones(1))
    shapes = "given shape (3, 2), expected shape (2, 3): try its .T"
    refused_layer(f"weight: {shapes}", weight=np.ones((3, 2)), bias=LAYER["bias"])
    refused("grads is a list, expected a nested dict", [1, 2], error=TypeError)
    grads = {"layer": LAYER}
    expected = "expected what Adam.init(params) returns"
    refused(f"state has ['n_steps'], {expected}", grads, {"n_steps": 0})
    refused(f"state has a NoneType, {expected}", grads, None)
    other = ADAM.init({"other": np.ones(2)})
    refused("m of layer.weight: given nothing, expected shape (2, 3)", grads, other)
    refused("state['n_steps']=-1, expected", grads, state | {"n_steps": -1})
    assert_trees_close(params["layer"], LAYER)


def read_only():
    x = np.ones(3)
    x.flags.writeable = False
    return x


def test_a_step_that_is_refused_has_changed_nothing():
    def refused(message, param, grad, error=ValueError):
        params = {"a": np.ones(3), "b": param}
        state = ADAM.init(params)
        refuses(error, message, ADAM.step, params, {"a": np.ones(3), "b": grad}, state)
        assert params["a"].tolist() == [1, 1, 1]
        assert state["n_steps"] == 0
        assert not state["m"]["a"].any()

    # an update of a copy would be lost
    message = "parameter b is not contiguous, expected np.ascontiguousarray"
    refused(message, np.ones((3, 2)).T, np.ones((2, 3)))
    refused("parameter b is read-only", read_only(), np.ones(3))
    refused("the gradient of b has dtype int64", np.ones(3), np.ones(3, int), TypeError)
    refused("the gradient of b has dtype complex128", np.ones(3), np.ones(3, complex), TypeError)


def test_what_an_update_could_not_change_or_tell_apart_is_refused():
    def refused(message, params, error=TypeError):
        refuses(error, message, ADAM.init, params)

    for dtype in ("float16", "int64", "complex128", "bool"):
        message = f"parameter a has dtype {dtype}, expected float32 or float"
        refused(message, {"a": np.ones(3, dtype)})
    refused("the tree has a list at a, expected an array", {"a": [1.0, 2.0]})
    refused("parameter s is a float64, expected an array", {"s": np.float64(1)})
    message = "two parameters have the path a.b, expected names that differ"
    refused(message, {"a.b": np.ones(1), "a": {"b": np.ones(1)}}, ValueError)
    weight = np.ones(3)  # it would be updated twice
    message = "parameter b is the array of a, expected arrays of their own"
    refused(message, {"a": weight, "b": weight}, ValueError)


def test_numbers_that_are_too_large_or_none_are_refused():
    optimizer = nf.SGD(lambda step: 1e300)
    params = {"a": np.ones(1, np.float32)}
    message = r"lr\(1\)=1e\+300 is inf in float32"
    refuses(ValueError, message, optimizer.step, params, params, optimizer.init(params))
    refuses(ValueError, "max_norm=-1, expected", nf.clip_by_global_norm, params, -1)
    message = "the gradient of a.bias is None, expected an array"
    grads = {"a": {"weight": np.ones(1), "bias": None}}
    refuses(TypeError, message, nf.clip_by_global_norm, grads, 1.0)


def test_clipping_of_extreme_gradients():
    grads = {"a": np.full(2, 3e38, np.float32)}
    clipped, _ = nf.clip_by_global_norm(grads, 1e-8)
    norm = np.linalg.norm(clipped["a"].astype(float))
    assert abs(norm - 1e-8) < 1e-12
    for bad in (np.inf, np.nan):
        grads = {"a": np.array([1.0, bad])}
        same, norm = nf.clip_by_global_norm(grads, 1.0)
        assert same is grads
        assert not np.isfinite(norm)


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
