"""Measure decoding in new tokens per second: npformer, CTranslate2 and Hugging Face, in turns, each
in its own process.

python scripts/bench/bench_decode.py  # batches of 1 and 32, greedy and beam 4: minutes
python scripts/bench/bench_decode.py --quick
python scripts/bench/bench_decode.py --batches 1 --beams 1,4 --without huggingface --rounds 9

The model is a base-size encoder-decoder Transformer with random weights, in float32 or, with the
name int8, in 8-bit integers. A sentence has 30 source tokens without padding, and gets exactly 32
new tokens, since the end token is forbidden before. The time includes the encoder. CTranslate2 uses
npformer's parameters; Hugging Face's Marian has only the same size (both are in peers/). All use
every core.
"""

import functools
import itertools
import sys
from functools import partial
from importlib import import_module
from typing import Literal

import numpy as np

from npformer.commands.shared import UsageError  # needs pip install -e .
from scripts.bench.benchmark import benchmark
from scripts.bench.contenders import of_backends, started
from scripts.bench.limits import Limits, print_results
from scripts.bench.machine import physical_cores
from scripts.bench.options import Backends, Positives, left_out, usually
from scripts.bench.steps import SIZES, model_of
from scripts.bench.turns import Workload, measured

import npformer as nf

S, T = 30, 32  # source tokens, new tokens
BOS, EOS = 1, 2


def source(size, batch):
    """Random ids (B, S) that are neither padding nor a begin or end token."""
    return np.random.default_rng(0).integers(3, size.V, (batch, size.S))


@functools.cache
def model_and_params(size, int8=False):
    """A model and its parameters, the same in each process; made once for all settings."""
    model = model_of(size)
    params = model.init(seed=0)
    return model, nf.quantize(params) if int8 else params


def build_npformer(size, batch, beam, backend, int8=False):
    """``step`` that decodes a batch and returns the ids (B, T)."""
    model, params = model_and_params(size, int8)
    src = source(size, batch)
    length = {"min_len": size.T, "max_len": size.T}
    options = {"bos_id": BOS, "eos_id": EOS, "backend": backend, **length}

    def step():
        if beam == 1:
            ids = nf.greedy_decode(model, params, src, **options)
        else:
            sentences = nf.beam_search(model, params, src, beam_size=beam, **options)
            ids = [best.tokens for best, *_ in sentences]
        return ids

    return whole(step, size, batch)


def whole(step, size, batch):
    """``step``, which raises unless each sentence gets as many new tokens as it is to get."""

    def checked():
        ids = step()
        lengths = [len(sentence) for sentence in ids]
        if lengths != [size.T] * batch or (np.array(ids) == EOS)[:, :-1].any():
            raise ValueError(
                f"sentences of {lengths} ids, expected {batch} of {size.T} without ends"
            )
        return ids

    return checked


@functools.cache
def peer_decoder(name, size, **kind):
    """The decoder of peers/; Hugging Face's has parameters of its own."""
    peer = import_module(f"scripts.bench.peers.{name}_model")
    model, params = model_and_params(size)
    with_params = [model] if name == "huggingface" else [model, params]
    return peer.decoder(*with_params, physical_cores(), **kind)


def build_peer(size, batch, beam, name, **kind):
    """``step`` that decodes the batch with a library of peers/."""
    decode = peer_decoder(name, size, **kind)
    return whole(partial(decode, source(size, batch), size.T, beam), size, batch)


CTRANSLATE2 = partial(build_peer, name="ctranslate2")
HUGGINGFACE = partial(build_peer, name="huggingface")
PEERS = {  # option -> (name, libraries, build)
    "npformer_int8": ("npformer int8", (), partial(build_npformer, backend="cpu", int8=True)),
    "ctranslate2": ("CTranslate2", ("ctranslate2",), CTRANSLATE2),
    "ctranslate2_int8": ("CTranslate2 int8", ("ctranslate2",), partial(CTRANSLATE2, kind="int8")),
    "huggingface": ("Hugging Face", ("torch", "transformers"), HUGGINGFACE),
}


EVERYBODY = ["npformer", *PEERS]


@benchmark("ctranslate2", "transformers")
def main(
    turns: usually(rounds=5, seconds=0.7, quick_seconds=0.1),
    *,
    batches: Positives = "1,32",
    beams: Positives = "1,4",
    size: Literal[*SIZES] = "base",
    backends: Backends = "cpu",
    without: left_out(EVERYBODY) = (),
):
    """Measure decoding.

    Parameters
    ----------
    batches
        numbers of sentences
    beams
        1 is greedy
    size
        model of bench_train.py
    """
    if set(without) == set(EVERYBODY):
        raise UsageError("argument --without: leaves no contender to measure")
    shape = SIZES[size]._replace(S=S, T=T)
    print(f"{size}: {shape}, {S} source tokens, {T} new tokens", flush=True)
    entries = []
    if "npformer" not in without:
        entries += of_backends(backends, build_npformer)
    entries += [peer for key, peer in PEERS.items() if key not in without]
    results = []
    with started(entries) as contenders, Limits(turns.sgemm_sizes) as limits:
        for batch, beam in itertools.product(batches, beams):
            result = measure(shape, batch, beam, contenders, limits, turns)
            if result["contenders"]:
                results.append(result)
    if not results:
        sys.exit("no contender is left")
    print_results(results, ["tokens/s", "ms", "spread", "× first"])
    return {"size": shape._asdict(), "results": results}


def measure(size, batch, beam, contenders, limits, turns):
    """The figures of a setting."""
    result = measured(contenders, Workload((size, batch, beam)), turns, limits)
    for figures in result["contenders"].values():
        figures["tokens_per_second"] = batch * size.T / figures["seconds"]["median"]
    search = "greedy" if beam == 1 else f"beam {beam}"
    return {"what": f"batch {batch}, {search}", "batch": batch, "beam": beam} | result


if __name__ == "__main__":
    sys.exit(main())
