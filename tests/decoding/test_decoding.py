"""What is refused, what cannot be chosen, and what is kept from token to token.

What is said, ``test_beam_search.py`` tests.
"""

from collections import Counter
from dataclasses import replace
from functools import partial

import decoded
import numpy as np
import pytest
from decoded import IDS, METHODS, random_model
from numpy.testing import assert_array_equal
from programs import use_threads
from promises import params_of
from refusals import refuses, refusing

from npformer import (
    ByteNet,
    LanguageModel,
    Recurrent,
    Transformer,
    beam_search,
    greedy_decode,
    log_probability,
    sample,
    tree,
)
from npformer.decoding.translation import TranslationDecoder

MODEL = Transformer(11, 11, d_model=14, n_heads=2, n_layers=1, d_ff=17, dtype="float64")
SRC = np.array([[3, 4, 5, 6, 7], [3, 9, 8, 0, 0], [10, 0, 0, 0, 0]])


def params_for(seed=0):
    params = MODEL.init(seed)
    params["output"]["bias"][2] = 0.5  # so that some sequences end
    return params


@pytest.fixture(params=METHODS)
def method(request):
    return METHODS[request.param]


def texts_of(found):
    """The tokens of all results, also of beam search."""
    if isinstance(found, list):
        return [list(hypothesis.tokens) for hypotheses in found for hypothesis in hypotheses]
    return found.tolist()


def test_no_sources_no_targets(method):
    assert len(method(MODEL, params_for(), SRC[:0], max_len=6)) == 0


@pytest.mark.parametrize("n_threads", [2, 4, 12])
def test_parts_of_a_batch_in_threads_are_as_the_whole(
    method, n_threads, every_backend, monkeypatch
):
    model, params = random_model()
    src = np.concatenate([decoded.SRC, decoded.SRC[::-1]] * 2)
    options = {"max_len": np.array([9, 2, 5, 1] * 3), "backend": every_backend}
    whole = method(model, params, src, **options)
    monkeypatch.setattr("npformer.operations.host.FEW_ROWS", 0)
    use_threads(monkeypatch, n_threads)
    assert texts_of(method(model, params, src, **options)) == texts_of(whole)


@pytest.mark.parametrize(
    "decode", [greedy_decode, partial(sample, seed=0, top_k=1)], ids=["greedy", "sample"]
)
def test_an_end_token_may_be_forced_at_max_len(decode, every_backend):
    params = params_for()
    params["output"]["bias"][2] = -1e9
    options = {**IDS, "backend": every_backend}
    limits = np.array([3, 7, 5])
    cut = decode(MODEL, params, SRC, max_len=limits, **options)
    forced = replace(MODEL, forced_eos_id=2)
    ended = decode(forced, params, SRC, max_len=limits + 1, **options)
    expected = np.pad(cut, ((0, 0), (0, 1)))
    expected[range(3), limits] = 2
    assert_array_equal(ended, expected)


@pytest.mark.parametrize("end", [-1, 11, 0])
def test_an_end_token_that_is_forced_is_a_word(end):
    message = f"forced_eos_id={end}, expected an id of the target's vocabulary, and not"
    refuses(ValueError, message, replace, MODEL, forced_eos_id=end)


def test_bad_arguments_are_named():
    refused = refusing(greedy_decode, MODEL, params_for(), src=SRC, **IDS, max_len=3)
    refused("bos_id=11, expected 0 <= bos_id < 11", bos_id=11)
    refused("eos_id=-1, expected 0 <= eos_id < 11", eos_id=-1)
    refused("max_len=0, expected 1 <= max_len <= 5000", max_len=0)
    refused("max_len=3.0 is a float, expected an int", TypeError, max_len=3.0)
    refused("max_len=0, expected 1 <= max_len <= 5000", max_len=[3, 0, 3])
    few = r"max_len has shape \(2,\), dtype int64: expected an int, or one"
    refused(few, max_len=np.array([3, 3]))
    refused(r"max_len has shape \(3, 1\)", max_len=np.ones((3, 1), int))
    refused(r"max_len has shape \(3,\), dtype float64", max_len=np.ones(3))
    refused("min_len=4, expected at most max_len=3", min_len=4)
    refused("min_len=2, expected at most max_len=1", min_len=2, max_len=[3, 1, 3])
    refused(r"src has shape \(5,\), expected \(B, S\)", src=SRC[0])
    refused(r"src\[0, 0\] is 11, expected 0 <= id < 11", src=SRC + 8)
    refused("src has dtype float64, expected integers", TypeError, src=SRC.astype(float))
    refused("max_len=5001, expected 1 <= max_len <= 5000", src=SRC[:0], max_len=5001)
    refused("bos_id=0 is the padding's id", bos_id=0)
    refused("eos_id=0 is the padding's id", eos_id=0)
    refused("eos_id=2.5 is a float", TypeError, eos_id=2.5)


