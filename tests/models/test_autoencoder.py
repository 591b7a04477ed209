"""The sequence auto-encoder: its gradient, its bottleneck, and what it finds."""

import numpy as np
import pytest
from oracles import assert_close
from promises import assert_steps_equal_recomputation, params_of
from whole_models import (
    TGT,
    assert_gradient_along_directions,
    assert_gradient_at_every_parameter,
    loss_of_leaves,
    shaken,
)

from npformer import SequenceAutoencoder, greedy_decode
from npformer.models import describe, from_description
from npformer.reference import log_softmax

MODEL = SequenceAutoencoder(11, d_model=5, code_size=3, dropout=0.3, dtype="float64", max_len=16)
SRC = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 0, 0, 0]])


def test_every_parameter_by_complex_step():
    params = shaken(MODEL.init(0))
    assert_gradient_at_every_parameter(*loss_of_leaves(MODEL, params, dropout_key=5), params)
    assert_gradient_along_directions(*loss_of_leaves(MODEL, params, dropout_key=None), params)


def test_steps_equal_recomputation(every_backend):
    assert_steps_equal_recomputation(MODEL, params_of(MODEL), SRC, every_backend)


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


def test_decoding_and_description():
    params = params_of(MODEL)
    assert len(greedy_decode(MODEL, params, SRC, bos_id=1, eos_id=2, max_len=6)) == 3
    assert from_description(describe(MODEL)) == MODEL


@pytest.mark.parametrize(
    "options", [{"vocab": 0}, {"vocab": 9, "code_size": 0}, {"vocab": 9, "dropout": 1.0}]
)
def test_bad_settings_are_named(options):
    with pytest.raises(ValueError, match=f"{list(options)[-1]}="):
        SequenceAutoencoder(**options)
    with pytest.raises(ValueError, match="src has 3 rows, the target 2"):
        MODEL.logits(params_of(MODEL), SRC, TGT[:2])
