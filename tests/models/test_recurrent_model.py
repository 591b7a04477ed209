"""What is special to recurrent models; ``test_every_model.py`` tests padding, past and future."""

import numpy as np
from numpy.testing import assert_array_equal
from oracles import assert_close
from promises import (
    THREE_ROWS as SRC,
    assert_weights_are_of_what_is_seen,
    params_of,
    surprise_at,
)
from refusals import refuses, refusing

from npformer import Recurrent, SequenceAutoencoder

V_SRC, V_TGT, D = 11, 12, 6
TGT = np.array([[1, 5], [1, 6], [1, 7]])


def make(cell="gru", attention="general", src_vocab=V_SRC, **options):
    sizes = {"d_model": D, "dtype": "float64", "dropout": 0.3, "max_len": 16}
    return Recurrent(src_vocab, V_TGT, cell=cell, attention=attention, **sizes | options)


def test_without_attention_only_the_end_of_the_encoder_matters():
    model = make("gru", None, bidirectional=False)
    params = params_of(model)
    states, ends = model.encode(params, SRC)
    memory = np.full_like(states, np.nan), ends
    logits = model.logits(params, SRC, TGT)
    assert_array_equal(model.decode(params, memory, SRC, TGT), logits)
    # the state stays what it is on padding
    assert_array_equal(ends[0][0], states[:, 3])


def test_attention_weights_are_those_of_the_words():
    model = make("lstm", "additive")
    weights = model.attention_weights(params_of(model), SRC, TGT)["memory"]
    assert [x.shape for x in weights] == [(3, 1, 2, 4)]
    assert_weights_are_of_what_is_seen(weights, (SRC != 0)[:, None, None])
    message = "attention=None has no attention weights"
    refuses(ValueError, message, make("gru", None).attention_weights, {}, SRC, SRC)


def test_bad_settings_are_named():
    refused = refusing(make)
    refused("cell='rnn', expected 'gru' or 'lstm'", cell="rnn")
    scores = r"None, 'dot', 'general' \(the bilinear score\) or 'additive'"
    refused(f"attention='luong', expected {scores}", attention="luong")
    refused("d_model=7 is odd", d_model=7)
    refused("d_model=an int of 16610 bits is odd", d_model=10**5000 + 1)


def test_bad_input_is_named():
    model = make()
    params = model.init(0)
    memory = model.encode(params, SRC)
    message = r"memory has shape \(3, 4, 6\), expected \(3, 3, 6\)"
    refuses(ValueError, message, model.decode, params, memory, SRC[:, :3], SRC)
    message = "memory is a ndarray, expected the output of encode"
    refuses(TypeError, message, model.decode, params, memory[0], SRC, SRC)
    message = "parameter encoder.1.forward.input.weight: given .*, expected nothing"
    refuses(ValueError, message, model.encode, make(n_layers=2).init(0), SRC)


# --- the sequence auto-encoder ---

AUTOENCODER = SequenceAutoencoder(11, d_model=5, code_size=3, dtype="float64", max_len=16)
OF_CODES = params_of(AUTOENCODER)


def test_nothing_but_the_code_reaches_the_decoder():
    code = AUTOENCODER.encode(OF_CODES, SRC)
    assert code.shape == (3, 3)
    same = AUTOENCODER.decode(OF_CODES, code[[0, 0, 0]], SRC, np.ones((3, 2), int))
    assert (same == same[:1]).all()


def test_the_error_is_the_mean_surprise_at_the_tokens():
    tgt = np.array([[1, 3, 4, 5, 6, 2], [1, 7, 8, 2, 0, 0], [1, 9, 2, 0, 0, 0]])
    errors = AUTOENCODER.reconstruction_error(OF_CODES, SRC, tgt)
    surprise = surprise_at(tgt[:, 1:], AUTOENCODER.logits(OF_CODES, SRC, tgt[:, :-1]))
    expected = [row[:n].mean() for row, n in zip(surprise, (5, 3, 2), strict=True)]
    assert_close(errors, expected, 1e-14)