def test_what_cannot_be_called_in_each_step_is_refused():
    message = "on_step='x' is a str, expected a function"
    for name in ("greedy_decode", "sample"):
        refuses(TypeError, message, METHODS[name], MODEL, {}, SRC, max_len=3, on_step="x")


def test_the_probability_of_a_target_is_one_of_a_model_with_a_source():
    model = LanguageModel(11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    message = "model is a LanguageModel, expected a model from a source to a target such as"
    refuses(TypeError, message, log_probability, model, model.init(0), SRC, SRC)
    message = r"expected \(B, T\+1\), .*: try tgt\.argmax\(axis=-1\) if its rows are one"
    one_hot = np.eye(11, dtype=int)[SRC]
    refuses(ValueError, message, log_probability, MODEL, params_for(), SRC, one_hot)


# --- logits of which none can be chosen ---


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "path", ["decoder.0.memory_attention.out.weight", "source_embedding", "output.bias"]
)
def test_a_parameter_that_is_not_finite_is_named(every_backend, method, path, bad):
    params = params_for()
    dict(tree.leaves(params))[path][...] = bad
    message = rf"token 1 cannot .* NaN or infinite; parameter {path} holds NaN or inf"
    refuses(ValueError, message, method, MODEL, params, SRC, max_len=5, backend=every_backend)
    message = f"log-probability of row 0 is NaN; parameter {path} holds NaN or inf"
    refuses(ValueError, message, log_probability, MODEL, params, SRC, SRC, backend=every_backend)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_every_logit_of_every_row_has_to_be_finite(method):
    def refused(message, path, place, value):
        params = params_for()
        dict(tree.leaves(params))[path][place] = value
        refuses(ValueError, message, method, MODEL, params, SRC, max_len=5)

    message = "the logits are NaN or infinite; parameter output.bias holds NaN or inf"
    refused(message, "output.bias", 0, np.nan)  # of padding: otherwise no probability would be
    refused(message, "output.bias", 0, np.inf)
    message = "parameter source_embedding holds NaN or inf"
    refused(message, "source_embedding", 10, np.nan)  # a word of the last source
    message = "the logits are NaN or infinite; no parameter holds NaN or inf"
    refused(message, "output.weight", ..., 1e308)


def test_no_token_but_padding_and_end_is_an_error_before_min_len(method):
    model = Transformer(11, 2, d_model=4, n_heads=2, n_layers=1, d_ff=4)
    params = model.init(0)
    ids = {"bos_id": 1, "eos_id": 1}
    message = "token 1 cannot be chosen: all logits but those of padding .* are -inf"
    refuses(ValueError, message, method, model, params, SRC, max_len=4, min_len=3, **ids)
    said = texts_of(method(model, params, SRC, max_len=4, **ids))
    assert said == [[1]] * 3  # 1 sequence for each source, also if 4 are asked for


def test_tokens_of_probability_0_are_never_said_and_others_are(method):
    params = params_for()
    params["output"]["bias"][3:] = -np.inf
    params["output"]["bias"][2] = -1e9
    found = method(MODEL, params, SRC, max_len=3)
    said = [row[0].tokens for row in found] if isinstance(found, list) else found
    assert np.array_equal(said, np.ones((3, 3)))
    params["output"]["bias"][1:] = -np.inf
    message = "token 1 .* are -inf; parameter output.bias holds NaN or inf"
    refuses(ValueError, message, method, MODEL, params, SRC, max_len=3)
    assert (log_probability(MODEL, params, SRC, SRC) == -np.inf)[:2].all()


@pytest.mark.parametrize("beam_size, max_len, expected", [(50, 1, 10), (50, 2, 50), (7, 1, 7)])
def test_fewer_hypotheses_than_asked_for_if_there_are_no_more_sequences(
    beam_size, max_len, expected
):
    """With a vocabulary of 11 there are 10 sequences of one token."""
    options = {**IDS, "max_len": max_len, "beam_size": beam_size, "n_best": beam_size}
    found = beam_search(MODEL, params_for(), SRC, **options)
    assert [len(row) for row in found] == [expected] * 3


