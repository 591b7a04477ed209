"""The encoder-only Transformer.

What it computes, padding that has no influence, what is refused.
"""

from functools import partial

import numpy as np
import pytest
from catalogue import (
    BERT,
    CLASSES,
    ENCODERS as SETTINGS,
    IDS,
    KEEP,
    NUMBERS,
    REAL,
    WORDS,
    batch_of,
    encoder,
)
from numpy.testing import assert_array_equal
from oracles import assert_close, layer_norm
from promises import (
    assert_weights_are_of_what_is_seen,
    params_of,
    surprise_at,
)
from refusals import refuses, refusing
from tables import each_of

from npformer import tree
from npformer.models import describe, from_description
from npformer.models.pooling import VectorMap

B, T = IDS.shape
UNIT = VectorMap("unit")
each_setting = each_of("settings", SETTINGS)
each_input = pytest.mark.parametrize("inputs", [{}, REAL], ids=["ids", "vectors"])
each_backend = pytest.mark.usefixtures("default_backend")


def made(settings):
    model = encoder(**settings)
    return model, params_of(model)


def test_positions_are_counted_from_the_first_word():
    """A row has the same vectors wherever its padding is."""
    model, params = made({**BERT, **WORDS, "counted_positions": True, "dtype": "float64"})
    words = np.array([[3, 4, 5]])
    wanted = model.encode(params, words)
    for before in (0, 1, 2):
        ids = np.pad(words, ((0, 0), (before, 2 - before)))
        found = model.encode(params, ids)[:, before : before + 3]
        np.testing.assert_allclose(found, wanted, rtol=1e-10)


# --- what is computed ---


@each_setting
@each_backend
def test_the_loss_is_that_of_the_outputs_at_what_is_counted(settings):
    model, params = made(settings)
    inputs, targets, keep_mask, types = batch_of(model)
    outputs = model.outputs(params, inputs, keep_mask, types)
    is_counted = KEEP if model.by_position else np.ones(B, bool)
    if model.task == "numbers":
        of_each = (outputs - targets) ** 2
    else:
        of_each = surprise_at(targets, outputs)
        is_counted = is_counted & (targets >= 0)
    of_each = of_each[is_counted]
    loss, n = model.loss(params, inputs, targets, keep_mask, types)
    assert n == of_each.size
    assert loss == pytest.approx(of_each.mean(), rel=1e-13)


POOLED = {
    "mean": lambda x: x.mean(axis=0),
    "first": lambda x: x[0],
    "max": lambda x: x.max(axis=0),
    "last": lambda x: x[-1],
    "mean_sqrt_length": lambda x: x.sum(axis=0) / np.sqrt(len(x)),
    "weighted_mean": lambda x: np.average(x, axis=0, weights=np.arange(1, len(x) + 1)),
}


@each_input
@pytest.mark.parametrize("pooling", POOLED)
@each_backend
def test_vectors_are_the_mean_the_first_or_the_maximum_of_positions(pooling, inputs):
    model, params = made({**inputs, **CLASSES, "pooling": pooling})
    x, _, keep_mask, _ = batch_of(model)
    y = model.encode(params, x, keep_mask)
    vectors = model.vectors(params, x, keep_mask)
    expected = [POOLED[pooling](row[kept]) for row, kept in zip(y, KEEP, strict=True)]
    assert_close(vectors, expected, 1e-14)
    outputs = model.outputs(params, x, keep_mask)
    assert_close(outputs, vectors @ params["output"]["weight"] + params["output"]["bias"])


@pytest.mark.parametrize("pooling", POOLED)
def test_padding_on_the_left_changes_no_vector(pooling):
    model, params = made({"pooling": pooling, "positions": "none"})
    left = np.array([[*row[row == 0], *row[row != 0]] for row in IDS])
    assert_close(model.vectors(params, left), model.vectors(params, IDS), 1e-13)


