"""What is kept from token to token; ``test_every_model.py`` compares with computing all again."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from decoded import IDS, SRC
from numpy.testing import assert_array_equal
from promises import params_of
from refusals import refuses

from npformer import ByteNet, Recurrent, Transformer, beam_search, greedy_decode, tree
from npformer.decoding.translation import TranslationDecoder

SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 9, "max_len": 16, "dtype": "float64"}
MODEL = Transformer(11, 11, n_layers=2, **SIZES)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_source_of_padding_only_adds_nothing_not_even_nan(every_backend, norm, monkeypatch):
    model = replace(MODEL, norm=norm)
    params = params_of(model)
    src = np.zeros((1, 3), int)

    def steps():
        decoder = model.decoder(params, src, max_rows=1, max_len=3, backend=every_backend)
        return [decoder.step(np.array([token]), np.array([0])) for token in (1, 7, 4)]

    before = steps()
    monkeypatch.setattr(Transformer, "encode", lambda *args, **options: np.full((1, 3, 8), np.nan))
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
    for i in "01":
        of_source = params["decoder"][i]["memory_attention"]["kv"]
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

    def refused(message, **sizes):
        refuses(ValueError, message, model.decoder, model.init(0), SRC, **sizes)

    refused("max_len=6, expected at most 5", max_rows=1, max_len=6)
    refused("max_len=0, expected at least 1", max_rows=1, max_len=0)
    refused("max_rows=0, expected at least 1", max_rows=0, max_len=5)
