"""Names of ``npformer.text`` and ``npformer.tokens`` under the paths that they had before."""

import sys

from npformer import tokens
from npformer.text import language_run, passages, settings, writer
from npformer.text.language_run import LanguageRun
from npformer.text.passages import Text
from npformer.text.settings import LanguageSettings
from npformer.text.writer import Writer
from npformer.tokens import Characters, Pieces, load_tokens

__all__ = [
    "Characters",
    "LanguageRun",
    "LanguageSettings",
    "Pieces",
    "Text",
    "Writer",
    "load_tokens",
]

MODULES = {
    "run": language_run,
    "settings": settings,
    "text": passages,
    "tokens": tokens,
    "writer": writer,
}
sys.modules |= {f"{__name__}.{name}": module for name, module in MODULES.items()}
