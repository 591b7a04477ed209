"""Translation: train a model on aligned text, translate sentences with it, and compute BLEU.

Needs sentencepiece, safetensors, sacrebleu and sacremoses:
``pip install 'npformer[translation]'``, in a clone ``pip install -e '.[translation]'``.
"""

from npformer.translation.run import TranslationRun
from npformer.translation.scores import score
from npformer.translation.settings import TranslationSettings
from npformer.translation.translator import Translator

__all__ = ["TranslationRun", "TranslationSettings", "Translator", "score"]
