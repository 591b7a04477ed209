"""The models with the options worth testing, each with a batch of data.

A line here adds a model to all tests of ``test_every_model.py``: its gradient, on each backend; its
description; that its loss, its gradient and its number of tokens belong together; that padding and
later tokens have no influence; and, if it has a source and a target, that steps of decoding are the
whole computation.
"""

from typing import Any, NamedTuple

import numpy as np
from promises import params_of
from whole_models import SRC, TGT, V_SRC, V_TGT, padded

from npformer import (
    ByteNet,
    Encoder,
    LanguageModel,
    Recurrent,
    SequenceAutoencoder,
    Transformer,
    layers,
)
from npformer.models import LowRank


class Row(NamedTuple):
    model: Any
    batch: tuple
    layers: list  # whose gradients are told first, if they are


CATALOGUE: dict[str, Row] = {}


def add(name, model, batch, *layers):
    CATALOGUE[name] = Row(model, batch, list(layers))


# Transformers.

SIZES: dict = {"d_model": 6, "n_heads": 2, "n_layers": 1, "d_ff": 13, "max_len": 16}
SIZES |= {"dropout": 0.3, "dtype": "float64"}
WIDE = {"d_model": 8, "n_heads": 4, "n_layers": (1, 2)}
TURNED = {"positions": "rotary", "n_heads": 3}
LLAMA3 = {"llama3": {"factor": 8.0, "original_max_len": 5}}
TURNED_BY = {"base": 500.0, "scaling": 2, "pairs": "interleaved"}
OF_TRANSFORMERS: list[dict] = [
    {"n_layers": (2, 3), "activation": "relu"},
    {"n_layers": (2, 3), "activation": "gelu", "tie_embeddings": True},
    {"activation": "gelu_erf", "pad_id": None},
    {"activation": "silu", "pad_id": 5},
    {"activation": "swiglu", "norm_type": "rms_norm"},
    TURNED,
    {**TURNED, "rotary": TURNED_BY},
    {**TURNED, "rotary": LLAMA3},
    {"positions": "sinusoidal_concatenated", "final_norm": False},
    {"positions": "learned"},
    {"positions": "learned", "tie_embeddings": True},
    {"scale_embeddings": False, "bias": False, "final_norm": True},
    {"softcap": 0.5, "window": 30},
    {"n_layers": (0, 2)},
    {"n_layers": (1, 0)},
    {"n_layers": (4, 2), "share_layers": 2},
    {"bias": False, "qkv_bias": True},
    {"qkv_bias": False, "d_head": 5},
    {"qk_norm": True, "eps": 0.01},
    {"qk_norm": True, "d_head": 4, "positions": "rotary", "qkv_bias": True, "eps": 0.01},
    {**WIDE, "n_kv_heads": 1},
    {**WIDE, "n_kv_heads": 2},
    {"window": 1},
    {"window": 2, "n_layers": (1, 2)},
]


def begun(tgt):
    """Targets that begin with the same token."""
    return np.insert(tgt[:, 1:], 0, 1, axis=1)


SENTENCES = SRC % V_SRC, begun(TGT)


def of_two_vocabularies(kind, tie_embeddings=False, **options):
    vocabularies = (V_TGT, V_TGT) if tie_embeddings else (V_SRC, V_TGT)
    return kind(*vocabularies, tie_embeddings=tie_embeddings, **options)


def label(options):
    return ", ".join(f"{name}={value}" for name, value in options.items())


def from_the_last(model):
    """The layers of a Transformer that share no parameters, in the order of the backward pass."""
    if model.share_layers:
        return []
    layers = []
    for name, n in zip(model.stacks, model.depths, strict=True):
        layers += [f"{name}.{i}" for i in range(n)]
    return layers[::-1]


for options in OF_TRANSFORMERS:
    for norm in ("pre", "post"):
        model = of_two_vocabularies(Transformer, **SIZES | options, norm=norm)
        name = f"Transformer, {norm}-norm, {label(options)}"
        add(name, model, SENTENCES, *from_the_last(model))

# ByteNets, with a batch of which some targets end before the columns of the encoder, and some go on
# after them: the shortest source has the longest target.

