"""Compare texts that are decoded side by side with the same texts alone.

Random models, prompts, methods and options.

python tests/tools/compare_rows.py
python tests/tools/compare_rows.py --groups 50 --seed 7 --json rows.json

A group is two to five prompts or sources of a small model with random parameters and settings.
Rounding differs between a row alone and a row beside others. So where two texts differ, they are a
close call if changes of the logits by less than 1e-5 lead to both tokens; for beams, if the scores
differ by less than that.
"""

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npformer.commands.shared import JsonFile, write_json

import npformer as nf
from npformer import tree
from npformer.decoding.sampling import draw, penalised
from npformer.reference import derive_key, random_bits
from tests.tools.tool import Natural, Seed, drawn, tool

V = 12
PAD, BOS, EOS = 0, 1, 2
CLOSE = 1e-5
METHODS = {"greedy": nf.greedy_decode, "sample": nf.sample, "beams": nf.beam_search}
# What the settings of models and the options of methods are drawn from.
SIZES = {"d_model": 8, "n_heads": 4, "d_ff": 12}
OF_LAYERS = {
    "n_kv_heads": [None, 1, 2],
    "window": [*[None] * 6, *range(1, 7)],
    "positions": ["sinusoidal", "sinusoidal_concatenated", "learned", "rotary", "none"],
    "norm": ["pre", "post"],
    "norm_type": ["layer_norm", "rms_norm"],
    "activation": ["relu", "gelu", "swiglu"],
    "bias": [True, False],
    "max_len": range(3, 13),
}
OF_LANGUAGE_MODELS = {
    "n_layers": [1, 2, 3],
    "pad_id": [PAD, None],
    "tie_embeddings": [True, False],
}
OF_BYTENETS = {"max_len": range(4, 13)}
OF_RECURRENT = {"cell": ["gru", "lstm"], "attention": [None, "dot", "general", "additive"]}
OF_METHODS = {
    "greedy": {},
    "sample": {
        "seed": range(1000),
        "temperature": [0.5, 1.0, 2.0],
        "top_k": [*[None] * 11, *range(1, V)],
        "top_p": [0.5, 0.9, 1.0],
        "min_p": [0.0, 0.2],
        "repetition_penalty": [0.8, 1.0, 1.3],
    },
    "beams": {"beam_size": [1, 2, 3, 4], "early_stopping": [True, False, "never"]},
}


@dataclass
class Group:
    """A model, its prompts or sources, each with the largest length of its text,
    and how they are decoded.
    """

    model: Any
    params: dict
    inputs: list  # of 1-D arrays of ids
    limits: list
    method: str
    options: dict
    slides: bool


@tool
def main(*, groups: Natural = 500, seed: Seed = 0, json: JsonFile | None = None):
    """Compare rows.

    Parameters
    ----------
    groups
        of texts
    """
    figures = compared(groups, seed)
    for name, value in figures.items():
        print(f"{name:>24}  {value}")
    write_json(json, {"seed": seed} | figures)
    return ["texts that differ"] if figures["different"] else []


def compared(n_groups, seed):
    """Counts of the texts of so many groups, and of those that differ from the same text alone."""
    names = ("groups", "texts", "tokens", "beyond the context", "close calls", "different")
    figures = dict.fromkeys(names, 0)
    figures["groups"] = n_groups
    for i in range(n_groups):
        group = new_group(np.random.default_rng([seed, i]))
        for row, text in enumerate(decoded(group, group.inputs, group.limits)):
            alone, n = alone_of(group, row), len(tokens_of(text))
            is_beyond = group.slides and len(group.inputs[row]) + n > group.model.max_len + 1
            figures["texts"] += 1
            figures["tokens"] += n
            figures["beyond the context"] += is_beyond
            if tokens_of(text) == tokens_of(alone):
                continue
            if is_close(group, row, text, alone):
                figures["close calls"] += 1
            else:
                figures["different"] += 1
                which = f"group {i}, row {row}: {text} beside others, {alone} alone"
                print(f"{which}\n{group}", file=sys.stderr)
    return figures


# -- what is decoded


def new_group(rng):
    """A group of random prompts, or of sources of an encoder and decoder."""
    is_language_model = rng.random() < 0.7
    model = language_model(rng) if is_language_model else encoder_decoder(rng)
    params = perturbed(model.init(0), rng)
    if rng.random() < 0.2 and not isinstance(model, nf.ByteNet):
        params = nf.quantize(params)
    method = str(rng.choice([*METHODS]))
    slides = bool(is_language_model and method != "beams" and rng.random() < 0.8)
    longest = model.max_len * 3 // 2 if slides else model.max_len - 2
    inputs = [rng.integers(3, V, rng.integers(1, longest + 1)) for _ in range(rng.integers(2, 6))]
    limits = []
    for ids in inputs:
        room = model.max_len + 1 - (len(ids) if is_language_model else 1)
        limits.append(int(rng.integers(1, 4 * model.max_len if slides else room + 1)))
    options = drawn(rng, OF_METHODS[method] | {"backend": ["auto", "reference"]})
    options["bos_id"] = None if is_language_model else BOS
    options["eos_id"] = None if is_language_model and rng.random() < 0.6 else EOS
    most = 1 if method == "sample" else min(limits)  # see alone_of
    options["min_len"] = int(rng.integers(0, most + 1))
    if method != "beams":
        options["slide"] = slides
    return Group(model, params, inputs, limits, method, options, slides)


