"""What is drawn has the model's distribution, and depends on (key, row, position) only."""

import numpy as np
import pytest
from decoded import BOS, EOS, IDS, PAD, SRC, random_model
from numpy.testing import assert_array_equal
from refusals import refuses, refusing

from npformer import greedy_decode
from npformer.decoding import sample
from npformer.decoding.sampling import FEW, SamplingOptions, draw

MANY = np.tile(SRC[:1], (2000, 1))
MODEL, PARAMS = random_model()


def first_drawn(**options):
    """How often each token is the first of 2000 texts."""
    drawn = sample(MODEL, PARAMS, MANY, **IDS, max_len=1, **options)
    return np.bincount(drawn[:, 0], minlength=7)


def probabilities(model=MODEL, params=PARAMS, begun=(BOS,), temperature=1.0):
    """Of the token after ``begun``, padding left out."""
    logits = model.logits(params, SRC[:1], np.array([begun]), backend="reference")
    p = np.exp(logits[0, -1] / temperature)
    p[PAD] = 0
    return p / p.sum()


def assert_frequencies(counts, p):
    """Pearson's chi-square is below its mean plus four standard deviations,
    and what is impossible never happens.
    """
    possible = p > 0
    assert not counts[~possible].any()
    expected = counts.sum() * p[possible]
    chi_square = ((counts[possible] - expected) ** 2 / expected).sum()
    freedom = possible.sum() - 1
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5


# --- the distribution ---


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_first_tokens_are_as_frequent_as_probable(every_backend, temperature):
    counts = first_drawn(seed=1, temperature=temperature, backend=every_backend)
    assert_frequencies(counts, probabilities(temperature=temperature))


def test_the_bound_on_frequencies_sees_another_temperature():
    counts = first_drawn(seed=1, temperature=0.8)
    with pytest.raises(AssertionError):
        assert_frequencies(counts, probabilities())


def test_pairs_of_tokens_are_as_frequent_as_probable():
    """Draws at one position tell nothing of those at the next."""
    model, params = random_model(1, tgt_vocab=5)
    first, second = sample(model, params, MANY, **IDS, max_len=2, seed=2).T
    counts = np.zeros((5, 5), int)
    np.add.at(counts, (first, second), 1)
    p = probabilities(model, params)
    p = p[:, None] * [probabilities(model, params, [BOS, token]) for token in range(5)]
    p[EOS] = [p[EOS].sum(), 0, 0, 0, 0]  # padding follows the end token
    assert_frequencies(counts.ravel(), p.ravel())


def test_one_row_draws_by_key_as_by_row():
    counts = np.zeros(7, int)
    for seed in range(300):
        counts[sample(MODEL, PARAMS, SRC[:1], **IDS, max_len=1, seed=seed)[0, 0]] += 1
    assert_frequencies(counts, probabilities())


# --- what is nearly certain is greedy ---