OF_BYTENETS: list[dict] = [
    {"kernel_sizes": (5, 2), "unfold": (1.2, 0)},
    {"tie_embeddings": True, "unfold": (1, 0)},
    {"kernel_sizes": (3, 1), "tie_embeddings": True},
    {"unfold": (1.5, 2)},
    {"pad_id": 5, "dilations": (1, 2)},
]
BYTENET = {"d_model": 6, "n_sets": (1, 2), "dilations": (1, 3), "dropout": 0.3, "dtype": "float64"}
TARGETS = begun(padded(np.random.default_rng(4), 9, V_TGT, shortest=3))
UNFOLDED = SRC[[0, 1, 3]], TARGETS[[3, 0, 1]]

for options in OF_BYTENETS:
    model = of_two_vocabularies(ByteNet, **BYTENET | options)
    add(f"ByteNet, {label(options)}", model, UNFOLDED)

# Recurrent models.

OF_RECURRENT: list[dict] = [
    {"attention": None},
    {"attention": "dot"},
    {"attention": "general"},
    {"attention": "additive"},
    {"attention": "general", "bidirectional": False, "n_layers": 2},
    {"attention": "general", "n_layers": 2, "tie_embeddings": True},
]
RECURRENT = {"d_model": 6, "dtype": "float64", "dropout": 0.3, "max_len": 16}

for cell in ("gru", "lstm"):
    for options in OF_RECURRENT:
        model = of_two_vocabularies(Recurrent, cell=cell, **RECURRENT | options)
        add(f"Recurrent, {cell}, {label(options)}", model, SENTENCES)

autoencoder = SequenceAutoencoder(V_TGT, d_model=5, code_size=4, dropout=0.3, dtype="float64")
add("autoencoder", autoencoder, SENTENCES)

# Language models.

V = 13
OF_TEXTS = {"d_model": 8, "n_heads": 4, "n_layers": 2, "d_ff": 9, "max_len": 24, "dtype": "float64"}
GPT2 = {"positions": "learned", "scale_embeddings": False, "pad_id": 0}
LLAMA = {"norm_type": "rms_norm", "activation": "swiglu", "bias": False, "n_kv_heads": 2}
LLAMA |= {"rotary": layers.Rotary(base=500.0, pairs="interleaved"), "eps": 1e-3}
LLAMA |= {"tie_embeddings": False, "scale_embeddings": False}
WINDOW = {"norm": "post", "positions": "sinusoidal", "activation": "gelu_erf", "window": 3}
WINDOW |= {"pad_id": 0}
SCALED = layers.Rotary(llama3=layers.Llama3Scaling(8.0, original_max_len=9))
LANGUAGE_MODELS = {
    "as it is": {},
    "GPT-2": GPT2,
    "Llama": LLAMA,
    "Llama 3.1": {**LLAMA, "rotary": SCALED},
    "Qwen2": {**LLAMA, "qkv_bias": True},
    "Qwen3": {**LLAMA, "qk_norm": True, "d_head": 6, "pad_id": 0},
    "post-norm with a window": WINDOW,
    "rotary with a window": {**LLAMA, "window": 4, "pad_id": 0},
    "no positions": {"positions": "none", "tie_embeddings": False, "n_kv_heads": 1},
}
TEXTS = padded(np.random.default_rng(3), 7, V, shortest=3)

for name, settings in LANGUAGE_MODELS.items():
    model = LanguageModel(V, **OF_TEXTS | {"dropout": 0.2} | settings)
    add(f"LanguageModel, {name}", model, (TEXTS,), "layers.1", "layers.0")
apart = TEXTS[:, :-1], TEXTS[:, ::-1][:, :-1]
add("LanguageModel, ids and targets", CATALOGUE["LanguageModel, GPT-2"].model, apart)

# Encoders.

