"""The translation parts of study_length.py: systems on Multi30k, and BLEU by the length of the source.

"translation" divides the test sentences into classes by their length. Longer sentences are also harder in other ways
than their length. "joined" removes this: it trains on texts of 1 to N sentences, one after the other, and tests on the
same 1,000 sentences, joined k at a time.
"""

from importlib import import_module

import numpy as np

from npformer.commands.evaluate import LENGTHS
from scripts.studies.systems import SYSTEMS, count, of_size

from npformer.data import ParallelText
from npformer.models import describe
from npformer.translation import TranslationRun, TranslationSettings, Translator, score
from npformer.translation.scores import check_packages

TEST = "test_2016_flickr"
PARAMETERS = 2_400_000  # as in the preset tiny
VOCAB = 8000
# The learning rate of the Transformer is that of the preset. For the others 0.002 (ByteNet: 0.0015) and 0.006 were
# compared by the loss on the validation text: recurrent 2.70 and 2.51, ByteNet 2.42 and 2.08 after 1,000 updates,
# "general" 1.67 and 2.18 after 2,000. Additive attention was trained only with 0.006.
LEARNING_RATES = {**dict.fromkeys(SYSTEMS, 0.006), "recurrent + general": 0.002, "Transformer": 0.005}
# Small models, since recurrent models read long texts slowly. All systems have the learning rate of the preset.
SMALL_PARAMETERS = 300_000
SMALL = {"vocab_size": 1000, "dropout": 0.1, "max_tokens": 1024, "schedule": "cosine", "warmup": 200, "n_average": 1}
BEYOND = (1.5, 2, 4)  # times the largest number of sentences of the training


def check(data):
    """Raise an error if a package or file for the translation is missing, since it comes last, after hours."""
    check_packages()
    for package in ("sentencepiece", "safetensors"):
        import_module(package)
    for split in ("train", "val", TEST):
        ParallelText.find(data, split, "en", "fr")


def study_translation(options, sizes):
    """BLEU of all test sentences, and of each class of lengths; yields the figures after each training."""
    pairs = list(ParallelText.find(options.data, TEST, "en", "fr"))
    classes = [[pair for pair in pairs if first <= len(pair[0].split()) <= last] for first, last in LENGTHS]
    recipe = {"vocab_size": VOCAB, "data": str(options.data), "steps": options.translation_steps}
    recipe |= {"n_average": 3}  # 200 updates apart: older parameters are worse
    recipe_of = lambda system: recipe | {"lr": LEARNING_RATES[system]}
    texts = [pairs, *filter(None, classes)]
    yield from study(options, sizes, texts, PARAMETERS, options.translation_steps, recipe_of)


def study_joined(options, sizes):
    """BLEU of the test text, joined k sentences at a time; yields the figures after each training."""
    name, steps = f"joined-{options.join}", options.joined_steps
    folder = options.runs / name
    write_joined(options.data, folder, options.join)
    pairs = list(ParallelText.find(options.data, TEST, "en", "fr"))
    at_a_time = [*range(1, options.join + 1), *(round(factor * options.join) for factor in BEYOND)]
    texts = [joined(pairs, k) for k in at_a_time]
    recipe = SMALL | {"data": str(folder), "steps": steps, "validate_every": steps}
    for found in study(options, sizes, texts, SMALL_PARAMETERS, f"{name}-{steps}", lambda _: recipe):
        yield {"sentences": at_a_time, **found}


def study(options, sizes, texts, parameters, name, recipe_of):
    """Train each system with each seed, and translate texts, lists of pairs; yields the figures after each training."""
    texts = [tuple(zip(*pairs, strict=True)) for pairs in texts]
    words = [float(np.mean([len(source.split()) for source in sources])) for sources, _ in texts]
    found = {"words": words, "systems": {}}
    for system in options.systems or SYSTEMS:
        of_system = found["systems"][system] = {"values": [], "val_loss": []}
        for seed in range(options.seed + 1, options.seed + 1 + sizes["seeds"]):
            folder = options.runs / f"{system.replace(' ', '')}-{name}-{seed}"
            translator = trained_translator(system, parameters, folder, recipe_of(system) | {"seed": seed})
            bleu = [score(translator.greedy(sources), goal, "fr")["bleu_lower"] for sources, goal in texts]
            of_system["parameters"] = count(translator.model)
            of_system["values"].append(bleu)
            of_system["val_loss"].append(translator.info["val_loss"])
            print(f"{system}, seed {seed}: BLEU {' '.join(f'{each:.1f}' for each in bleu)}", flush=True)
            yield found


def joined(pairs, k):
    """The pairs, k after each other joined to one; what is left over at the end is left out.

    Examples
    --------
    >>> joined([("A.", "Un."), ("B.", "Deux."), ("C.", "Trois.")], 2)
    [('A. B.', 'Un. Deux.')]
    """
    groups = [pairs[first : first + k] for first in range(0, len(pairs) - k + 1, k)]
    return [tuple(" ".join(side) for side in zip(*group, strict=True)) for group in groups]


def write_joined(data, folder, at_most, rounds=4):
    """Write the texts of the training and the validation, joined at random, 1 to ``at_most`` sentences at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        pairs, texts = list(ParallelText.find(data, split, "en", "fr")), []
        for _ in range(rounds if split == "train" else 1):
            order, first = rng.permutation(len(pairs)), 0
            while first < len(pairs):
                k = int(rng.integers(1, at_most + 1))
                chosen = [pairs[i] for i in order[first : first + k]]
                texts += joined(chosen, len(chosen))
                first += k
        for side, language in enumerate(("en", "fr")):
            (folder / f"{split}.{language}").write_text("".join(f"{text[side]}\n" for text in texts), encoding="utf-8")


def trained_translator(system, parameters, out, recipe):
    """Train a model, unless the folder holds one, with the recipe of the preset tiny and these changes to it."""
    if not (out / "model.safetensors").exists():
        vocab = recipe["vocab_size"]
        model = of_size(system, parameters, src_vocab=vocab, tgt_vocab=vocab, tie_embeddings=True)
        settings = TranslationSettings(preset=system, model=describe(model), clip_norm=1.0, **recipe)
        resumes = (out / "last.safetensors").exists()
        run = TranslationRun.resume(out) if resumes else TranslationRun.start(out, settings)
        run.train(progress=False)
        run.finish()
    return Translator.load(out)
