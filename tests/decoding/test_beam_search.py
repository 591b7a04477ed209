"""Beam search against a search written from its description."""

from dataclasses import replace
from functools import cache, partial

import decoded
import numpy as np
import pytest
from decoded import BOS, EOS, IDS, PAD, SRC
from numpy.testing import assert_array_equal
from refusals import refusing

from npformer import greedy_decode
from npformer.decoding import Hypothesis, beam_search, log_probability
from npformer.decoding.beam import length_penalty_of

random_model = partial(decoded.random_model, size=0.4, bias=1.0)


def log_softmax(x):
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def rank(log_probabilities, penalty):
    """{tokens: log p} as hypotheses, the best first."""
    found = []
    for tokens, p in log_probabilities.items():
        found.append(Hypothesis(tokens, p, p / penalty(len(tokens))))
    return sorted(found, key=lambda hypothesis: hypothesis.score, reverse=True)


def assert_same(actual, expected, tolerance):
    assert [found.tokens for found in actual] == [found.tokens for found in expected]
    for found, wanted in zip(actual, expected, strict=True):
        numbers = found.log_probability, found.score
        wanted_numbers = wanted.log_probability, wanted.score
        np.testing.assert_allclose(numbers, wanted_numbers, rtol=tolerance, atol=tolerance)


# --- the description, word by word ---


def naive_beam_search(log_p_after, words, max_len, min_len, beam_size, penalty):
    """``log_p_after(begun)`` are the log-probabilities of all next tokens.

    Nothing is kept from step to step.
    """
    begun, finished = {(): 0.0}, {}
    for length in range(1, max_len + 1):
        continued = {}
        for tokens, log_p in begun.items():
            for token in words:
                if token != EOS or length >= min_len:
                    continued[(*tokens, token)] = log_p + log_p_after(tokens)[token]
        best = sorted(continued, key=continued.get, reverse=True)
        ended = [tokens for tokens in best[:beam_size] if tokens[-1] == EOS]
        going_on = [tokens for tokens in best if tokens[-1] != EOS][:beam_size]
        finished |= {tokens: continued[tokens] for tokens in ended}
        begun = {tokens: continued[tokens] for tokens in going_on}
        if len(finished) >= beam_size and length < max_len:
            return rank(finished, penalty)
    return rank(finished | begun, penalty)


def naive_search_of(model, params, src, max_len, min_len, beam_size, penalty):
    @cache
    def log_p_after(begun):
        ids = np.array([(BOS, *begun)])
        logits = model.logits(params, src[None, src != PAD], ids, backend="reference")
        return log_softmax(logits[0, -1])

    words = [token for token in range(model.tgt_vocab) if token != PAD]
    return naive_beam_search(log_p_after, words, max_len, min_len, beam_size, penalty)


@pytest.mark.parametrize("alpha", [0, 0.6, 1, 2])
@pytest.mark.parametrize("form", ["power", "gnmt"])
def test_a_wide_beam_finds_every_sequence_in_order(every_backend, form, alpha):
    model, params = random_model(3, tgt_vocab=5)
    penalty = length_penalty_of(alpha, form)
    everything = naive_search_of(model, params, SRC[0], 4, 0, 122, penalty)
    assert len(everything) == 1 + 3 + 9 + 27 + 81
    options = {"beam_size": 122, "n_best": 122, "length_penalty": alpha, "penalty_form": form}
    options |= {**IDS, "max_len": 4, "backend": every_backend}
    (found,) = beam_search(model, params, SRC[:1], **options)
    assert_same(found, everything, 1e-10)


@pytest.mark.parametrize("seed", range(24))
def test_the_naive_search_finds_the_same(seed):
    """For each source alone; of what it has found, some or all are wanted."""
    rng = np.random.default_rng(seed)
    model, params = random_model(seed, tgt_vocab=int(rng.integers(4, 9)))
    min_len = int(rng.integers(0, 3))
    limits = rng.integers(max(1, min_len), 8, size=3)
    form = "gnmt" if seed % 2 else "power"
    alpha = (0, 0.6, 1, 2)[seed % 4]
    beam_size = 1 + seed % 5
    n_best = max(1, beam_size - seed % 3)
    options = {"beam_size": beam_size, "n_best": n_best, "max_len": limits, "min_len": min_len}
    options |= {"length_penalty": alpha, "penalty_form": form}
    options["backend"] = "cpu" if seed % 3 else "reference"
    found = beam_search(model, params, SRC, **IDS, **options)
    penalty = length_penalty_of(alpha, form)
    for actual, src, limit in zip(found, SRC, limits, strict=True):
        expected = naive_search_of(model, params, src, int(limit), min_len, beam_size, penalty)
        assert_same(actual, expected[:n_best], 1e-10)


