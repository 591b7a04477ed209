"""Names of ``npformer.text`` and ``npformer.tokens`` under the paths that they had before.

CHANGELOG.md promises that these still lead there.
"""

import sys
from types import ModuleType

from npformer import tokens
from npformer.text import language_run as run, settings, writer
from npformer.text.language_run import LanguageRun
from npformer.text.lines import read_both, read_text, text_of
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

text = ModuleType(f"{__name__}.text")  # it had the names of two modules of now
text.__dict__.update(Text=Text, read_both=read_both, read_text=read_text, text_of=text_of)

MODULES = {
    "run": run,
    "settings": settings,
    "text": text,
    "tokens": tokens,
    "writer": writer,
}
sys.modules |= {f"{__name__}.{name}": module for name, module in MODULES.items()}
