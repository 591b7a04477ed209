"""The sequence auto-encoder: its gradient, its bottleneck, and what it finds."""

import numpy as np
from oracles import assert_close
from promises import THREE_ROWS as SRC, params_of, surprise_at

from npformer import SequenceAutoencoder

MODEL = SequenceAutoencoder(11, d_model=5, code_size=3, dropout=0.3, dtype="float64", max_len=16)
PARAMS = params_of(MODEL)


def test_nothing_but_the_code_reaches_the_decoder():
    code = MODEL.encode(PARAMS, SRC)
    assert code.shape == (3, 3)
    same = MODEL.decode(PARAMS, code[[0, 0, 0]], SRC, np.ones((3, 2), int))
    assert (same == same[:1]).all()


def test_more_padding_changes_no_code():
    wide = np.pad(SRC, ((0, 0), (0, 5)))
    assert_close(MODEL.encode(PARAMS, wide), MODEL.encode(PARAMS, SRC), 1e-14)


def test_the_error_is_the_mean_surprise_at_the_tokens():
    tgt = np.array([[1, 3, 4, 5, 6, 2], [1, 7, 8, 2, 0, 0], [1, 9, 2, 0, 0, 0]])
    errors = MODEL.reconstruction_error(PARAMS, SRC, tgt)
    surprise = surprise_at(tgt[:, 1:], MODEL.logits(PARAMS, SRC, tgt[:, :-1]))
    expected = [row[:n].mean() for row, n in zip(surprise, (5, 3, 2), strict=True)]
    assert_close(errors, expected, 1e-14)
