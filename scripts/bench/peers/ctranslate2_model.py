"""Decoding with ``npformer.Transformer`` (pre-norm, ReLU) in CTranslate2, an inference engine in C++.

The model is written to a temporary folder in CTranslate2's own format with all of npformer's parameters, so both
compute the same function. In CTranslate2, too, projections that read the same input are one product.
"""

import tempfile

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec

import npformer as nf

FIRST_NAMES = ["<unk>", "<s>", "</s>"]  # the names of ids 0 to 2 that CTranslate2 expects; others are named by their id


def decoder(model, params, n_threads):
    """``decode(src, n_new, beam_size)`` -> (B, n_new) ids, for an ``npformer.Transformer`` and its parameters.

    CTranslate2's defaults are used, with which it is fastest on an AMD EPYC (Zen 5): MKL instead of oneDNN, also with
    packed weights, decodes 0.25 to 0.8 times as fast; AVX512 instead of AVX2 was up to 12 % faster once, but not with
    one thread; OMP_PROC_BIND and OMP_WAIT_POLICY changed nothing beyond noise.
    """
    names = token_names(max(model.src_vocab, model.tgt_vocab))
    ids = {name: i for i, name in enumerate(names)}
    with tempfile.TemporaryDirectory() as folder:
        spec = specification(model, params)
        spec.validate()
        spec.save(folder)
        threads = {"inter_threads": 1, "intra_threads": n_threads}
        translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", **threads)

    def decode(src, n_new, beam_size):
        found = translator.translate_batch(
            [[names[i] for i in row] for row in src.tolist()],
            max_batch_size=len(src),  # one batch
            beam_size=beam_size,
            min_decoding_length=n_new,
            max_decoding_length=n_new,
        )
        lengths = {len(result.hypotheses[0]) for result in found}
        if lengths != {n_new}:
            raise ValueError(f"{n_new} new tokens a sentence were asked for, but the lengths are {sorted(lengths)}")
        return np.array([[ids[name] for name in result.hypotheses[0]] for result in found])

    return decode


def token_names(vocab):
    """The names of ids 0 to V-1."""
    return [*FIRST_NAMES, *map(str, range(len(FIRST_NAMES), vocab))]


def specification(model, params):
    """The model as a specification that CTranslate2 can save."""
    spec = TransformerSpec.from_config(model.depths, model.n_heads)
    spec.register_source_vocabulary(token_names(model.src_vocab))
    spec.register_target_vocabulary(token_names(model.tgt_vocab))

    positions = nf.sinusoidal_encoding(model.max_len, model.d_model, dtype="float32")
    spec.encoder.position_encodings.encodings = spec.decoder.position_encodings.encodings = positions
    spec.encoder.embeddings[0].weight = params["source_embedding"]
    spec.decoder.embeddings.weight = params["target_embedding"]

    fill_stack(spec.encoder, params["encoder"])
    fill_stack(spec.decoder, params["decoder"])
    fill_linear(spec.decoder.projection, params["output"])
    return spec


def fill_stack(spec, params):
    """Set the parameters of the encoder, or of the decoder, whose layers also attend to the memory."""
    *layers, norm = params.values()
    fill_norm(spec.layer_norm, norm)
    for to, layer in zip(spec.layer, layers, strict=True):
        fill_sublayer(to.self_attention, to.self_attention.linear, layer, "attention", ["qkv", "out"])
        if "memory_attention" in layer:
            fill_sublayer(to.attention, to.attention.linear, layer, "memory_attention", ["q", "kv", "out"])
        fill_sublayer(to.ffn, [to.ffn.linear_0, to.ffn.linear_1], layer, "feed_forward", ["hidden", "out"])


def fill_sublayer(spec, projections, layer, name, parts):
    """Set the parameters of the norm before a sublayer, and of its projections in their order."""
    fill_norm(spec.layer_norm, layer[f"{name}_norm"])
    for projection, part in zip(projections, parts, strict=True):
        fill_linear(projection, layer[name][part])


def fill_norm(spec, params):
    spec.gamma, spec.beta = params["gain"], params["bias"]


def fill_linear(spec, params):
    spec.weight, spec.bias = np.ascontiguousarray(params["weight"].T), params["bias"]  # theirs are (D_out, D_in)
