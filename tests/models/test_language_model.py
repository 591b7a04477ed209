"""The decoder-only Transformer.

Its loss, what a token sees, texts that go on after prompts, what is refused.
"""

import contextlib
import os
import re
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from catalogue import (
    GPT2,
    LANGUAGE_MODELS as SETTINGS,
    LLAMA,
    OF_TEXTS as SIZES,
    TEXTS as IDS,
    WINDOW,
    V,
)
from numpy.testing import assert_array_equal
from oracles import assert_close
from programs import use_threads
from promises import (
    assert_weights_are_of_what_is_seen,
    drawn_steps,
    params_of,
    surprise_at,
)
from refusals import refuses, refusing
from results import wait_for_helpers
from tables import each_of

from npformer import (
    Adam,
    Encoder,
    LanguageModel,
    Trainer,
    Transformer,
    beam_search,
    greedy_decode,
    layers,
    log_probability,
    quantize,
    sample,
)
from npformer.decoding.generation import generate
from npformer.decoding.prompts import Prompts
from npformer.decoding.request import checked_request
from npformer.layers.cache import BlockCache
from npformer.models import LowRank

each_setting = each_of("settings", SETTINGS)
each_backend = pytest.mark.usefixtures("default_backend")
PROMPTS = [[3, 4, 5, 1], [7], [2, 2], [9, 8, 7, 6, 5, 4]]


def made(settings=None, **more):
    model = LanguageModel(V, **{**SIZES, **(settings or {}), **more})
    return model, params_of(model)


# --- the loss ---


def test_the_loss_is_the_mean_surprise_at_the_next_tokens_that_are_not_padding():
    model, params = made(GPT2)
    ids, targets = IDS[:, :-1], IDS[:, 1:]
    surprise = surprise_at(targets, model.logits(params, ids))[targets != 0]
    loss, n = model.loss(params, IDS)
    assert loss == pytest.approx(surprise.mean(), rel=1e-13)
    assert n == surprise.size
    assert model.loss(params, ids, targets) == (loss, n)


# --- what a token sees ---


def test_attention_weights_of_every_layer():
    model, params = made(WINDOW)
    weights = model.attention_weights(params, IDS)["layers"]
    assert [x.shape for x in weights] == [(4, 4, 7, 7)] * 2
    near = np.tri(7, k=0) - np.tri(7, k=-3)
    assert_weights_are_of_what_is_seen(weights, near * (IDS != 0)[:, None, None])


# --- step by step ---


def assert_steps_are_the_whole(model, params, prompts=PROMPTS, n_steps=9):
    decoder = model.decoder(params, prompts, max_rows=6, max_len=n_steps)
    for tokens, parents, _, texts in drawn_steps(prompts, n_steps, range(1, V)):
        logits = decoder.step(tokens, parents)
        for row, text in zip(logits, texts, strict=True):
            expected = model.logits(params, np.array([text]), backend="reference")
            assert_close(row, expected[0, -1], 1e-12)
    return decoder


@each_setting
@each_backend
def test_steps_are_the_whole_computation(settings, monkeypatch):
    """Each cache grows several times."""
    monkeypatch.setattr("npformer.decoding.entries.STEPS_OF_GROWTH", 1)
    assert_steps_are_the_whole(*made(settings))


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("window", [None, 1, 2])
@each_backend
def test_steps_after_prompts_of_equal_lengths(n, window):
    prompts = [[1, 2, 3][:n], [4, 5, 6][:n]]
    decoder = assert_steps_are_the_whole(*made(window=window, n_kv_heads=2), prompts)
    # entries that no window reaches are used again
    entries = 2 * (n - 1) + (window or 9) * 6
    assert int(decoder.at.max()) < entries
    assert decoder.entries.kv.shape[-1] == 2 * 2 * 2  # keys and values, heads, width


def test_parts_of_a_batch_in_threads_are_as_the_whole(monkeypatch):
    model, params = made(GPT2)
    decode = partial(greedy_decode, model, params, PROMPTS * 3, max_len=9, backend="cpu")
    whole = decode()
    monkeypatch.setattr("npformer.operations.host.FEW_ROWS", 0)
    use_threads(monkeypatch, 3)
    assert_array_equal(decode(), whole)


