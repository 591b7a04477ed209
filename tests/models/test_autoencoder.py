"""The sequence auto-encoder: its gradient, its bottleneck, and what it finds."""

import numpy as np
from oracles import assert_close
from promises import params_of

from npformer import SequenceAutoencoder
from npformer.reference import log_softmax

MODEL = SequenceAutoencoder(11, d_model=5, code_size=3, dropout=0.3, dtype="float64", max_len=16)
SRC = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 0, 0, 0]])


def test_nothing_but_the_code_reaches_the_decoder():
    params = params_of(MODEL)
    code = MODEL.encode(params, SRC)
    assert code.shape == (3, 3)
    same = MODEL.decode(params, code[[0, 0, 0]], SRC, np.ones((3, 2), int))
    assert (same == same[:1]).all()


def test_more_padding_changes_no_code():
    params = params_of(MODEL)
    assert_close(
        MODEL.encode(params, np.pad(SRC, ((0, 0), (0, 5)))), MODEL.encode(params, SRC), 1e-14
    )


def test_the_error_is_the_mean_log_probability_of_the_tokens():
    params = params_of(MODEL)
    tgt = np.array([[1, 3, 4, 5, 6, 2], [1, 7, 8, 2, 0, 0], [1, 9, 2, 0, 0, 0]])
    errors = MODEL.reconstruction_error(params, SRC, tgt)
    log_p = log_softmax(MODEL.logits(params, SRC, tgt[:, :-1]))
    expected = [
        -np.mean([log_p[row, t, tgt[row, t + 1]] for t in range(n)])
        for row, n in enumerate((5, 3, 2))
    ]
    assert_close(errors, expected, 1e-14)