@each_backend
def test_maps_after_several_poolings():
    maps = (
        VectorMap("linear", 5, activation="tanh"),
        VectorMap("layer_norm"),
        VectorMap("linear", 3, bias=False),
        UNIT,
    )
    model, params = made({"pooling": ("first", "mean"), "after_pooling": maps})
    assert from_description(describe(model)) == model
    params["after_pooling"]["1"] = {"gain": np.linspace(0.5, 2, 5), "bias": np.linspace(-1, 1, 5)}
    y = model.encode(params, IDS)
    means = [row[kept].mean(axis=0) for row, kept in zip(y, KEEP, strict=True)]
    pooled = np.hstack([y[:, 0], means])
    assert_close(model.vectors(params, IDS), pooled, 1e-13)
    first, norm, last = (params["after_pooling"][name] for name in "012")
    x, *_ = layer_norm(np.tanh(pooled @ first["weight"] + first["bias"]), **norm)
    x = x @ last["weight"]
    expected = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert_close(model.sentence_vectors(params, IDS), expected, 1e-12)


def test_types_are_the_first_if_they_are_not_given():
    model, params = made({**BERT, **CLASSES})
    types = np.zeros((B, T), int)
    assert_array_equal(model.encode(params, IDS), model.encode(params, IDS, types=types))
    others = model.encode(params, IDS, types=types + 1)
    assert (model.encode(params, IDS) != others).any(axis=-1)[KEEP].all()


def test_all_positions_see_all_others_but_padding():
    model, params = made(CLASSES)
    weights = model.attention_weights(params, IDS)["layers"]
    assert [x.shape for x in weights] == [(B, 2, T, T)] * 2
    assert_weights_are_of_what_is_seen(weights, KEEP[:, None, None])


# --- padding ---


def test_a_mask_and_the_id_of_padding_both_hide():
    model, params = made(CLASSES)
    keep_mask = np.ones((B, T), bool)
    keep_mask[:, 1] = False
    hidden = np.where(keep_mask, IDS, 0)
    assert_close(model.vectors(params, IDS, keep_mask), model.vectors(params, hidden), 1e-13)


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
@each_backend
def test_a_sequence_of_nothing_but_padding_has_the_vector_0(pooling):
    model, params = made({**CLASSES, "pooling": pooling})
    ids = np.vstack([IDS, np.zeros((1, T), int)])
    assert not model.vectors(params, ids)[-1].any()
    _, grads, _ = model.loss_and_grad(params, ids, np.zeros(B + 1, int))
    assert all(np.isfinite(x).all() for _, x in tree.leaves(grads))


# --- settings and bad input ---


def test_settings_that_contradict_each_other_or_do_not_exist():
    refused = refusing(encoder, **CLASSES)
    body = {"task": None, "n_outputs": None}

    refused("vocab=None, n_inputs=None: expected the size of a vocabulary or the width", vocab=None)
    refused("vocab=13, n_inputs=5: expected", n_inputs=5)
    refused("task='words' with vocab=None, expected a vocabulary", **REAL, **WORDS, n_outputs=None)
    refused("n_outputs=None with task='classes': expected a number of outputs", n_outputs=None)
    refused("n_outputs=3 with task=None: expected a number of outputs with 'classes'", task=None)
    refused("pooling='lasst', expected 'mean', 'first', 'max', 'last', ", pooling="lasst")
    refused("pooling='men', expected 'mean'", pooling=("max", "men"), **body)
    refused(r"pooling=\('max',\), expected two or more of \('mean', 'first'", pooling=["max"])
    one = "with task='classes', expected one pooling and nothing after it"
    refused(one, pooling=("max", "first"))
    refused(one, after_pooling=(UNIT,))
    refused("with pooling='none', expected nothing", **body, pooling="none", after_pooling=(UNIT,))
    refused(r"labels=\('a', 'b'\), expected n_outputs=3 texts", labels=("a", "b"))
    classes = r"labels=\('a',\) with task=None, .* give task='classes' and n_outputs=…"
    refused(classes, **body, labels=("a",))
    refused(r"labels=\(1, 2, 3\), expected n_outputs=3 texts", labels=(1, 2, 3))
    refused("tie_embeddings=True with task='classes', expected task='words'", tie_embeddings=True)
    refused("pooler=True, expected False where", pooler=True, pooling="none")
    refused("counted_positions=True with pad_id=0, positions='sinusoidal'", counted_positions=True)


