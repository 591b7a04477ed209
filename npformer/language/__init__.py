"""Language models of text: tokens, batches, training, and the continuation of prompts."""

from npformer.data.text import Text
from npformer.data.tokens import Characters, Pieces, load_tokens
from npformer.language.run import LanguageRun
from npformer.language.settings import LanguageSettings
from npformer.language.writer import Writer

__all__ = [
    "Characters",
    "LanguageRun",
    "LanguageSettings",
    "Pieces",
    "Text",
    "Writer",
    "load_tokens",
]
