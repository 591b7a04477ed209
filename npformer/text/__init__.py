"""Text to train on, and what is trained on it: language models, and models of translation.

Translations need sentencepiece, safetensors, sacrebleu and sacremoses:
``pip install 'npformer[translation]'``, in a clone ``pip install -e '.[translation]'``.
"""

from importlib import import_module

from npformer.text.copy_task import BOS, EOS, PAD, CopyTask
from npformer.text.in_batches import batches
from npformer.text.parallel_text import ParallelText, Place, TokenBatches
from npformer.text.passages import Text
from npformer.text.scores import score
from npformer.text.translator import Translator
from npformer.text.writer import Writer

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "CopyTask",
    "LanguageRun",
    "LanguageSettings",
    "ParallelText",
    "Place",
    "Text",
    "TokenBatches",
    "TranslationRun",
    "TranslationSettings",
    "Translator",
    "Writer",
    "batches",
    "score",
]

# They import all of training, which takes as long as the rest: batches and tasks need none of it.
OF_TRAININGS = {
    "LanguageRun": "language_run",
    "LanguageSettings": "settings",
    "TranslationRun": "translation_run",
    "TranslationSettings": "settings",
}


def __getattr__(name):
    if name not in OF_TRAININGS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{OF_TRAININGS[name]}"), name)
