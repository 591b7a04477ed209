"""The translation part of study_length.py: five systems on Multi30k, and BLEU by the length of the source."""

from importlib import import_module

import numpy as np
from evaluate import LENGTHS, by_length
from systems import SYSTEMS, count, of_size

from npformer.data import ParallelText
from npformer.models import describe
from npformer.translation import TranslationRun, TranslationSettings, Translator, score
from npformer.translation.scores import check_packages

PARAMETERS = 2_400_000  # as in the preset tiny
VOCAB = 8000
# The learning rate of the Transformer is that of the preset. For the others 0.002 (ByteNet: 0.0015) and 0.006 were
# compared by the loss on the validation text: recurrent 2.70 and 2.51, ByteNet 2.42 and 2.08 after 1,000 updates,
# "general" 1.67 and 2.18 after 2,000. Additive attention was trained only with 0.006.
LEARNING_RATES = {**dict.fromkeys(SYSTEMS, 0.006), "recurrent + general": 0.002, "Transformer": 0.005}


def check(data):
    """Raise an error if a package or file for the translation is missing, since it comes last, after hours."""
    check_packages()
    for package in ("sentencepiece", "safetensors"):
        import_module(package)
    for split in ("train", "val", "test_2016_flickr"):
        ParallelText.find(data, split, "en", "fr")


def study_translation(options, sizes):
    """BLEU of all test sentences and of each class of lengths, for each system and seed."""
    test = list(ParallelText.find(options.data, "test_2016_flickr", "en", "fr"))
    words = np.array([len(source.split()) for source, _ in test])
    classes = [(words >= shortest) & (words <= longest) for shortest, longest in LENGTHS]
    systems = {}
    for system in SYSTEMS:
        seeds = range(options.seed + 1, options.seed + 1 + sizes["seeds"])
        rows = [translate(system, seed, test, options) for seed in seeds]
        systems[system] = {
            "parameters": rows[0]["parameters"],
            "all": [row["all"] for row in rows],
            "values": [row["by_length"] for row in rows],
        }
        print(f"{system}: BLEU {', '.join(f'{row:.1f}' for row in systems[system]['all'])}", flush=True)
    return {"words": [float(words[of_class].mean()) for of_class in classes if of_class.any()], "systems": systems}


def translate(system, seed, test, options):
    """Train a model, unless one with the same number of steps exists, and translate the test text."""
    out = options.runs / f"{system.replace(' ', '')}-{options.translation_steps}-{seed}"
    if not (out / "model.safetensors").exists():
        train(system, seed, out, options)
    translator = Translator.load(out)
    sources, references = zip(*test, strict=True)
    translations = translator.greedy(sources)
    return {
        "parameters": count(translator.model),
        "all": score(translations, references, "fr")["bleu_lower"],
        "by_length": [row["bleu_lower"] for row in by_length(sources, translations, references, "fr")],
    }


def train(system, seed, out, options):
    """Train with the recipe of the preset tiny, for fewer steps."""
    model = of_size(system, PARAMETERS, src_vocab=VOCAB, tgt_vocab=VOCAB, tie_embeddings=True)
    settings = TranslationSettings(
        data=options.data,
        preset=system,
        model=describe(model),
        lr=LEARNING_RATES[system],
        steps=options.translation_steps,
        seed=seed,
        clip_norm=1.0,
        n_average=3,  # 200 updates apart: older parameters are worse
    )
    resumes = (out / "last.safetensors").exists()
    run = TranslationRun.resume(out) if resumes else TranslationRun.start(out, settings)
    run.train()
    run.finish()