MEANS = made(CLASSES)
REALS = made(REAL | NUMBERS)
WORD_BY_WORD = made(BERT | WORDS)
X = np.ones((B, T, 5))
Y = np.ones((B, 2))
C = np.zeros(B, int)


def refused(made, message, *batch, error=ValueError):
    model, params = made
    refuses(error, message, model.loss, params, *batch)
    refuses(error, message, model.count, *batch)


def test_wrong_batches_of_classes_are_named():
    of_batch = partial(refused, MEANS)
    of_batch(r"targets\[0\] is 3, expected 0 <= id < 3", IDS, C + 3)
    of_batch(r"targets\[0\] is -1, expected 0 <= id < 3", IDS, C - 1)
    of_batch(r"targets has shape \(2,\), expected \(4,\)", IDS, C[:2])
    of_batch("targets has dtype float64, expected integers", IDS, C * 1.0, error=TypeError)
    of_batch(r"inputs\[0, 0\] is 1., expected 0 <= id < 13", IDS + 9, C)
    of_batch(r"inputs has shape \(7,\), expected \(B, length\)", IDS[0], C)
    of_batch("inputs is a list, expected an array", IDS.tolist(), C, error=TypeError)
    of_batch("inputs has length 12, expected at most max_len=11", np.ones((B, 12), int), C)
    of_batch("keep_mask has dtype int64, expected bool", IDS, C, IDS, error=TypeError)
    of_batch(r"keep_mask has shape \(2, 7\), expected \(4, 7\)", IDS, C, KEEP[:2])
    of_batch("types are given, expected None of a model with n_types=0", IDS, C, KEEP, IDS)


def test_wrong_batches_of_numbers_are_named():
    of_batch = partial(refused, REALS)
    of_batch(r"inputs has shape \(4, 7, 4\), expected \(B, T, 5\)", X[..., :4], Y)
    of_batch(r"inputs has shape \(7, 5\), expected \(B, T, 5\)", X[0], Y)
    of_batch("inputs has dtype int64, expected a float dtype", IDS, Y, error=TypeError)
    of_batch("inputs has length 12, expected at most max_len=11", np.ones((B, 12, 5)), Y)
    of_batch(r"targets has shape \(4, 1\), expected \(4, 2\)", X, Y[:, :1])
    of_batch("targets has dtype int64, expected a float dtype", X, C, error=TypeError)


def test_wrong_batches_of_words_are_named():
    of_batch = partial(refused, WORD_BY_WORD)
    of_batch(r"targets\[.*\] is 1., expected 0 <= id < 13", IDS, IDS + 9)
    of_batch(r"targets\[0, 0\] is -2", IDS, IDS * 0 - 2)
    of_batch(r"targets has shape \(4,\), expected \(4, 7\)", IDS, C)
    of_batch(r"types\[.*\] is .*, expected 0 <= id < 3", IDS, IDS, KEEP, IDS)
    of_batch(r"types has shape \(2, 7\), expected \(4, 7\)", IDS, IDS, KEEP, IDS[:2] * 0)


def test_numbers_have_no_label_smoothing():
    model, params = REALS
    message = "label_smoothing=0.1 with task='numbers', expected 0"
    refuses(ValueError, message, model.loss, params, X, Y, label_smoothing=0.1)


@each_input
@pytest.mark.parametrize("pooling", ["none", "mean"])
def test_without_a_task_there_are_vectors_and_neither_outputs_nor_a_loss(pooling, inputs):
    model, params = made({**inputs, "pooling": pooling})
    x, targets, keep_mask, _ = batch_of(model)
    vectors = model.vectors(params, x, keep_mask)
    if pooling == "none":
        assert_array_equal(vectors, model.encode(params, x, keep_mask))
    else:
        assert_array_equal(vectors, model.sentence_vectors(params, x, keep_mask))
    message = "task=None, expected 'classes', 'numbers' or 'words'"
    refuses(ValueError, message, model.outputs, params, x)
    refuses(ValueError, message, model.loss, params, x, targets)