def test_prompts_may_be_padded_and_padding_is_never_said():
    model, params = made(GPT2)
    texts = [row[row != 0] for row in IDS]
    said = greedy_decode(model, params, texts, max_len=6)
    assert_array_equal(greedy_decode(model, params, IDS, max_len=6), said)
    assert (said != 0).all()
    assert greedy_decode(model, params, [], max_len=3).shape == (0, 0)
    assert beam_search(model, params, [], max_len=3) == []


# --- what is said ---


def whole_logits(model, params, text, n_prompt):
    """The logits of the token after a text, computed anew; beyond the context as with slide.

    A model whose positions have no vectors, but a window, computes a whole text that is longer than
    its context.
    """
    if model.window is not None and model.positions in ("rotary", "none"):
        model = replace(model, max_len=100)
    first = max(0, n_prompt - model.max_len)
    half = max(1, model.max_len // 2)
    for n in range(n_prompt, len(text) + 1):
        if n - first > model.max_len:
            first = n - half
    seen = np.array([text[first:]])
    return model.logits(params, seen, backend="reference")[0, -1]


def continued(model, params, prompts, n, penalty=1.0, first_end=0, ends=()):
    """n tokens after each prompt, the most probable ones, computed anew for each; no end before
    the number first_end.
    """
    rows = []
    for prompt in prompts:
        text = list(prompt)
        for t in range(n):
            logits = whole_logits(model, params, text, len(prompt))
            seen = np.isin(np.arange(V), text)
            logits[seen] = np.where(logits > 0, logits / penalty, logits * penalty)[seen]
            if model.pad_id is not None:
                logits[model.pad_id] = -np.inf
            if t < first_end:
                logits[list(ends)] = -np.inf
            text.append(int(logits.argmax()))
        rows.append(text[len(prompt) :])
    return np.array(rows)


CASES = {name: (settings, 7, False) for name, settings in SETTINGS.items()}
CASES |= {
    "without padding": ({**GPT2, "pad_id": None}, 8, False),
    "one token": (GPT2, 1, False),
    "two tokens": (GPT2, 2, False),
    "no positions with a window": ({"positions": "none", "window": 3}, 7, False),
    # with an activation whose kernel of integers in float64 other tests compile, too
    "integers": (LLAMA | {"activation": "relu"}, 7, True),
    "integers, window": (WINDOW | {"activation": "relu"}, 7, True),
}


@each_of(("settings", "max_len", "of_integers"), CASES)
def test_each_row_has_the_context_that_it_has_alone(settings, max_len, of_integers, every_backend):
    """Rows of random tokens, which are full at different steps, and end at different steps.

    Beyond the context they go on with its latest half.
    """
    model, params = made(settings, max_len=max_len)
    if of_integers:
        params = quantize(params)
    rng = np.random.default_rng(0)
    prompts = [*PROMPTS, [5, 6, 7, 8, 9, 1, 2, 3, 4, 11]]
    texts = [[*prompt] for prompt in prompts]

    def choose(logits, rows, t):
        tokens = rng.integers(1, V, len(rows))
        for row, found, token in zip(rows, logits, tokens, strict=True):
            expected = whole_logits(model, params, texts[row], len(prompts[row]))
            assert_close(found[1:], expected[1:], 1e-12)
            texts[row].append(int(token))
        return tokens

    request = checked_request(model, prompts, None, None, [11, 15, 3, 10, 15], 0, slide=True)
    generate(request, params, choose, every_backend)


@each_setting
def test_a_text_without_end_does_not_need_a_cache_without_end(settings, monkeypatch):
    monkeypatch.setattr("npformer.decoding.entries.STEPS_OF_GROWTH", 1)
    model, params = made(settings, max_len=8)
    decoder = model.decoder(params, [], max_rows=2)
    greedy_decode(model, params, [[1, 2], [3]], max_len=100, slide=True, decoder=decoder)
    assert decoder.at.shape[1] <= 8
    # of the prompts and of eight steps, as a cache is doubled
    assert decoder.entries.kv.shape[1] <= 2 * (2 + 8 * 2)


def test_a_limit_that_is_not_reached_takes_no_memory():
    model, params = made()
    [first] = greedy_decode(model, params, [[3]], max_len=1)
    said = greedy_decode(model, params, [[3]], eos_id=int(first[0]), max_len=10**12, slide=True)
    assert_array_equal(said, [first])


@pytest.mark.parametrize("penalty", [0.5, 1.0, 2.0])
@each_backend
def test_the_penalty_counts_tokens_of_the_prompt_and_those_that_were_said(penalty):
    model, params = made(GPT2)
    expected = continued(model, params, PROMPTS, 12, penalty)
    options = {"max_len": 12, "top_k": 1, "repetition_penalty": penalty, "seed": 0}
    assert_array_equal(sample(model, params, PROMPTS, **options), expected)
    if penalty == 2.0:
        assert (expected != continued(model, params, PROMPTS, 12)).any()


def test_the_first_of_several_ends_ends_a_text_after_min_len():
    model, params = made()
    free = continued(model, params, PROMPTS, 12)
    ends = [int(free[0, 4]), int(free[1, 7]), int(free[2, 1])]
    said = greedy_decode(model, params, PROMPTS, eos_id=ends, max_len=12)
    for row, whole in zip(said, free, strict=True):
        places = np.flatnonzero(np.isin(whole, ends))
        n = min([*places + 1, 12])
        assert_array_equal(row[:n], whole[:n])
        assert set(row[n:]) <= {ends[0]}
    options = {"eos_id": tuple(ends), "max_len": 12, "min_len": 6}
    said = greedy_decode(model, params, PROMPTS, **options)
    later = continued(model, params, PROMPTS, 12, first_end=5, ends=ends)
    assert_array_equal(said[:, :6], later[:, :6])
    assert np.isin(said[:, 5:], ends).any()
    (found,) = beam_search(model, params, PROMPTS[:1], **options, beam_size=4, n_best=4)
    for hypothesis in found:
        assert len(hypothesis.tokens) >= 6
        assert not {*hypothesis.tokens[:-1]} & {*ends}


def test_each_text_has_its_own_limit_and_may_have_no_end():
    model, params = made(GPT2)
    limits = np.array([1, 12, 5, 3])
    said = greedy_decode(model, params, PROMPTS, max_len=limits)
    expected = continued(model, params, PROMPTS, 12)
    assert_array_equal(said, np.where(np.arange(12) < limits[:, None], expected, 0))


@each_backend
def test_beam_search_adds_up_the_log_probabilities_after_a_prompt():
    model, params = made(WINDOW)
    end = int(continued(model, params, PROMPTS[:1], 4)[0, 3])
    options = {"eos_id": end, "max_len": 7, "beam_size": 3, "n_best": 3}
    for prompt, found in zip(PROMPTS, beam_search(model, params, PROMPTS, **options), strict=True):
        for hypothesis in found:
            tokens = np.array(hypothesis.tokens)
            text = np.array([[*prompt, *tokens[:-1]]])
            logits = model.logits(params, text)[0, len(prompt) - 1 :]
            log_p = -surprise_at(tokens, logits).sum()
            assert hypothesis.log_probability == pytest.approx(log_p, rel=1e-12)
    said = greedy_decode(model, params, PROMPTS, max_len=7)
    found = beam_search(model, params, PROMPTS, max_len=7, beam_size=1)
    assert [best.tokens for (best,) in found] == [*map(tuple, said)]


@pytest.mark.parametrize(("batch", "width"), [((IDS,), 7), ((IDS, IDS), 12)])
def test_a_batch_that_is_filled_up_has_the_same_loss(batch, width):
    model, params = made(GPT2)
    wide = model.fill_up(batch, lambda n: -(-n // 6) * 6)
    assert {x.shape for x in wide} == {(6, width)}
    loss, n = model.loss(params, *wide)
    assert loss == pytest.approx(model.loss(params, *batch)[0], rel=1e-13)
    assert n == model.count(*batch)


# --- settings ---


def test_settings_that_contradict_each_other_or_do_not_exist():
    refused = refusing(made)
    refused(r"n_layers=\(1, 2\) is a tuple, expected an int", TypeError, n_layers=(1, 2))
    refused("pad_id=13, expected an id of the vocabulary", pad_id=V)
    refused("d_model=8, n_heads=8: heads of odd width 1 cannot be rotary", n_heads=8)
    refused("d_head=3: heads of odd width 3 cannot be rotary", d_head=3)
    refused("expected positions='rotary'", positions="learned", rotary=layers.Rotary())
    refused("bases=5.0 is no setting of rotary, expected base, ", TypeError, rotary={"bases": 5.0})
    refused("rotary is a float, expected Rotary", TypeError, rotary=5.0)


MODEL, PARAMS = made(pad_id=0, max_len=8)


def refused(message, prompts, error=ValueError, **options):
    refuses(error, message, greedy_decode, MODEL, PARAMS, prompts, **{"max_len": 3, **options})


def test_wrong_prompts_are_named():
    refused("prompt 1 is empty, expected one or more tokens", [[1], []])
    refused("prompt 1 is empty", np.array([[1, 2], [0, 0]]))
    refused("prompt 1 has 9 tokens, expected at most max_len=8 of the model", [[1], [1] * 9])
    refused("give its last 8, or slide=True", [[1] * 9])
    refused(r"prompts\[0\]\[1\] is 13, expected 0 <= id < 13", [[1, V]])
    refused(r"prompts\[0, 1\] is -1, expected 0 <= id < 13", np.array([[1, -1]]))
    refused(r"prompts\[0\] has dtype float64, expected integers", [[1.0, 2.0]], TypeError)
    refused(r"prompt 0 has shape \(\), expected a sequence of token ids", [1, 2])
    refused(r"prompt 0 has shape \(1, 1\), expected a sequence of token ids", [[[1]]])
    refused(r"prompts has shape \(2,\), expected \(B, T\), or a list", np.array([1, 2]))
    text = "prompts has the text 'text', expected token ids"
    refused(f"{text}: encode it first", "text", TypeError)
    refused(text, ["text"], TypeError)
    refused("prompts has padding before a token", np.array([[0, 1]]))
    refused(r"prompts\[1\] has padding, id 0, expected none", [[1], [2, 0, 3]])


def test_wrong_options_are_named():
    refused("slide='no' is a str, expected True or False", [[1]], TypeError, slide="no")
    too_many = "max_len=92.*, expected at most"
    refused(too_many, [[1]], slide=True, max_len=2**63)
    refused(too_many, [[1]], slide=True, max_len=np.array([2**63], "uint64"))
    refused("1 <= max_len <= 2, as .* hold the prompt of 7 tokens.*slide=True", [[1] * 7])
    refused("max_len=9, expected 1 <= max_len <= 8, the model's; slide=True", [[1]], max_len=9)
    shorter = "max_len=9, expected 1 <= max_len <= 7, .* prompt of 2 tokens"
    refused(shorter, [[1, 2]], max_len=9)
    goes_on = "bos_id=1, expected None: a language model goes on after its prompts"
    refused(goes_on, [[1]], bos_id=1)
    refused("eos_id=13, expected 0 <= eos_id < 13", [[1]], eos_id=[2, V])
    model = Transformer(V, V, d_model=8, n_heads=2, n_layers=1, d_ff=9)
    options = {"bos_id": 1, "eos_id": 2, "max_len": 3, "slide": True}
    only = "slide=True with a Transformer, expected a LanguageModel"
    refuses(ValueError, only, greedy_decode, model, {}, IDS, **options)


def test_beam_search_does_not_advise_what_it_does_not_have():
    for prompt in ([1] * 7, [1] * 9):
        with pytest.raises(ValueError, match="expected (at most|1 <=) max_len") as caught:
            beam_search(MODEL, PARAMS, [prompt], max_len=3)
        assert "slide" not in str(caught.value)


def test_what_cannot_decode_is_named():
    encoder = Encoder(V, **SIZES, task="words")
    for model, params, kind in ((encoder, encoder.init(0), "Encoder"), (PARAMS, MODEL, "dict")):
        message = f"model is a {kind}, expected a LanguageModel, or .*, and then its params"
        refuses(TypeError, message, greedy_decode, model, params, [[1]], max_len=3)
    adapted = LowRank(MODEL, PARAMS)
    of_class = r"model is the class LanguageModel, expected LanguageModel\(…\)"
    refuses(TypeError, of_class, log_probability, LanguageModel, PARAMS, IDS, IDS)
    for decode in (greedy_decode, beam_search, partial(sample, seed=0)):
        refuses(TypeError, of_class, decode, LanguageModel, PARAMS, [[1]], max_len=3)
        message = r"is a LowRank, .*: give model\.model, and model\.merged\(params\)"
        refuses(TypeError, message, decode, adapted, adapted.init(0), [[1]], max_len=3)


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_a_decoder_refuses_a_token_beyond_the_context(positions):
    model, params = made(max_len=8, positions=positions)
    decoder = model.decoder(params, [[1, 2], [1] * 7], max_rows=2)
    at = np.arange(2)
    decoder.step(at + 1, at)
    decoder.step(at + 1, at)
    message = "a text of 9 tokens, expected at most max_len=8 of the model"
    refuses(ValueError, message, decoder.step, at + 1, at)


def test_a_trainer_refuses_what_the_loss_does_not_have():
    message = "consistency=0.7, but the loss of LanguageModel has none"
    refuses(ValueError, message, Trainer, MODEL, Adam(0.01), consistency=0.7)


def test_wrong_batches_are_named():
    def refused(message, *batch, error=ValueError):
        refuses(error, message, MODEL.loss, PARAMS, *batch)
        refuses(error, message, MODEL.count, *batch)

    ones = np.ones((2, 5), int)
    refused(r"ids has shape \(2, 1\), expected \(B, T\+1\) with two or more", ones[:, :1])
    refused(r"ids has shape \(5,\), expected", ones[0])
    refused("ids is a list, expected an array", ones.tolist(), error=TypeError)
    refused(
        "ids without its last token has length 9, expected at most max_len=8", np.ones((2, 10), int)
    )
    refused(r"ids \(2, 5\), targets \(2, 4\): expected equal shapes", ones, ones[:, :4])
    refused(r"ids\[0, 0\] is 13, expected 0 <= id < 13", ones * V)
    refused(r"targets\[0, 0\] is 13, expected 0 <= id < 13", ones, ones * V)
    refused("ids has dtype float64, expected integers", ones * 1.0, error=TypeError)


@each_setting
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_threads_that_read_a_long_prompt_together_read_the_same(settings, n_threads, monkeypatch):
    """In blocks, each of which waits for the keys of those before it.

    The first ones are held up here.

    The first thread waits until a second one has begun, which takes a block when the processor has
    time for it.
    """
    monkeypatch.setattr("npformer.decoding.reading.READ_AT_ONCE", 11)
    monkeypatch.setattr("npformer.decoding.reading.FEW_ROWS", 2)
    use_threads(monkeypatch, n_threads)
    writers = []
    append = BlockCache.append
    second_began = threading.Event()

    def slowly(cache, kv):
        writer = threading.get_ident()
        writers.append(writer)
        if n_threads == 1 or writers[0] != writer:
            second_began.set()
        second_began.wait(timeout=30)
        if cache.kv.shape[1] < 8:
            time.sleep(0.002)
        append(cache, kv)

    monkeypatch.setattr(BlockCache, "append", slowly)
    wait_for_helpers()
    model, params = made(settings)
    text = np.random.default_rng(2).integers(1, V, (1, 24))
    decoder = model.decoder(params, text, max_rows=1, backend="cpu")
    logits = decoder.step(text[:, -1], np.array([0]))
    expected = model.logits(params, text, backend="reference")[:, -1]
    assert_close(logits[:, 1:], expected[:, 1:], 1e-12)
    assert len(set(writers)) == min(n_threads, 2)
    n_blocks = 2 + 2 + 1  # of 11, 11 and 1 tokens
    assert len(writers) == model.n_layers * n_blocks


# --- prompts that begin as the text before them ---


def n_common(a, b):
    return len(os.path.commonprefix([a, b]))


@each_setting
def test_a_decoder_reads_only_what_is_new_of_the_next_prompt(settings, every_backend, monkeypatch):
    """Also if the text before was longer or ends otherwise,
    and if Ctrl-C ended its reading or what was said.
    """
    monkeypatch.setattr("npformer.decoding.entries.STEPS_OF_GROWTH", 1)
    model, params = made(settings, max_len=40)
    decoder = model.decoder(params, [], max_rows=1, backend=every_backend)
    rng = np.random.default_rng(1)
    read: list[int] = []  # how many tokens each layer has read
    append = BlockCache.append

    def watched(cache, kv):
        read.append(cache.n_new)
        if len(read) == stop_reading:
            raise KeyboardInterrupt
        append(cache, kv)

    monkeypatch.setattr(BlockCache, "append", watched)

    def answer(prompt, n_steps, stop_saying):
        said = []

        def choose(logits, rows, t):
            text = np.array([[*prompt, *said]])
            expected = model.logits(params, text, backend="reference")[0, -1]
            assert_close(logits[0, 1:], expected[1:], 1e-12)
            return logits.argmax(axis=-1)

        def on_step(rows, tokens):
            said.append(int(tokens[0]))
            if len(said) == stop_saying:
                raise KeyboardInterrupt

        request = checked_request(model, [prompt], None, None, n_steps, 0)
        with contextlib.suppress(KeyboardInterrupt):
            generate(request, params, choose, every_backend, on_step, decoder=decoder)
        return said

    text: list[int] = []
    n_computed = 0  # of so many tokens of the text the cache has entries
    for turn in range(12):
        n_kept = len(text)
        if turn % 3:
            n_kept = int(rng.integers(n_kept // 2, n_kept + 1))
        if n_kept >= 25:
            n_kept = 3
        new = rng.integers(1, V, rng.integers(1, 6))
        prompt = text[:n_kept] + new.tolist()
        n_read = len(prompt) - 1
        n_known = min(n_common(text, prompt[:-1]), n_computed)
        n_steps = int(rng.integers(1, 9))
        stop_saying = 2 if turn % 4 == 3 else None
        for stop_reading in (2, 0) if turn % 6 == 5 else (0,):
            read.clear()
            said = answer(prompt, n_steps, stop_saying)
            n_layers = stop_reading or model.n_layers
            assert read == [n_read - n_known] * n_layers * (n_read > n_known)
        text = prompt + said
        overwritten = model.window is not None and len(said) > model.window
        n_computed = n_read if overwritten else len(text) - 1
    assert decoder.entries.kv.shape[1] <= 2 * model.max_len


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize(
    "method", [greedy_decode, partial(sample, seed=3)], ids=["greedy", "sample"]
)
def test_what_is_said_with_a_decoder_is_what_is_said_without(method, window):
    model, params = made(max_len=12, window=window)
    decoder = model.decoder(params, [], max_rows=1)
    options = {"max_len": 20, "slide": True}
    for prompt in ([3, 4], [3, 4, 5, 6], [3], [*range(1, 9)], [*range(13)]):
        expected = method(model, params, [prompt], **options)
        found = method(model, params, [prompt], **options, decoder=decoder)
        assert_array_equal(found, expected)


def test_a_decoder_of_another_model_is_refused():
    _, others = made()
    translation = Transformer(V, V, **{**SIZES, "tie_embeddings": True})
    source = np.array([[3, 4]])
    of_translation = translation.decoder(translation.init(0), source, max_rows=1, max_len=3)
    for decoder in (MODEL.decoder(others, [], max_rows=1), of_translation):
        message = "decoder is not of this model and these params: give model.decoder"
        refused(message, [[1]], decoder=decoder)
    message = "2 tokens, 2 parents: expected equal numbers, from 1 to max_rows=1"
    refused(message, [[1], [2]], decoder=MODEL.decoder(PARAMS, [], max_rows=1))


def test_a_decoder_that_has_read_several_prompts_knows_none_of_them():
    decoder = MODEL.decoder(PARAMS, [[3, 4], [5, 6, 7]], max_rows=1)
    decoder.step(np.array([7]), np.array([1]))
    assert decoder.entries.n_shared_with([7]) == decoder.entries.n_shared_with([3]) == 0


@pytest.mark.parametrize("token", [V, -1, 2**40])
@each_backend
def test_prompts_that_somebody_made_without_checks_are_checked_by_a_decoder(token):
    """A kernel would read memory that is not of the table."""
    prompts = Prompts(np.array([[token, 5, 3]]), np.array([3]))
    message = rf"prompts\[0, 0\] is {token}, expected 0 <= id < {V}"
    refuses(ValueError, message, MODEL.decoder, PARAMS, prompts, max_rows=1)


@each_backend
def test_a_table_that_is_replaced_in_the_dict_is_not_that_of_a_decoder():
    params = dict(PARAMS)
    other = MODEL.decoder(PARAMS, [[1, 2]], max_rows=1)
    decoder = MODEL.decoder(params, [[1, 2]], max_rows=1)
    params["embedding"] = params["embedding"][:3]
    step = np.array([V - 1]), np.array([0])
    assert_array_equal(decoder.step(*step), other.step(*step))


@pytest.mark.parametrize(("eps", "rounded"), [(1e-50, "0.0"), (1e39, "inf")])
@each_backend
def test_an_eps_that_the_dtype_cannot_hold_is_refused(eps, rounded):
    model, params = made(eps=eps, dtype="float32")
    message = re.escape(f"eps={eps} is {rounded} in float32")
    refuses(ValueError, message, model.logits, params, IDS)