NEARLY_CERTAIN: list[dict] = [
    {"top_k": 1},
    {"top_p": 1e-9},
    {"min_p": 0.999999},
    {"temperature": 1e-4},
    {"temperature": 1e-30},
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", NEARLY_CERTAIN, ids=str)
def test_the_most_probable_only_is_greedy(options, seed):
    model, params = random_model(seed, dtype="float32")
    for lengths in ({"max_len": 9}, {"max_len": [4, 9, 1]}, {"max_len": 9, "min_len": 5}):
        said = greedy_decode(model, params, SRC, **IDS, **lengths)
        drawn = sample(model, params, SRC, **IDS, **lengths, seed=seed, **options)
        assert_array_equal(drawn, said)


# --- the key ---


def test_the_same_key_draws_the_same_and_others_differ():
    def drawn(seed):
        return sample(MODEL, PARAMS, MANY[:20], **IDS, max_len=5, min_len=5, seed=seed)

    assert_array_equal(drawn(1), drawn(1))
    assert len({drawn(seed).tobytes() for seed in (1, 2, 1 + 2**40, -1)}) == 4


def test_rows_draw_by_their_number_whatever_follows():
    many = sample(MODEL, PARAMS, MANY[:20], **IDS, max_len=9, seed=1)
    few = sample(MODEL, PARAMS, MANY[:6], **IDS, max_len=9, seed=1)
    n = few.shape[1]
    assert_array_equal(few, many[:6, :n])
    assert not many[:6, n:].any()
    assert len(np.unique(many, axis=0)) > 10  # and not all the same


# --- lengths ---


def test_lengths_are_bounded_and_padding_follows_the_end_only():
    model, params = random_model()
    params["output"]["bias"][[PAD, EOS]] += 3
    limits = np.arange(300) % 6 + 3
    drawn = sample(model, params, MANY[:300], **IDS, max_len=limits, min_len=3, seed=1)
    lengths = (drawn != PAD).sum(axis=1)
    for row, n, limit in zip(drawn, lengths, limits, strict=True):
        assert 3 <= n <= limit
        assert not row[n:].any()
        assert EOS not in row[: n - 1]
        assert row[n - 1] == EOS or n == limit
    assert (lengths < limits).sum() > 100


# --- draw ---

P = np.array([[0.2, 0.4, 0.0, 0.3, 0.1]])  # ranked 1, 3, 0, 4


def drawn_from(p, uniform, **options):
    with np.errstate(divide="ignore"):
        logits = np.log(p)
    logits = np.repeat(logits, len(uniform), axis=0)
    return draw(logits, np.array(uniform), SamplingOptions(**options)).tolist()


def test_draw_finds_where_the_distribution_function_passes_the_number():
    uniform = [1e-9, 0.39, 0.41, 0.69, 0.71, 0.89, 0.91, 1 - 1e-9]
    assert drawn_from(P, uniform) == [1, 1, 3, 3, 0, 0, 4, 4]


def test_draw_among_what_the_options_leave():
    def drawn(*uniform, **options):
        return drawn_from(P, uniform, **options)

    assert drawn(0.57, 0.58, 0.999, top_k=2) == [1, 3, 3]  # 4/7 = 0.571
    assert drawn(0.999, top_k=1) == [1]
    assert drawn(0.999, top_k=99) == [4]
    assert drawn(0.999, top_p=0.39) == [1]
    assert drawn(0.57, 0.58, 0.999, top_p=0.41) == [1, 3, 3]
    assert drawn(0.999, top_p=0.71) == [0]
    assert drawn(0.999, top_p=1.0) == [4]
    # top_p is of what top_k has left: token 1 has 4/7 of the two
    assert drawn(0.999, top_k=2, top_p=0.56) == [1]
    assert drawn(0.999, top_k=2, top_p=0.58) == [3]
    assert drawn(0.57, 0.58, 0.999, min_p=0.6) == [1, 3, 3]  # 0.3 of 0.4
    assert drawn(0.999, min_p=0.4) == [0]
    assert drawn(0.999, min_p=0.2) == [4]
    assert drawn(0.999, min_p=0.0) == [4]
    assert drawn(0.999, min_p=0.2, top_p=0.71) == [0]
    assert drawn(0.999, min_p=0.2, top_k=3) == [0]


@pytest.mark.parametrize("min_p", [0.0, 1e-3, 0.3])
def test_a_large_vocabulary_is_drawn_from_as_if_all_were_ranked(min_p):
    """Few tokens are ranked at first, and all only if they do not suffice."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((200, 3 * FEW)) / 4
    uniform = (np.arange(200) + 0.5) / 200
    drawn = draw(logits, uniform, SamplingOptions(min_p=min_p))
    for row, u, token in zip(logits, uniform, drawn, strict=True):
        ids = np.argsort(-row, kind="stable")
        p = np.exp(row[ids] - row.max())
        p[p < min_p] = 0
        n_before = (np.cumsum(p / p.sum()) < u).sum()
        assert token == ids[n_before]


def test_of_equal_logits_the_lower_id_is_drawn_first():
    equal = np.full((1, 4), 0.25)
    assert drawn_from(equal, [0.1, 0.3, 0.6, 0.9]) == [0, 1, 2, 3]
    assert drawn_from(equal, [0.4, 0.6], top_k=2) == [0, 1]


def test_impossible_tokens_are_never_drawn():
    uniform = [2**-33, 0.5, 1 - 2**-33]  # the ends of what is drawn from
    assert 2 not in drawn_from(P, uniform)
    assert drawn_from(np.array([[0.0, 0.0, 1.0]]), uniform) == [2, 2, 2]


def test_large_float32_logits_do_not_overflow():
    logits = np.array([[3e38, -3e38, 2e38]], "float32")
    assert draw(logits, np.array([0.999]), SamplingOptions()).tolist() == [0]


# --- extreme options ---


def model_that_says(logits):
    """A model, float32, whose logits are always the same."""
    model, params = random_model(tgt_vocab=len(logits), dtype="float32")
    params["output"]["weight"][...] = 0
    params["output"]["bias"][...] = logits
    return model, params


def test_an_extreme_penalty_is_computed():
    model, params = model_that_says([-1, -1, -1, 2, 1.5, 1, 0.5])

    def text(penalty):
        options = {"max_len": 3, "top_k": 1, "seed": 0, "repetition_penalty": penalty}
        with np.errstate(all="raise"):
            return sample(model, params, SRC[:1], **IDS, **options).tolist()

    # 2 / 1e-300 is the largest logit; in float32 the penalty would be 0
    assert text(1e-300) == text(1e-45) == [[3, 3, 3]]
    # what has occurred has a logit of about 0
    assert text(1e45) == text(1e300) == [[3, 4, 5]]


OVERFLOWS = [(5e-324, [-1, -1, -1, 2, 1]), (1e300, [-1, -1e10, -1e10, -1e9, -1e9])]


@pytest.mark.parametrize(("penalty", "logits"), OVERFLOWS)
def test_a_penalty_that_overflows_is_refused(penalty, logits):
    model, params = model_that_says(logits)
    options = {**IDS, "max_len": 5, "min_len": 5, "seed": 0, "repetition_penalty": penalty}
    message = "repetition_penalty=.* makes logits infinite"
    with np.errstate(all="raise"):
        refuses(ValueError, message, sample, model, params, SRC[:1], **options)


FEWER = [{}, {"top_k": 3}, {"top_p": 5e-324}, {"top_p": 0.5}, {"min_p": 5e-324}]


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-3, 1.0, 1e308])
@pytest.mark.parametrize("options", FEWER, ids=str)
def test_no_temperature_overflows_or_underflows(temperature, options):
    logits = [[-3e38, 1.0, 3.0, -np.inf, 1e-45], [-1.0, -1e38, -2.0, -1e-40, -2e3]]
    logits = np.array(logits, "float32")
    uniform = np.array([2**-33, 0.9])
    options = SamplingOptions(temperature=temperature, **options)
    with np.errstate(all="raise"):
        first, second = draw(logits, uniform, options)
    assert first == 2  # the most probable one is drawn first
    if temperature <= 1e-3:
        assert second == 3


# --- bad arguments ---


def test_bad_arguments_are_named():
    refused = refusing(sample, MODEL, PARAMS, SRC, **IDS, max_len=3, seed=1)
    refused("seed=None is a NoneType, expected an int", TypeError, seed=None)
    refused("seed=1.0 is a float, expected an int", TypeError, seed=1.0)
