"""Measure what each attention head of a trained Transformer does: where its weight goes, and what is lost without it.

python scripts/studies/study_heads.py --quick                                 # seconds
python scripts/studies/study_heads.py --json heads_reverse.json               # a model that reverses, minutes
python scripts/studies/study_heads.py --data data/multi30k                    # a small translation model, minutes
python scripts/studies/study_heads.py --data data/multi30k --alignment        # the weights of a recurrent model

For each head, the attention weights are averaged by the place of their key, and "keys" is over how many keys they are
spread. The first columns are the loss, and the share of sequences that is right (or the BLEU), when this head alone
puts out zeros. Below, the same when all heads of a sublayer put out zeros: docs/before/heads.md.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from npformer.commands.arguments import natural, new_parser, positive  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, output_folder, write_whole
from scripts.bench.options import add_sizes, sizes_of
from scripts.studies.systems import trained
from scripts.studies.translations import SMALL, SMALL_PARAMETERS, trained_translator

from npformer import CopyTask, Transformer, tree
from npformer.data import ParallelText
from npformer.data.copy_task import exact_match
from npformer.data.in_batches import pack

KINDS = {"encoder": "attention", "decoder": "attention", "memory": "memory_attention"}  # and their parameters
NAMES = {"encoder": "encoder, self", "decoder": "decoder, self", "memory": "decoder, cross"}
FULL = {"steps": 3000, "longest": 12, "width": 64, "tested": 500, "batch": 64}
QUICK = {"steps": 100, "longest": 5, "width": 16, "tested": 50, "batch": 64}
VOCAB, N_HEADS, N_LAYERS = 11, 4, 2
SHOWN = 8  # symbols of the sequences that are tested
DRAWN = SHOWN + 1  # positions whose mean weights are written, for a picture
RECIPE = SMALL | {"steps": 3000, "validate_every": 1000}  # of the translation models
SENTENCE = "A man in a red shirt is riding a white horse."
CLEAR = 0.5  # a head is named after the place that has most weight above an even share, if it has this share of it


@command
def main(argv=None):
    options = parse_arguments(argv)
    if not options.data:
        figures = study_reverse(sizes_of(options, FULL, QUICK), options.seed)
    elif options.alignment:
        figures = align(translator("recurrent + general", options))
    else:
        figures = study_translation_model(translator("Transformer", options), options.data, options.sentences)
    if not options.alignment:
        report(figures)
    if options.json:
        write_whole(options.json, (json.dumps(figures) + "\n").encode())


def study_reverse(sizes, seed):
    """Train a model that reverses sequences, and measure its heads on sequences that it was not trained on."""
    task, width = CopyTask(vocab=VOCAB, max_len=sizes["longest"], reverse=True, seed=seed), sizes["width"]
    model = Transformer(VOCAB, VOCAB, width, N_HEADS, N_LAYERS, 2 * width, dropout=0.0)
    params = trained(model, task, sizes, lr=0.002)

    n = min(SHOWN, sizes["longest"])
    src, tgt = replace(task, min_len=n, max_len=n).held_out(sizes["tested"])
    quality = lambda params: 100 * exact_match(model, params, src, tgt)[0]
    found = study(model, params, src, tgt, reversed_word, quality)
    return {"title": f"reverse, {n} symbols", "quality": "exact match, %", "sizes": sizes, "seed": seed, **found}


def translator(system, options):
    """A model from English to French, which is trained first if the folder of the runs does not hold it."""
    recipe = RECIPE | {"data": str(options.data), "seed": options.seed + 1}
    return trained_translator(system, SMALL_PARAMETERS, options.runs / system.replace(" ", ""), recipe)


def align(translator):
    """The translation of a sentence, and the weights (T, S) of the decoder on the source."""
    [[best]] = translator.hypotheses([SENTENCE], beam_size=1)
    source, target, [weights] = translator.attention(SENTENCE, best)
    print(f"{SENTENCE}\n{translator.text(best)}")
    info = {name: translator.info[name] for name in ("val_loss", "val_bleu_lower")}
    return {"source": source, "target": target, "weights": np.round(weights[0], 3).tolist(), **info}


def study_translation_model(translator, data, n_sentences):
    """Measure the heads of a translation model on sentences of the test text."""
    from npformer.translation import Translator, score

    model, settings = translator.model, translator.info["settings"]
    pairs = list(ParallelText.find(data, "test_2016_flickr", settings["src"], settings["tgt"]))[:n_sentences]
    sources, references = zip(*pairs, strict=True)
    src = pack(translator.source.encode(sources), model.pad_id, end=translator.source.eos_id)
    ids = translator.target.encode(references)
    tgt = pack(ids, model.pad_id, begin=translator.target.bos_id, end=translator.target.eos_id)

    def quality(params):
        translated = Translator(model, params, translator.source, translator.target).greedy(sources)
        return score(translated, references, settings["tgt"])["bleu_lower"]

    found = study(model, translator.params, src, tgt, near_diagonal, quality)
    for head in found["heads"]:
        del head["weights"]  # the mean over sentences of different lengths shows nothing
    return {"title": f"{settings['src']} to {settings['tgt']}", "quality": "BLEU", "sentences": len(pairs), **found}


def study(model, params, src, tgt, belongs, quality):
    """The places of the weight of each head, and the loss and the quality without it.

    ``belongs(T, S)`` -> (T, S) bool: whether a source position belongs to the output word of a step, for a target of T
    tokens and a source of S.
    """
    weights = model.attention_weights(params, src, tgt[:, :-1])
    loss = lambda params: round(float(model.loss(params, src, tgt)[0]), 4)
    measured = lambda params: {"loss": loss(params), "right": round(quality(params), 1)}
    heads, sublayers = [], []
    for kind in KINDS:
        for layer, of_layer in enumerate(weights[kind]):
            for head in range(model.n_heads):
                shares, keys = places(of_layer[:, head], src, tgt, kind, belongs, model.pad_id)
                without = without_heads(model, params, kind, layer, [head])
                found = {"kind": kind, "layer": layer, "head": head}
                for i, name in enumerate(("shares", "even")):
                    found[name] = {place: round(both[i], 3) for place, both in shares.items()}
                found |= {"keys": round(keys, 2), "name": named(shares, keys), **measured(without)}
                found["weights"] = np.round(of_layer[:, head].mean(axis=0)[:DRAWN, :DRAWN], 2).tolist()
                heads.append(found)
            without = without_heads(model, params, kind, layer, range(model.n_heads))
            sublayers.append({"kind": kind, "layer": layer, **measured(without)})
    return {"heads": heads, "sublayers": sublayers, **measured(params)}


def places(weights, src, tgt, kind, belongs, pad_id):
    """Return {place: (share of the weight (B, T, S) of a head, that of even weights)}, and the number of keys.

    The shares are means over the queries for which there is such a place: nothing is before the first position.
    """
    queries, keys = (tgt[:, :-1] if kind != "encoder" else src), (src if kind != "decoder" else tgt[:, :-1])
    n_queries, n_keys = ((ids != pad_id).sum(axis=1) for ids in (queries, keys))
    shares, spread = {}, []
    for w, T, S in zip(weights, n_queries, n_keys, strict=True):
        w = w[:T, :S].astype(np.float64)
        even = np.tril(np.ones((T, S))) if kind == "decoder" else np.ones((T, S))
        even /= even.sum(axis=1, keepdims=True)
        for place, at in masks(int(T), int(S), kind, belongs).items():
            there = at.any(axis=1)
            shares.setdefault(place, []).append([(each * at).sum(axis=1)[there] for each in (w, even)])
        spread.append(np.exp(-(w * np.log(np.maximum(w, 1e-30))).sum(axis=1)))
    means = {place: tuple(np.concatenate(found, axis=1).mean(axis=1)) for place, found in shares.items()}
    return means, float(np.concatenate(spread).mean())


def masks(T, S, kind, belongs):
    """Return {place: (T, S) bool}, which keys are at this place for each query.

    Examples
    --------
    >>> masks(3, 3, "encoder", None)["before"].astype(int)
    array([[0, 0, 0],
           [1, 0, 0],
           [0, 1, 0]])
    """
    t, s = np.arange(T)[:, None], np.arange(S)
    first, last = (np.broadcast_to(s == key, (T, S)) for key in (0, S - 1))
    if kind == "memory":
        return {"belonging": belongs(T, S), "last": last}
    if kind == "decoder":  # in which later keys are masked
        return {"own": s == t, "before": s == t - 1, "first": first}
    return {"own": s == t, "before": s == t - 1, "after": s == t + 1, "first": first, "last": last}


def reversed_word(T, S):
    """Step t puts out source symbol S - 1 - t, and the last step the end token, to which none belongs."""
    return np.arange(S) == S - 1 - np.arange(T)[:, None]


def near_diagonal(T, S):
    """Source positions within one of t (S - 1) / (T - 1)."""
    return abs(np.arange(S) - np.arange(T)[:, None] * (S - 1) / max(1, T - 1)) <= 1


def named(shares, keys):
    """Describe a head by the place that has more of its weight than even weights by the largest difference."""
    place = max(shares, key=lambda place: shares[place][0] - shares[place][1])
    return place if shares[place][0] >= CLEAR else f"spread, {keys:.1f} keys"


def without_heads(model, params, kind, layer, heads):
    """Return the parameters with which some heads of a sublayer put out zeros.

    The heads' outputs are concatenated and multiplied by W_out, so rows h K to (h + 1) K of W_out belong to head h: if
    they are zero, it is as if the output of this head were.

    Examples
    --------
    >>> model = Transformer(11, 11, d_model=4, n_heads=2, n_layers=1, d_ff=8)
    >>> changed = without_heads(model, model.init(0), "encoder", 0, [1])
    >>> changed["encoder"]["0"]["attention"]["out"]["weight"].any(axis=1)
    array([ True,  True, False, False])
    """
    params = tree.map_leaves(np.copy, params)
    sublayer = params["encoder" if kind == "encoder" else "decoder"][str(layer)][KINDS[kind]]
    K = model.d_model // model.n_heads
    for head in heads:
        sublayer["out"]["weight"][head * K : (head + 1) * K] = 0
    return params


def report(figures):
    print(f"{figures['title']}: loss {figures['loss']:.3f}, {figures['quality']} {figures['right']:.1f}\n")
    print(f"{'head':<22}{'loss':>8}{'right':>7}{'keys':>6}  share of the weight, %")
    for head in figures["heads"]:
        name = f"{NAMES[head['kind']]} {head['layer'] + 1}.{head['head'] + 1}"
        shares = ", ".join(f"{place} {100 * share:.0f}" for place, share in head["shares"].items())
        print(f"{name:<22}{head['loss']:>8.3f}{head['right']:>7.1f}{head['keys']:>6.1f}  {shares}: {head['name']}")
    for sublayer in figures["sublayers"]:
        name = f"{NAMES[sublayer['kind']]} {sublayer['layer'] + 1}, all"
        print(f"{name:<22}{sublayer['loss']:>8.3f}{sublayer['right']:>7.1f}")


def parse_arguments(argv):
    parser = new_parser(__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--quick", action="store_true", help="a small model, short sequences, few updates: seconds")
    add_sizes(parser, FULL, QUICK, steps="updates of the model that reverses")
    add("--seed", type=natural, default=0, help="seed of the task and of the training (default: 0)")
    add("--data", type=Path, metavar="DIR", help="folder of get_multi30k.py: measure a translation model instead")
    add("--runs", type=output_folder, default="runs/heads", metavar="DIR", help="its folder (default: runs/heads)")
    add("--alignment", action="store_true", help="write the attention weights of a recurrent model, which needs --data")
    add("--sentences", type=positive, default=1000, metavar="N", help="test sentences (default: 1000)")
    add_json(parser)
    options = parser.parse_args(argv)
    if options.alignment and not options.data:
        parser.error("argument --alignment: needs --data, the folder of Multi30k")
    return options


if __name__ == "__main__":
    sys.exit(main())
