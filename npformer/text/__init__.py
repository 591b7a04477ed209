"""Text to train on, and what is trained on it: language models, and models of translation.

Translations need sentencepiece, safetensors, sacrebleu and sacremoses:
``pip install 'npformer[translation]'``, in a clone ``pip install -e '.[translation]'``.
"""

from npformer.text.copy_task import BOS, EOS, PAD, CopyTask
from npformer.text.in_batches import batches
from npformer.text.language_run import LanguageRun
from npformer.text.parallel_text import ParallelText, Place, TokenBatches
from npformer.text.passages import Text
from npformer.text.scores import score
from npformer.text.settings import LanguageSettings, TranslationSettings
from npformer.text.translation_run import TranslationRun
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