# --- what holds for every result ---


@pytest.mark.parametrize("seed", range(12))
def test_a_beam_of_one_is_greedy(seed, every_backend):
    """So what the naive search says of a beam holds of greedy decoding, too."""
    model, params = random_model(seed)
    limits = np.random.default_rng(seed).integers(4, 10, 3)
    for options in ({"max_len": 9}, {"max_len": limits}, {"max_len": limits, "min_len": 4}):
        options |= {**IDS, "backend": every_backend}
        said = greedy_decode(model, params, SRC, **options)
        texts = [tuple(row[row != PAD].tolist()) for row in said]
        found = beam_search(model, params, SRC, beam_size=1, **options)
        assert [best.tokens for (best,) in found] == texts
        for row, text in zip(said, texts, strict=True):
            assert not row[len(text) :].any()  # padding follows the end alone


def test_a_search_that_stops_early_does_so_for_any_true():
    options = {**IDS, "max_len": 9, "length_penalty": 2}
    late, *early = (
        beam_search(*random_model(0), SRC, **options, early_stopping=early)
        for early in (False, True, 1, np.True_)
    )
    assert early == [early[0]] * 3
    assert early[0] != late


@pytest.mark.parametrize("penalty_form", ["power", "gnmt"])
def test_an_end_token_that_is_forced_at_max_len_counts_as_certain(penalty_form):
    model, params = random_model(0)
    params["output"]["bias"][EOS] = -1e9
    options = {**IDS, "beam_size": 3, "n_best": 3, "penalty_form": penalty_form}
    limits = np.array([4, 2, 6])
    cut = beam_search(model, params, SRC, max_len=limits, **options)
    forced = replace(model, forced_eos_id=EOS)
    found = beam_search(forced, params, SRC, max_len=limits + 1, **options)
    penalty = length_penalty_of(1.0, penalty_form)
    for hypotheses, wanted in zip(found, cut, strict=True):
        ended = {(*each.tokens, EOS): each.log_probability for each in wanted}
        assert_same(hypotheses, rank(ended, penalty), 1e-12)


@pytest.mark.parametrize("beam_size", [1, 2])
def test_padding_and_an_early_end_token_take_no_place_from_others(beam_size):
    model, params = random_model(0)
    params["output"]["bias"][[PAD, EOS]] = 20, 19  # the most probable two everywhere
    options = {"beam_size": beam_size, "n_best": beam_size, "backend": "reference"}
    (found,) = beam_search(model, params, SRC[:1], **IDS, max_len=5, min_len=4, **options)
    expected = naive_search_of(model, params, SRC[0], 5, 4, beam_size, lambda length: length)
    assert_same(found, expected[:beam_size], 1e-10)


def test_of_equally_probable_tokens_the_lower_ids_come_first(every_backend):
    model, params = random_model(0)
    params["output"]["weight"][...] = 0
    params["output"]["bias"][...] = 0
    params["output"]["bias"][EOS] = -100
    options = {**IDS, "beam_size": 4, "n_best": 4, "backend": every_backend}
    (found,) = beam_search(model, params, SRC[:1], **options, max_len=1)
    assert [hypothesis.tokens for hypothesis in found] == [(1,), (3,), (4,), (5,)]
    (found,) = beam_search(model, params, SRC[:1], **options, max_len=2)
    assert [hypothesis.tokens for hypothesis in found] == [(1, 1), (1, 3), (1, 4), (1, 5)]


def test_sums_beyond_the_range_of_float32():
    """The most probable token is padding, which is never said,
    so each other adds less than -1e38.
    """
    model, params = random_model(0, tgt_vocab=5, dtype="float32")
    params["output"]["weight"][...] = 0
    params["output"]["bias"][...] = [0, -2e38, -2.1e38, -2.2e38, -2.3e38]
    options = {"max_len": 4, "min_len": 3, "beam_size": 3, "n_best": 2}
    [[best, second]] = beam_search(model, params, SRC[:1], **IDS, **options)
    assert best.tokens == (1, 1, 1, 1)
    assert best.log_probability == pytest.approx(-8e38)
    assert second.tokens == (1, 1, 1, EOS)
    assert second.log_probability == pytest.approx(-8.1e38)
    target = np.array([[BOS, *best.tokens]])
    assert log_probability(model, params, SRC[:1], target).tolist() == [-np.inf]
    types = {type(x) for x in (*best.tokens, best.log_probability, best.score)}
    assert types == {int, float}


