"""Texts under the name that they had before: see ``npformer.data.text``."""

from npformer.data.lines import read_both, read_text, text_of
from npformer.data.text import Text

__all__ = ["Text", "read_both", "read_text", "text_of"]
