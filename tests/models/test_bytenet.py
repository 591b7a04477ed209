"""What ByteNet promises besides its gradient.

No leaks, no effect of padding, dynamic unfolding, decoding, learning.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_all_close, assert_close, conv1d, layer_norm, relu
from promises import SRC, TGT, params_of
from refusals import refuses, refusing

from npformer import ByteNet, tree
from npformer.models.gradients import Gradients

pytestmark = pytest.mark.usefixtures("default_backend")
SIZES = {"d_model": 14, "n_sets": 1, "dilations": (1, 2, 4)}
MODEL = ByteNet(13, 11, **SIZES, dtype="float64")
PARAMS = params_of(MODEL)


def linear(x, params):
    return x @ params["weight"] + params["bias"]


@pytest.mark.parametrize(("n_sets", "W"), [(1, 3), (1, 5), (2, 3)])
def test_the_encoder_reaches_as_far_as_documented(n_sets, W):
    model = replace(MODEL, n_sets=n_sets, dilations=(1, 2), kernel_sizes=(W, 3))
    params = params_of(model)
    src = np.full((1, 41), 3)
    before = model.encode(params, src)
    src[0, 20] = 4
    changed = (model.encode(params, src) != before).any(axis=(0, 2))
    reach = n_sets * (W - 1) // 2 * (1 + 2)
    assert_array_equal(changed, abs(np.arange(len(changed)) - 20) <= reach)


def test_nan_in_the_padding_of_a_memory_changes_no_logit_and_no_gradient(default_backend):
    memory = MODEL.encode(PARAMS, SRC)
    dy = np.random.default_rng(0).standard_normal((2, 5, 14))

    def run():
        y, backward = MODEL._decode(
            default_backend, PARAMS, memory, SRC, TGT[:, :-1], with_grad=True
        )
        results = [y]

        def keep(path, grads):
            results.extend(x for _, x in tree.leaves(grads))

        results.append(backward(dy, Gradients(PARAMS, keep)))
        return results

    before = run()
    assert memory.shape == (2, 6, 14)
    memory[1, 4:] = np.nan  # three words are unfolded to four columns
    assert_all_close(run(), before, 1e-13)


# Dynamic unfolding.


def test_columns_of_each_source():
    model = replace(MODEL, unfold=(1.5, 1))
    src = np.vstack([SRC, np.zeros((1, 5), int)])
    n_columns = [[9], [6], [1]]
    assert_array_equal(model.unfolded(src), np.arange(9) < n_columns)
    assert MODEL.unfolded(np.zeros((2, 3), int)).shape == (2, 0)
    assert MODEL.unfolded(np.zeros((0, 3), int)).shape == (0, 0)


def test_steps_beyond_the_columns_get_zeros(default_backend):
    memory = MODEL.encode(PARAMS, SRC)
    columns, _ = MODEL.columns(default_backend, PARAMS, memory, SRC, 9)
    expected = np.zeros((2, 9, 14))
    expected[:, :6] = linear(memory, PARAMS["decoder"]["memory"])
    expected[1, 4:] = 0  # three words are unfolded to four columns
    assert_close(columns, expected)


# The whole model, written out.


def norm(x, params):
    y, *_ = layer_norm(x, params["gain"], params["bias"])
    return y


def stack(params, x, n_sets, causal):
    """Residual blocks on (1, length, D)."""
    for i, dilation in enumerate(SIZES["dilations"] * n_sets):
        block = params[str(i)]
        conv = block["conv"]
        h = linear(relu(norm(x, block["reduce_norm"])), block["reduce"])
        h = relu(norm(h, block["conv_norm"]))
        h = conv1d(h, conv["weight"], conv["bias"], dilation=dilation, causal=causal)
        x = x + linear(relu(norm(h, block["expand_norm"])), block["expand"])
    return norm(x, params["norm"])


@pytest.mark.parametrize("unfold", [(1.2, 0), (1, 0), (1.5, 2)])
def test_the_logits_are_those_of_each_sentence_alone(unfold):
    """Step t is given what the encoder has in column t, if it has one."""
    model = replace(MODEL, n_sets=(1, 2), unfold=unfold)
    params = params_of(model)
    decoder = params["decoder"]
    logits = model.logits(params, SRC, TGT)
    for row, src, tgt in zip(logits, SRC, TGT, strict=True):
        src = src[src != 0]
        tgt = tgt[tgt != 0]
        n_columns = math.ceil(unfold[0] * len(src)) + unfold[1]
        columns = np.zeros((1, n_columns, 14))
        columns[0, : len(src)] = params["source_embedding"][src] * 14**0.5
        memory = linear(stack(params["encoder"], columns, 1, causal=False), decoder["memory"])
        x = params["target_embedding"][tgt][None] * 14**0.5
        n = min(len(tgt), n_columns)
        x[:, :n] += memory[:, :n]
        expected = linear(stack(decoder, x, 2, causal=True), params["output"])
        assert_close(row[: len(tgt)], expected[0], 1e-12)


# Settings and parameters.


def test_settings():
    refused = refusing(ByteNet, 13, 11, **SIZES)
    refused("d_model=15, expected an even number", d_model=15)
    refused("n_sets=-1, expected at least 0", n_sets=-1)
    refused(r"dilations=\(\), expected a tuple of one or more numbers", dilations=())
    refused("dilations=2, expected a tuple of one or more numbers", dilations=2)
    refused("dilations=0, expected at least 1", dilations=(1, 0))
    refused("kernel_sizes=3, expected a tuple of two numbers", kernel_sizes=3)
    refused("d_model=an int of 16610 bits, expected an even number", d_model=10**5000 + 1)
    refused(r"kernel_sizes=\(4, 3\), expected an odd first one", kernel_sizes=(4, 3))
    refused("kernel_sizes=0, expected at least 1", kernel_sizes=(3, 0))
    refused(r"unfold=\(0.5, 0\), expected \(a, b\) with a >= 1", unfold=(0.5, 0))
    refused(r"unfold=\(nan, 0\), expected", unfold=(np.nan, 0))
    refused(r"unfold\[1\]=-1, expected at least 0", unfold=(1.2, -1))
    refused("unfold=1.2, expected a tuple of two numbers", unfold=1.2)


def test_memory_and_parameters_of_another_model():
    memory = MODEL.encode(PARAMS, SRC)
    message = r"memory has shape \(2, 5, 14\), expected \(2, 6, 14\)"
    refuses(ValueError, message, MODEL.decode, PARAMS, memory[:, :5], SRC, TGT)
    message = r"parameter encoder.3.reduce_norm.gain: given nothing, expected"
    refuses(ValueError, message, replace(MODEL, n_sets=2).encode, PARAMS, SRC)
    refuses(ValueError, "a ByteNet has no attention", MODEL.attention_weights, PARAMS, SRC, TGT)


def test_convolutions_are_scaled_as_documented():
    params = ByteNet(101, 103, d_model=128, n_sets=(1, 2), dilations=(1, 2)).init(3)
    assert list(params["encoder"]) == ["0", "1", "norm"]
    assert list(params["decoder"]) == ["0", "1", "2", "3", "norm", "memory"]
    weight = params["encoder"]["0"]["conv"]["weight"]
    bound = (6 / (5 * 64 + 5 * 64)) ** 0.5  # Xavier, all taps together
    assert weight.shape == (5, 64, 64)
    assert 0.98 * bound < np.abs(weight).max() <= bound


@pytest.mark.parametrize("n_words", [10, 50, 100])
def test_the_number_of_columns_is_exact(n_words):
    """1.1 · 50 is 55.00000000000001 in floats."""
    columns = ByteNet(11, 11, unfold=(1.1, 0)).unfolded(np.ones((1, n_words), int))
    assert columns.shape[1] == n_words * 11 // 10
