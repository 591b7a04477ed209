"""What is special to the recurrent model; ``test_promises.py`` tests padding, past and future."""

import numpy as np
from oracles import assert_close
from promises import params_of
from refusals import refuses

from npformer import Recurrent

V_SRC, V_TGT, D = 11, 12, 6
SRC = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 0, 0, 0]])


def make(cell="gru", attention="general", src_vocab=V_SRC, **options):
    sizes = {"d_model": D, "dtype": "float64", "dropout": 0.3, "max_len": 16}
    return Recurrent(src_vocab, V_TGT, cell=cell, attention=attention, **sizes | options)


def test_without_attention_only_the_end_of_the_encoder_matters():
    model = make("gru", None, bidirectional=False)
    params = params_of(model)
    tgt = np.array([[1, 5], [1, 5], [1, 5]])
    states, ends = model.encode(params, SRC)
    assert (
        model.decode(params, (np.full_like(states, np.nan), ends), SRC, tgt)
        == model.logits(params, SRC, tgt)
    ).all()
    # the state stays what it is on padding
    assert (ends[0][0] == states[[0, 1, 2], [3, 3, 3]]).all()


def test_attention_weights_are_those_of_the_words():
    model = make("lstm", "additive")
    [weights] = model.attention_weights(params_of(model), SRC, np.array([[1, 5], [1, 6], [1, 7]]))[
        "memory"
    ]
    assert weights.shape == (3, 1, 2, 4)
    assert_close(weights.sum(axis=-1), np.ones((3, 1, 2)))
    assert (weights[2, ..., 1:] == 0).all()
    message = "attention=None has no attention weights"
    refuses(ValueError, message, make("gru", None).attention_weights, {}, SRC, SRC)


def test_parameters_in_another_order_are_the_same():
    model = make("gru", "additive")
    params = params_of(model)
    tgt = np.array([[1, 5]] * 3)
    turned = {**params, "decoder": {**params["decoder"]}}
    turned["decoder"]["attention"] = dict(reversed(params["decoder"]["attention"].items()))
    assert (model.logits(params, SRC, tgt) == model.logits(turned, SRC, tgt)).all()


def test_bad_settings_are_named():
    def refused(message, **options):
        refuses(ValueError, message, make, **options)

    refused("cell='rnn', expected 'gru' or 'lstm'", cell="rnn")
    refused(
        "attention='luong', expected None, "
        r"'dot', 'general' \(the bilinear score\) or 'additive'",
        attention="luong",
    )
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
