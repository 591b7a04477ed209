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

from npformer.commands.arguments import natural, new_parser, positive  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, write_json

import npformer as nf
from npformer import tree
from npformer.decoding.sampling import draw, penalised
from npformer.reference import derive_key, random_bits

V = 12
PAD, BOS, EOS = 0, 1, 2
CLOSE = 1e-5
POSITIONS = ("sinusoidal", "sinusoidal_concatenated", "learned", "rotary", "none")
METHODS = ("greedy", "sample", "beams")


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


@command
def main(argv=None):
    parser = new_parser(__doc__)
    parser.add_argument("--groups", type=positive, default=500, help="(default: 500)")
    parser.add_argument("--seed", type=natural, default=0, help="(default: 0)")
    add_json(parser)
    options = parser.parse_args(argv)
    figures = compared(options.groups, options.seed)
    for name, value in figures.items():
        print(f"{name:>24}  {value}")
    write_json(options.json, {"seed": options.seed} | figures)
    return 1 if figures["different"] else 0


def compared(n_groups, seed):
    """Counts of the texts of so many groups, and of those that differ from the same text alone."""
    figures = dict.fromkeys(
        ("groups", "texts", "tokens", "beyond the context", "close calls", "different"), 0
    )
    figures["groups"] = n_groups
    for i in range(n_groups):
        group = new_group(np.random.default_rng([seed, i]))
        together = decoded(group, group.inputs, group.limits)
        for row, text in enumerate(together):
            alone, n = alone_of(group, row), len(tokens_of(text))
            figures["texts"] += 1
            figures["tokens"] += n
            figures["beyond the context"] += (
                group.slides and len(group.inputs[row]) + n > group.model.max_len + 1
            )
            if tokens_of(text) == tokens_of(alone):
                continue
            if is_close(group, row, text, alone):
                figures["close calls"] += 1
            else:
                figures["different"] += 1
                print(
                    f"group {i}, row {row}: {text} beside others, {alone} alone\n{group}",
                    file=sys.stderr,
                )
    return figures


# -- what is decoded


def new_group(rng):
    """A group of random prompts, or of sources of an encoder and decoder."""
    is_language_model = rng.random() < 0.7
    model = language_model(rng) if is_language_model else encoder_decoder(rng)
    params = perturbed(model.init(0), rng)
    if rng.random() < 0.2 and not isinstance(model, nf.ByteNet):
        params = nf.quantize(params)
    method = str(rng.choice(METHODS))
    slides = is_language_model and method != "beams" and rng.random() < 0.8
    longest = model.max_len * 3 // 2 if slides else model.max_len - 2
    inputs = [rng.integers(3, V, rng.integers(1, longest + 1)) for _ in range(rng.integers(2, 6))]
    limits = []
    for ids in inputs:
        room = model.max_len + 1 - (len(ids) if is_language_model else 1)
        limits.append(int(rng.integers(1, 4 * model.max_len if slides else room + 1)))
    options = {
        "bos_id": None if is_language_model else BOS,
        "backend": str(rng.choice(["auto", "reference"])),
    }
    options["eos_id"] = None if is_language_model and rng.random() < 0.6 else EOS
    most = 1 if method == "sample" else min(limits)  # see alone_of
    options["min_len"] = int(rng.integers(0, most + 1))
    if method == "beams":
        options["beam_size"] = int(rng.integers(1, 5))
        options["early_stopping"] = [True, False, "never"][rng.integers(3)]
    else:
        options["slide"] = bool(slides)
    if method == "sample":
        options["seed"] = int(rng.integers(1000))
        options["temperature"] = float(rng.choice([0.5, 1.0, 2.0]))
        options["top_k"] = None if rng.random() < 0.5 else int(rng.integers(1, V))
        options["top_p"] = float(rng.choice([0.5, 0.9, 1.0]))
        options["min_p"] = float(rng.choice([0.0, 0.2]))
        options["repetition_penalty"] = float(rng.choice([0.8, 1.0, 1.3]))
    return Group(model, params, inputs, limits, method, options, slides)


def settings_of_layers(rng):
    """Settings that all models of Transformer layers have."""
    return {
        "d_model": 8,
        "n_heads": 4,
        "d_ff": 12,
        "n_kv_heads": [None, 1, 2][rng.integers(3)],
        "window": None if rng.random() < 0.5 else int(rng.integers(1, 7)),
        "positions": str(rng.choice(POSITIONS)),
        "norm": str(rng.choice(["pre", "post"])),
        "norm_type": str(rng.choice(["layer_norm", "rms_norm"])),
        "activation": str(rng.choice(["relu", "gelu", "swiglu"])),
        "bias": bool(rng.random() < 0.5),
        "max_len": int(rng.integers(3, 13)),
        "dtype": str(rng.choice(["float32", "float64"])),
    }


def language_model(rng):
    """A language model of random settings."""
    settings = settings_of_layers(rng)
    settings["n_layers"] = int(rng.integers(1, 4))
    settings["pad_id"] = PAD if rng.random() < 0.5 else None
    settings["tie_embeddings"] = bool(rng.random() < 0.5)
    return nf.LanguageModel(V, **settings)


def encoder_decoder(rng):
    """A Transformer, a recurrent model or a ByteNet of random settings."""
    sizes = {
        "d_model": 8,
        "max_len": int(rng.integers(4, 13)),
        "dtype": str(rng.choice(["float32", "float64"])),
    }
    kind = rng.integers(4)
    if kind == 0:
        return nf.ByteNet(V, V, n_sets=1, dilations=(1, 2), **sizes)
    if kind == 1:
        attention = [None, "dot", "general", "additive"][rng.integers(4)]
        return nf.Recurrent(
            V, V, n_layers=2, cell=str(rng.choice(["gru", "lstm"])), attention=attention, **sizes
        )
    return nf.Transformer(V, V, n_layers=(2, 2), **settings_of_layers(rng))


def perturbed(params, rng):
    """Parameters of which each text depends on its beginning,
    as those of a new model would say one token only.
    """
    params = tree.map_leaves(np.copy, params)
    for _, x in tree.leaves(params):
        x += 0.5 * rng.standard_normal(x.shape).astype(x.dtype)
    return params


# -- decoding


def decoded(group, inputs, limits):
    """The texts of some inputs, side by side.

    Lists of tokens, and for beams lists of hypotheses.
    """
    method = {"greedy": nf.greedy_decode, "sample": nf.sample, "beams": nf.beam_search}[
        group.method
    ]
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
