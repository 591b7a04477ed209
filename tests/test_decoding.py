import numpy as np
import pytest

from npformer import Transformer, greedy_decode

MODEL = Transformer(11, 11, d_model=14, n_heads=2, n_layers=1, d_ff=17, dtype="float64")
SRC = np.array([[3, 4, 5, 6, 7], [3, 9, 8, 0, 0], [10, 0, 0, 0, 0]])
IDS = {"bos_id": 1, "eos_id": 2}


def params_for(seed=0):
    params = MODEL.init(seed)
    params["output"]["bias"][2] = 0.5  # so that some sequences end
    return params


@pytest.mark.parametrize("seed", range(5))
def test_each_token_is_the_most_probable_after_those_before(seed):
    params = params_for(seed)
    decoded = greedy_decode(MODEL, params, SRC, **IDS, max_len=9)
    for src, said in zip(SRC, decoded, strict=True):
        before = [1]
        for token in said:
            if token == MODEL.pad_id and before[-1] == 2:
                break
            logits = MODEL.logits(params, src[None, src != 0], np.array([before]))
            assert token == logits[0, -1].argmax()
            before.append(int(token))
        assert before[-1] == 2 or len(before) == 1 + 9


def test_after_the_end_token_there_is_padding_only():
    decoded = np.concatenate(
        [greedy_decode(MODEL, params_for(seed), SRC, **IDS, max_len=9).ravel() for seed in range(5)]
    )
    assert (decoded == 2).any()
    for seed in range(5):
        for row in greedy_decode(MODEL, params_for(seed), SRC, **IDS, max_len=9):
            ends = np.flatnonzero(row == 2)
            if ends.size:
                assert not row[ends[0] + 1 :].any()


def test_length_is_bounded_and_an_empty_batch_is_empty():
    params = MODEL.init(0)
    params["output"]["bias"][2] = -1e9
    assert greedy_decode(MODEL, params, SRC, **IDS, max_len=6).shape == (3, 6)
    assert greedy_decode(MODEL, params, SRC[:0], **IDS, max_len=6).shape == (0, 0)


def test_bad_arguments_are_named():
    for bad, message in (
        ({"bos_id": 11}, "bos_id=11, expected 0 <= bos_id < 11"),
        ({"eos_id": -1}, "eos_id=-1"),
        ({"max_len": 0}, "max_len=0, expected 1 <= max_len <= 5000"),
    ):
        with pytest.raises(ValueError, match=message):
            greedy_decode(MODEL, params_for(), SRC, **{**IDS, "max_len": 3, **bad})