def test_what_underflows_is_no_error_where_numpy_raises_errors(method):
    """Logits of which all but a few have probabilities that float32 does not hold."""
    params = tree.map_leaves(lambda x: x.astype("float32"), params_for())
    params["output"]["bias"][5:] = -np.geomspace(90, 1e38, 6)
    model = replace(MODEL, dtype="float32")
    with np.errstate(all="raise"):
        found = method(model, params, SRC, max_len=5, min_len=3, backend="cpu")
        log_p = log_probability(model, params, SRC[:2], SRC[:2], backend="cpu")
    assert len(found) == 3
    assert (log_p < -90).all()


# --- what is kept from token to token ---


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_source_of_padding_only_adds_nothing_not_even_nan(every_backend, norm, monkeypatch):
    model = replace(MODEL, norm=norm)
    params = params_of(model)
    src = np.zeros((1, 3), int)

    def steps():
        decoder = model.decoder(params, src, max_rows=1, max_len=3, backend=every_backend)
        return [decoder.step(np.array([token]), np.array([0])) for token in (1, 7, 4)]

    before = steps()
    monkeypatch.setattr(Transformer, "encode", lambda *args, **options: np.full((1, 3, 14), np.nan))
    assert_array_equal(steps(), before)
    assert np.isfinite(before).all()


@pytest.mark.parametrize("make", [Transformer, ByteNet, Recurrent])
def test_float32_stays_float32(make, every_backend):
    model = make(11, 11, d_model=8)
    params = model.init(0)
    decoder = model.decoder(params, SRC, max_rows=3, max_len=2, backend=every_backend)
    loss, grads, _ = model.loss_and_grad(params, SRC, SRC, dropout_key=1, backend=every_backend)
    results = [loss, *(x for _, x in tree.leaves(grads))]
    results += [decoder.step(np.ones(3, int), np.arange(3)) for _ in range(2)]
    assert {x.dtype for x in results} == {np.dtype("float32")}


def test_keys_and_values_of_the_source_are_computed_once(every_backend):
    n_products = Counter()

    def linear(x, weight, bias):
        n_products[id(weight)] += 1
        return every_backend.linear(x, weight, bias)

    ops = every_backend.replaced(linear=linear)
    params = params_of(MODEL)
    greedy_decode(MODEL, params, SRC, **IDS, max_len=5, min_len=5, backend=ops)
    of_source = params["decoder"]["0"]["memory_attention"]["kv"]
    assert n_products[id(of_source["weight"])] == 1
    assert n_products[id(params["output"]["weight"])] == 5


@pytest.mark.parametrize(
    ("n_beams", "expected"), [(1, [3, 2, 2, 1, 1, 1]), (2, [3, 4, 4, 2, 2, 2])]
)
def test_rows_that_have_ended_are_not_computed(n_beams, expected, monkeypatch):
    rows = []
    step = TranslationDecoder.step

    def watched(self, tokens, parents, then):
        rows.append(len(tokens))
        return step(self, tokens, parents, then)

    monkeypatch.setattr(TranslationDecoder, "step", watched)
    limits = np.array([3, 1, 6])
    params = params_of(MODEL)
    params["output"]["bias"][2] = -1e9  # no end token
    decode = greedy_decode if n_beams == 1 else partial(beam_search, beam_size=n_beams)
    decode(MODEL, params, SRC, **IDS, max_len=limits)
    assert rows == expected


def test_more_rows_or_steps_than_announced_are_refused():
    decoder = MODEL.decoder(MODEL.init(0), SRC[:1], max_rows=1, max_len=1)
    message = r"2 tokens, 2 parents: expected equal numbers, from 1 to max_rows=1"
    refuses(ValueError, message, decoder.step, np.array([1, 1]), np.array([0, 0]))
    decoder.step(np.array([1]), np.array([0]))
    message = "step 2, expected at most max_len=1"
    refuses(ValueError, message, decoder.step, np.array([3]), np.array([0]))


@pytest.mark.parametrize("make", [Transformer, ByteNet, Recurrent])
def test_a_decoder_has_at_most_the_positions_of_its_model(make):
    model = make(11, 11, d_model=8, max_len=5)

    refused = refusing(model.decoder, model.init(0), SRC)
    refused("max_len=6, expected at most 5", max_rows=1, max_len=6)
    refused("max_len=0, expected at least 1", max_rows=1, max_len=0)
    refused("max_rows=0, expected at least 1", max_rows=0, max_len=5)
