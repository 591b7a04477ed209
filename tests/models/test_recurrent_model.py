"""The recurrent model: its gradient, padding, decoding, what it learns, and PyTorch's numbers."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_close
from promises import assert_trees_close, params_of
from refusals import refuses

from npformer import Adam, CopyTask, Recurrent, Trainer, greedy_decode, tree

V_SRC, V_TGT, D = 11, 12, 6
SRC = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 0, 0, 0]])
KINDS = pytest.mark.parametrize("attention", [None, "dot", "general", "additive"], ids=str)
CELLS = pytest.mark.parametrize("cell", ["gru", "lstm"])


def make(cell="gru", attention="general", src_vocab=V_SRC, **options):
    sizes = {"d_model": D, "dtype": "float64", "dropout": 0.3, "max_len": 16}
    return Recurrent(src_vocab, V_TGT, cell=cell, attention=attention, **sizes | options)


@CELLS
@KINDS
@pytest.mark.parametrize("bidirectional", [False, True])
def test_more_padding_changes_nothing(every_backend, cell, attention, bidirectional):
    model = make(cell, attention, bidirectional=bidirectional)
    params = params_of(model)
    tgt = np.array([[1, 5, 6], [1, 7, 8], [1, 9, 2]])
    wider = np.pad(SRC, ((0, 0), (0, 3)))
    results = [
        model.loss_and_grad(params, src, tgt[:, :-1], tgt[:, 1:], backend=every_backend)
        for src in (SRC, wider)
    ]
    assert_close(results[0][0], results[1][0], 1e-12)
    assert_trees_close(*(grads for _, grads, _ in results), 1e-12)


@KINDS
def test_a_token_changes_nothing_before_it(attention):
    model = make("gru", attention)
    params = params_of(model)
    tgt = np.array([[1, 5, 6, 7]] * 3)
    before = model.logits(params, SRC, tgt)
    after = model.logits(params, SRC, np.where(np.arange(4) == 2, 9, tgt))
    assert (before[:, :2] == after[:, :2]).all()
    assert (before[:, 2:] != after[:, 2:]).any(axis=-1).all()


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


def test_it_learns_to_reverse_and_looks_where_it_should():
    task = CopyTask(vocab=11, max_len=5, reverse=True)
    model = Recurrent(11, 11, d_model=32, attention="general", dropout=0.0)
    trainer = Trainer(model, Adam(lr=0.01), clip_norm=1.0)
    for step in range(400):
        trainer.step(*task.batch(step, size=32))
    src, tgt = task.held_out(100)
    said = greedy_decode(model, trainer.params, src, bos_id=1, eos_id=2, max_len=tgt.shape[1] - 1)
    assert (said == tgt[:, 1:]).all(axis=1).mean() > 0.9


@CELLS
@KINDS
@pytest.mark.parametrize("bidirectional", [False, True])
def test_nothing_to_read_or_to_say(cell, attention, bidirectional):
    model = make(cell, attention, bidirectional=bidirectional)
    params = params_of(model)
    tgt = np.array([[1, 5, 6], [1, 7, 8]])
    none = np.zeros((2, 0), int)
    padding = np.zeros((2, 1), int)
    assert_array_equal(model.logits(params, none, tgt), model.logits(params, padding, tgt))
    assert model.logits(params, tgt, none).shape == (2, 0, V_TGT)
    for src in (none, padding):
        _, grads, n = model.loss_and_grad(params, src, tgt[:, :-1], tgt[:, 1:], dropout_key=1)
        assert n == 4
        assert not any(x.any() for _, x in tree.leaves(grads["encoder"]))


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
    refused("n_layers=0, expected at least 1", n_layers=0)
    refused("src_vocab=11, tgt_vocab=12: expected equal sizes", tie_embeddings=True)


def test_bad_input_is_named():
    model = make()
    params = model.init(0)
    message = "src has 3 rows, the target 2: expected the same number"
    refuses(ValueError, message, model.logits, params, SRC, SRC[:2])
    with pytest.raises(ValueError, match=r"memory has shape \(3, 4, 6\), expected \(3, 3, 6\)"):
        model.decode(params, model.encode(params, SRC), SRC[:, :3], SRC)
    with pytest.raises(TypeError, match="memory is a ndarray, expected the output of encode"):
        model.decode(params, np.zeros((3, 3, 6)), np.ones((3, 3), int), np.ones((3, 2), int))
    message = r"src\[0, 0\] is 11, expected 0 <= id < 11"
    refuses(ValueError, message, model.encode, params, np.array([[11]]))
    message = "parameter encoder.1.forward.input.weight: given .*, expected nothing"
    refuses(ValueError, message, model.encode, make(n_layers=2).init(0), SRC)