OF_ENCODERS = {**OF_TEXTS, "n_heads": 2, "max_len": 11}
REAL = {"vocab": None, "n_inputs": 5}
BERT = {"n_types": 3, "embedding_norm": True, "norm": "post", "positions": "learned", "eps": 1e-3}
BERT |= {"activation": "gelu_erf", "scale_embeddings": False}
FIRST = {"pooling": "first", "pooler": True}
CLASSES = {"task": "classes", "n_outputs": 3}
NUMBERS = {"task": "numbers", "n_outputs": 2}
WORDS = {"task": "words"}
OF_EACH = {"pooling": "none"}
WITHOUT_SINES = {"positions": "rotary", "norm_type": "rms_norm"}
LABELS = {"labels": ("a", "b", "c")}
GROUPED = {"n_kv_heads": 1, "bias": False, "window": 3}
COUNTED = {"counted_positions": True, "pooler_activation": "relu"}
ENCODERS = {
    "classes by the mean": CLASSES,
    "classes by the first, as BERT": {**BERT, **CLASSES, **FIRST},
    "classes by the maximum": {**REAL, **CLASSES, "pooling": "max", **WITHOUT_SINES},
    "classes by the last": {**CLASSES, "pooling": "last"},
    "classes by the sum over the root of the length": {**CLASSES, "pooling": "mean_sqrt_length"},
    "classes by a weighted mean": {**CLASSES, "pooling": "weighted_mean", **LABELS},
    "classes of positions": {**CLASSES, **OF_EACH, **GROUPED},
    "numbers by the mean": {**REAL, **BERT, **NUMBERS, "pooler": True},
    "numbers of positions": {**NUMBERS, **OF_EACH, "positions": "none"},
    "numbers of vectors": {**REAL, **NUMBERS, **OF_EACH, "activation": "swiglu"},
    "words, as BERT": {**BERT, **WORDS, "tie_embeddings": True},
    "classes, as RoBERTa and DistilBERT": {**BERT, **CLASSES, **FIRST, **COUNTED},
    "words": {**WORDS, "activation": "swiglu", "pad_id": None},
}
IDS = padded(np.random.default_rng(3), 7, V, shortest=2)
KEEP = IDS != 0


def encoder(**settings):
    return Encoder(**{"vocab": V, **OF_ENCODERS, **settings})


def batch_of(model):
    """Inputs, targets, a mask and types; what is padding is NaN."""
    rng = np.random.default_rng(1)
    inputs = IDS
    if not model.vocab:
        inputs = rng.standard_normal((*IDS.shape, 5))
        inputs[~KEEP] = np.nan
    shape = IDS.shape if model.by_position else IDS.shape[:1]
    if model.task == "numbers":
        targets = rng.standard_normal((*shape, 2))
        if model.by_position:
            targets[~KEEP] = np.nan
    else:
        targets = rng.integers(0, 3, shape)
        if model.by_position:
            targets[rng.random(shape) < 0.4] = -1
    types = rng.integers(0, 3, IDS.shape) if model.n_types else None
    return inputs, targets, KEEP, types


for name, settings in ENCODERS.items():
    model = encoder(dropout=0.2, **settings)
    add(f"Encoder, {name}", model, batch_of(model), "layers.1", "layers.0")

# Low-rank adapters of some of these.

OF_ADAPTED = {**SIZES, "d_model": 8, "d_ff": 5, "dropout": 0.2}
GATED = {"activation": "swiglu", "n_kv_heads": 1, "bias": False, "tie_embeddings": False}
OF_TEXT = {"targets": ("attention.qkv", "hidden")}
OF_TEXT["whole"] = ("output", "layers.0.attention_norm")
TRANSFORMER = Transformer(7, 9, **OF_ADAPTED, norm="post")
TIED = Transformer(9, 9, **OF_ADAPTED, tie_embeddings=True)
CLASSIFIER = Encoder(5, **OF_ADAPTED, task="classes", n_outputs=3)
FEW_CLASSES = SRC % 5, np.array([2, 0, 1, 1])
READER = Recurrent(7, 9, 8, dtype="float64", dropout=0.2)
ADAPTED: dict[str, tuple] = {  # a model, its batch, and the settings of its adapters
    "Transformer": (TRANSFORMER, SENTENCES, {}),
    "Transformer, tied": (TIED, SENTENCES, {"targets": ("embedding", "kv")}),
    "LanguageModel": (LanguageModel(5, **OF_ADAPTED, **GATED), (SRC % 5,), OF_TEXT),
    "Encoder": (CLASSIFIER, FEW_CLASSES, {"whole": ("output",)}),
    "Recurrent": (READER, SENTENCES, {"targets": ("encoder",)}),
}


def adapted(model, settings, rank=2, alpha=3.0):
    return LowRank(model, params_of(model), rank, alpha, **settings)


for name, (model, batch, settings) in ADAPTED.items():
    add(f"adapters, {name}", adapted(model, settings), batch)