# --- the parts ---


PENALTIES = [
    (1, "power", 9, 9),
    (0.6, "power", 9, 9**0.6),
    (0, "power", 7, 1),
    (1, "gnmt", 13, 3),
    (2, "gnmt", 7, 4),
    (0, "gnmt", 7, 1),
    (0.6, "gnmt", 20, (25 / 6) ** 0.6),
]


@pytest.mark.parametrize(("alpha", "form", "length", "expected"), PENALTIES)
def test_length_penalties(alpha, form, length, expected):
    assert length_penalty_of(alpha, form)(length) == pytest.approx(expected, rel=1e-15)


def ranked(row):
    """Its places from the largest to the smallest, of equal ones the lower first; NaN is last."""
    return np.lexsort((np.arange(len(row)), -row, np.isnan(row)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [1, 5, 300, 1001])
def test_top_k_are_the_first_of_all_sorted_with_lower_ids_first_and_nan_last(
    every_backend, k, dtype
):
    """Of rows wider than what the kernel looks at together, in which many numbers are equal.

    The best are in its first, last and other parts.
    """
    rng = np.random.default_rng(2)
    x = (rng.integers(0, 40, (60, 1000)) / 8).astype(dtype)
    x[x == 3] = -np.inf
    x[:20, :300] = np.nan  # the first k are
    x[20:40][rng.random((20, 1000)) < 0.99] = np.nan
    x[[40, 41, 42], [999, 128, 0]] = 6
    values, ids = every_backend.log_softmax_top_k(x, k)
    for found, row in zip(ids, x, strict=True):
        n = min(k, np.count_nonzero(~np.isnan(row)))
        assert_array_equal(found[:n], ranked(row)[:n])
    with np.errstate(divide="ignore"):
        expected = np.take_along_axis(log_softmax(x[40:]), ids[40:], axis=1)
    np.testing.assert_allclose(values[40:], expected, rtol=10 * np.finfo(dtype).eps)
    assert values.dtype == dtype


def test_log_probability_is_minus_the_loss_of_all_tokens(every_backend):
    model, params = random_model(0)
    tgt = np.array([[BOS, 4, 5, 6, EOS], [BOS, 3, EOS, PAD, PAD], [BOS, 6, 6, EOS, PAD]])
    log_p = log_probability(model, params, SRC, tgt, backend=every_backend)
    for p, source, target in zip(log_p, SRC, tgt, strict=True):
        loss, n_tokens = model.loss(params, source[None], target[None])
        np.testing.assert_allclose(p, -loss * n_tokens, rtol=1e-12)


# --- bad arguments ---


def test_bad_arguments_are_named():
    model, params = random_model(0)

    refused = refusing(beam_search, model, params, SRC, **IDS, max_len=3)
    refused("n_best=6, expected at most beam_size=5", n_best=6)
    refused("penalty_form='wu', expected 'power' or 'gnmt'", penalty_form="wu")


def test_numbers_of_8_bits_do_not_overflow():
    """Entries of the cache were once overwritten.

    20 rows of 5 hypotheses and 16 tokens are 1,600.
    """
    model, params = random_model(0)
    src = np.random.default_rng(0).integers(3, 11, (20, 5))
    options = {**IDS, "max_len": 16, "beam_size": 5, "n_best": 2}
    narrow = {name: np.uint8(value) for name, value in options.items()}
    narrow["max_len"] = np.full(20, 16, np.uint8)
    expected = beam_search(model, params, src, **options)
    assert beam_search(model, params, src, **narrow) == expected
    sizes = {"max_rows": np.uint8(100), "max_len": np.uint8(16)}
    assert model.decoder(params, src, **sizes).kv.shape[1] == 1600


def test_the_text_of_a_hypothesis_is_short():
    def text_of(n):
        return repr(Hypothesis(tuple(range(n)), -60.0311393737793, -1.0719846316746302))

    numbers = "log-probability -60.03, score -1.072"
    assert text_of(3) == f"<Hypothesis of 3 tokens: 0, 1, 2; {numbers}>"
    assert text_of(50) == f"<Hypothesis of 50 tokens: 0, 1, 2, 3, 4, 5, 6, 7, …; {numbers}>"
    assert len(text_of(9999)) < 108
