"""Names of ``npformer.text`` under the paths that they had before.

CHANGELOG.md promises that these still lead there.
"""

import sys

from npformer.text import scores, settings, translation_run as run, translator
from npformer.text.scores import score
from npformer.text.settings import TranslationSettings
from npformer.text.translation_run import TranslationRun
from npformer.text.translator import Translator

__all__ = ["TranslationRun", "TranslationSettings", "Translator", "score"]

MODULES = {
    "run": run,
    "scores": scores,
    "settings": settings,
    "translator": translator,
}
sys.modules |= {f"{__name__}.{name}": module for name, module in MODULES.items()}
