"""What the model promises besides its gradient.

No leaks, padding without effect, parameters as documented.
"""

from dataclasses import replace

import numpy as np
import pytest
import whole_models
from numpy.testing import assert_array_equal
from oracles import assert_close
from promises import SRC, TGT, assert_weights_are_of_what_is_seen, params_of, surprise_at
from refusals import refuses
from whole_models import assert_gradient_along_directions, loss_of_batch, shaken

from npformer import Transformer, greedy_decode, sinusoidal_encoding

pytestmark = pytest.mark.usefixtures("default_backend")
MODEL = Transformer(13, 11, d_model=14, n_heads=2, n_layers=(2, 3), d_ff=17, dtype="float64")
PARAMS = MODEL.init(0)


def test_without_padding_each_token_counts_and_may_be_said():
    model = replace(MODEL, pad_id=None)
    params = params_of(model)
    assert model.loss(params, SRC, TGT)[1] == model.count(SRC, TGT) == TGT[:, 1:].size
    assert model.fill_up((SRC, TGT), lambda n: 2 * n) == (SRC, TGT)
    params["output"]["bias"][0] = 100
    said = greedy_decode(model, params, SRC, bos_id=1, eos_id=2, max_len=3)
    assert said.tolist() == [[0, 0, 0]] * 2


def test_in_a_tied_table_the_row_of_the_padding_is_its_output_weight_too():
    """So there NaN reaches the logit of the padding, and with it every probability,
    but no other logit.
    """
    model = replace(MODEL, tgt_vocab=13, tie_embeddings=True)
    params = model.init(0)
    before = model.logits(params, SRC, TGT)
    params["embedding"][0] = np.nan
    after = model.logits(params, SRC, TGT)
    assert np.isnan(after[..., 0]).all()
    np.testing.assert_allclose(after[..., 1:], before[..., 1:], rtol=1e-10)
    assert np.isnan(model.loss(params, SRC, TGT)[0])
    message = "parameter embedding holds NaN or inf"
    options = {"bos_id": 1, "eos_id": 2, "max_len": 4}
    refuses(ValueError, message, greedy_decode, model, params, SRC, **options)


# the CPU backend rounds another way then
@pytest.mark.parametrize(("backend", "tolerance"), [("reference", 0), ("cpu", 1e-14)])
def test_nan_in_the_padding_of_a_memory_changes_no_logit(backend, tolerance):
    memory = MODEL.encode(PARAMS, SRC, backend=backend)
    before = MODEL.decode(PARAMS, memory, SRC, TGT, backend=backend)
    memory[1, 3:] = np.nan
    after = MODEL.decode(PARAMS, memory, SRC, TGT, backend=backend)
    assert_close(after, before, tolerance)


def test_attention_weights_of_every_layer_and_head():
    tgt = TGT[:, :-1]
    weights = MODEL.attention_weights(PARAMS, SRC, tgt)
    assert [x.shape for x in weights["encoder"]] == [(2, 2, 5, 5)] * 2
    assert [x.shape for x in weights["decoder"]] == [(2, 2, 5, 5)] * 3
    assert [x.shape for x in weights["memory"]] == [(2, 2, 5, 5)] * 3
    words = (SRC != 0)[:, None, None]
    assert_weights_are_of_what_is_seen(weights["encoder"] + weights["memory"], words)
    past = np.tri(5) * (tgt != 0)[:, None, None]
    assert_weights_are_of_what_is_seen(weights["decoder"], past)


def test_parameters_are_scaled_as_documented():
    model = Transformer(101, 103, d_model=128, n_heads=8, n_layers=1, d_ff=512)
    params = model.init(3)
    embedded = params["source_embedding"] * 128**0.5
    assert abs(embedded.std() - 1) < 0.02
    layer = params["encoder"]["0"]
    qkv = layer["attention"]["qkv"]
    hidden = layer["feed_forward"]["hidden"]
    for weight, width in ((qkv["weight"], 256), (hidden["weight"], 640)):
        bound = (6 / width) ** 0.5
        assert 0.98 * bound < np.abs(weight).max() <= bound  # Xavier, for each projection alone
    assert not qkv["bias"].any()


def test_tied_embeddings_are_one_table():
    untied = replace(MODEL, src_vocab=11)
    model = replace(untied, tie_embeddings=True)
    params = model.init(0)
    assert [name for name in params if "embedding" in name] == ["embedding"]
    assert list(params["output"]) == ["bias"]
    apart = dict(params)
    table = apart.pop("embedding")
    apart["source_embedding"] = apart["target_embedding"] = table
    apart["output"] = {"weight": table.T, **params["output"]}
    assert_array_equal(model.logits(params, SRC, TGT), untied.logits(apart, SRC, TGT))


def test_without_layers_the_logits_are_embedding_position_norm_and_output():
    """The embedding and the output of the model, written out."""
    model = replace(MODEL, n_layers=0, norm="post")
    params = model.init(0)
    x = params["target_embedding"][TGT] * 14**0.5 + sinusoidal_encoding(6, 14)
    x[TGT == 0] = 0
    expected = x @ params["output"]["weight"] + params["output"]["bias"]
    assert_close(model.logits(params, SRC, TGT), expected, 1e-13)


def test_label_smoothing_and_padding_reach_the_loss():
    tgt_in, tgt_out = TGT[:, :-1], TGT[:, 1:]
    logits = MODEL.logits(PARAMS, SRC, tgt_in)
    of_each_word = [surprise_at(np.full_like(tgt_out, word), logits) for word in range(11)]
    surprise = 0.9 * surprise_at(tgt_out, logits) + 0.1 * np.mean(of_each_word, axis=0)
    loss, n_tokens = MODEL.loss(PARAMS, SRC, tgt_in, tgt_out, label_smoothing=0.1)
    assert n_tokens == 7
    np.testing.assert_allclose(loss, surprise[tgt_out != 0].mean(), rtol=1e-14)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_two_predictions_that_shall_agree(default_backend, positions):
    """Their loss, gradient and number of tokens; and that they differ by dropout alone."""
    options = {"dropout": 0.3, "tie_embeddings": True, "positions": positions}
    model = replace(MODEL, src_vocab=9, tgt_vocab=9, d_model=6, **options)
    params = shaken(model.init(0))
    batch = whole_models.SRC, whole_models.TGT
    f, _ = loss_of_batch(model, params, batch, 5, consistency=0.7)
    _, f_backward = loss_of_batch(model, params, batch, 5, default_backend, consistency=0.7)
    assert_gradient_along_directions(f, f_backward, params)

    def loss(consistency, dropout_key=None):
        options = {"dropout_key": dropout_key, "consistency": consistency}
        value, n = model.loss(params, *batch, **options)
        assert n == np.count_nonzero(whole_models.TGT[:, 1:])
        return value

    assert abs(loss(1e-9) - loss(0.7)) < 1e-12
    assert abs(loss(0.0) - loss(0.7)) < 1e-12
    once, slightly, much = (loss(x, dropout_key=5) for x in (0.0, 1e-9, 0.7))
    assert slightly < much - 1e-3
    assert abs(slightly - once) > 1e-3
