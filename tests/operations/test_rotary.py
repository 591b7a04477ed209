"""Rotary positions: pair by pair, the two published forms,
and what makes the positions relative.
"""

import inspect
import json
from functools import partial

import numpy as np
import pytest
from oracles import assert_close
from promises import params_of
from refusals import refuses
from tested import npf

from npformer import Transformer, tree
from npformer.layers import Rotary
from npformer.models import describe, from_description

B, T, H, P, K = 2, 5, 3, 2, 8
X = np.random.default_rng(0).standard_normal((B, T, (H + P) * K))
POSITIONS = np.arange(-4, 6).reshape(B, T) ** 3
SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 8, "max_len": 9, "dtype": "float64"}
pytestmark = pytest.mark.usefixtures("every_backend")


def test_the_published_forms():
    """The sum x cos + rotate_half(x) sin of GPT-NeoX and Llama,
    and the complex product of the paper's pairs.
    """
    x = X[..., :K].copy()
    angles = POSITIONS[..., None] * 10000.0 ** (-np.arange(0, K, 2) / K)
    twice = np.concatenate([angles, angles], -1)
    first, second = np.split(x, 2, axis=-1)
    rotate_half = np.concatenate([-second, first], -1)
    assert_close(npf.rotary(x, POSITIONS), x * np.cos(twice) + rotate_half * np.sin(twice))
    turned = x.view(complex) * np.exp(1j * angles)
    assert_close(npf.rotary(x, POSITIONS, pairs="interleaved"), turned.view(float))


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
def test_dot_products_depend_on_distances_and_lengths_on_nothing(pairs):
    def turned(x, positions):
        return npf.rotary(np.tile(x, (len(positions), 1)), positions, pairs=pairs)

    q, k = X[0, :2, :K]
    positions = np.array([5, 105, -3])
    at_m = turned(q, positions)
    at_n = turned(k, positions - 3)
    [at_distance] = turned(q, np.array([3]))
    assert_close((at_m * at_n).sum(axis=-1), np.full(3, at_distance @ k))
    assert_close((at_m**2).sum(axis=-1), np.full(3, q @ q))


def test_a_head_of_an_odd_width_and_a_negative_number_of_heads():
    message = r"x has shape \(2, 5, 40\), expected .*\(H\+G\)\*2\*M divisible by 16"
    refuses(ValueError, message, npf.rotary, X, POSITIONS, n_heads=8)
    message = "n_plain=-1, expected at least 0"
    refuses(ValueError, message, npf.rotary, X, POSITIONS, n_heads=6, n_plain=-1)


def test_positions_that_int64_cannot_hold_are_refused():
    x = X[0, :2, :K]
    positions = np.array([3, 2**63 - 1], np.uint64)
    assert_close(npf.rotary(x, positions), npf.rotary(x, positions.astype(np.int64)))
    for operation in (npf.rotary, npf.rotary_backward):
        message = rf"positions\[1\] is {2**63}, expected 0 <= id < {2**63}"
        refuses(ValueError, message, operation, x, positions + np.array([0, 1], np.uint64))


def test_a_rotary_model(every_backend):
    """A source that is moved by padding gives the same logits, and not one that is reversed.

    Old descriptions load.
    """
    model = rotary_model()
    ids = np.array([[3, 4, 5, 6]])
    params = model.init(0)

    def logits_of(src):
        return model.logits(params, src, ids[:, :3], backend=every_backend)

    logits = logits_of(ids)
    assert_close(logits_of(np.pad(ids, ((0, 0), (3, 0)))), logits)
    assert np.abs(logits_of(ids[:, ::-1]) - logits).max() > 1e-3
    assert model.position_table is None
    described = describe(model)
    old = {name: described[name] for name in described.keys() - {"positions", "rotary"}}
    assert from_description(old) == Transformer(11, 11, **SIZES)
    assert from_description(old | {"positions": "rotary"}) == model
    long = rotary_model(max_len=2**30)
    assert from_description(describe(long), tree.to_arrays(long.init(0), "params")) == long
    message = "d_model=6, n_heads=2: heads of odd width 3 cannot be rotary"
    refuses(ValueError, message, rotary_model, d_model=6)


def rotary_model(**options):
    return Transformer(11, 11, **{**SIZES, "positions": "rotary", **options})


def test_the_defaults_of_the_record_are_those_of_the_operations():
    for operation in (npf.rotary, npf.rotary_backward):
        parameters = inspect.signature(operation).parameters
        defaults = {name: parameters[name].default for name in vars(Rotary())}
        assert vars(Rotary()) == defaults


def test_the_settings_of_a_model(every_backend):
    default = rotary_model(rotary=None)
    set_ = rotary_model(rotary=Rotary())
    model = rotary_model(rotary={"base": 500.0, "scaling": 2, "pairs": "interleaved"})
    assert model.rotary == Rotary(500.0, 2.0, "interleaved")
    params = params_of(model)
    src = np.array([[3, 4, 5, 6], [7, 8, 9, 0]])
    tgt = np.array([[1, 3, 4]] * 2)
    logits = default.logits(params, src, tgt, backend=every_backend)
    assert_close(set_.logits(params, src, tgt, backend=every_backend), logits)
    other = model.logits(params, src, tgt, backend=every_backend)
    assert np.abs(other - logits).max() > 1e-3
    description = json.loads(json.dumps(describe(model)))
    assert from_description(description, tree.to_arrays(params, "params")) == model


def test_settings_that_contradict_each_other_or_do_not_exist():
    def refused(message, rotary, positions="rotary", error=ValueError):
        refuses(error, message, rotary_model, positions=positions, rotary=rotary)

    other = "rotary=Rotary.*positions='learned', expected positions='rotary'"
    refused(other, Rotary(), "learned")
    refused("base=-1.0, expected a finite number above 0", {"base": -1.0})
    refused("factor=0.0, expected a finite number above 0", {"llama3": {"factor": 0.0}})
    one_of_them = "scaling=2.0 with llama3=Llama3Scaling.* one of them"
    refused(one_of_them, {"llama3": {"factor": 8.0}, "scaling": 2.0})
    equal = "high_freq_factor=1.0, expected above low_freq_factor=1.0"
    refused(equal, {"llama3": {"factor": 8.0, "high_freq_factor": 1.0}})

    refused_type = partial(refused, error=TypeError)
    unknown = "high=1.0 is no setting of llama3, expected"
    refused_type(unknown, {"llama3": {"factor": 8.0, "high": 1.0}})
    refused_type(r"llama3 is a float, expected Llama3Scaling\(…\)", {"llama3": 8.0})
    unknown = "bases=1.0 is no setting of rotary, expected base, scaling, pairs"
    refused_type(unknown, {"bases": 1.0})
    refused_type("3=4 is no setting of rotary", {3: 4})
    refused_type("rotary is a float, expected Rotary", 500.0)