def language_model(rng):
    """A language model of random settings."""
    return nf.LanguageModel(V, **SIZES, **drawn(rng, OF_LAYERS | OF_LANGUAGE_MODELS))


def encoder_decoder(rng):
    """A Transformer, a recurrent model or a ByteNet of random settings."""
    kind = rng.integers(4)
    if kind == 0:
        sizes = drawn(rng, OF_BYTENETS)
        return nf.ByteNet(V, V, d_model=8, n_sets=1, dilations=(1, 2), **sizes)
    if kind == 1:
        settings = drawn(rng, OF_BYTENETS | OF_RECURRENT)
        return nf.Recurrent(V, V, d_model=8, n_layers=2, **settings)
    return nf.Transformer(V, V, n_layers=(2, 2), **SIZES, **drawn(rng, OF_LAYERS))


def perturbed(params, rng):
    """Parameters of which each text depends on its beginning, as those of a new model would say one
    token only.
    """
    return tree.map_leaves(lambda x: x + 0.5 * rng.standard_normal(x.shape).astype(x.dtype), params)


# -- decoding


def decoded(group, inputs, limits):
    """The texts of some inputs, side by side.

    Lists of tokens, and for beams lists of hypotheses.
    """
    method = METHODS[group.method]
    src = inputs if isinstance(group.model, nf.LanguageModel) else beside(inputs)
    texts = method(group.model, group.params, src, max_len=np.array(limits), **group.options)
    if group.method == "beams":
        return texts
    return [
        ended(row[:limit].tolist(), group.options["eos_id"])
        for row, limit in zip(texts, limits, strict=True)
    ]


def beside(sources):
    """Sources of different lengths in one array, with padding."""
    ids = np.full((len(sources), max(map(len, sources))), PAD)
    for row, source in zip(ids, sources, strict=True):
        row[: len(source)] = source
    return ids


def ended(tokens, end):
    """The tokens up to the end token."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def alone_of(group, row):
    """The text of a row when nothing is beside it.

    As the random numbers of sampling are a function of the row, too, the row stays where it is: the
    rows before it have one token and end with the first step.
    """
    before = row if group.method == "sample" else 0
    inputs = [group.inputs[row][:1]] * before + [group.inputs[row]]
    limits = [1] * before + [group.limits[row]]
    return decoded(group, inputs, limits)[before]


# -- comparison


def tokens_of(text):
    """The tokens of a text, or those of all hypotheses of a beam."""
    return (
        [token for x in text for token in x.tokens]
        if text and isinstance(text[0], nf.decoding.Hypothesis)
        else text
    )


def is_close(group, row, text, alone):
    """Whether a small change of the logits leads from one text to the other."""
    if group.method == "beams":
        scores, others = ([x.score for x in found] for found in (text, alone))
        return len(scores) == len(others) and np.allclose(scores, others, rtol=0, atol=CLOSE)
    t = next(t for t, (token, other) in enumerate(zip(text, alone, strict=False)) if token != other)
    logits = logits_after(group, row, text[:t])
    noise = np.random.default_rng(0).uniform(-CLOSE, CLOSE, (200, V))
    occurs = np.zeros(V, bool)
    occurs[[*group.inputs[row], *text[:t]]] = True
    chosen = {chosen_of(group, row, t, logits + change, occurs) for change in noise}
    return {text[t], alone[t]} <= chosen


def logits_after(group, row, said):
    """The logits of the token after those of a row that are said, computed anew."""
    model, ids = group.model, group.inputs[row].tolist()
    if isinstance(model, nf.LanguageModel):
        context = context_of(model, ids, said)
        if model.is_endless:
            model = replace(model, max_len=max(len(context), model.max_len))
        inputs = [context]
    else:
        inputs = [ids, [BOS, *said]]
    logits = model.logits(group.params, *(np.array([x]) for x in inputs), backend="reference")[
        0, -1
    ]
    if model.pad_id is not None:
        logits[model.pad_id] = -np.inf
    if len(said) + 1 < group.options["min_len"] and group.options["eos_id"] is not None:
        logits[group.options["eos_id"]] = -np.inf
    return logits.astype(np.float64)


def context_of(model, prompt, said):
    """The tokens that a language model sees,
    when it goes on with the latest half of a context that is full.
    """
    if model.is_endless:
        return [*prompt, *said]
    context = prompt[-model.max_len :]
    for token in said:
        context = [*context, token]
        if len(context) > model.max_len:
            context = context[-max(1, model.max_len // 2) :]
    return context


def chosen_of(group, row, t, logits, occurs):
    """The token that the method chooses."""
    if group.method == "greedy":
        return int(logits.argmax())
    options, rows = group.options, np.array([row])
    logits = penalised(logits[None], occurs[None], options["repetition_penalty"])
    uniform = (random_bits(rows, derive_key(options["seed"], t)) + 0.5) / 2**32
    names = "temperature", "top_k", "top_p", "min_p"
    return int(draw(logits, uniform, **{name: options[name] for name in names})[0])


if __name__ == "__main__":
    sys.exit(main())
