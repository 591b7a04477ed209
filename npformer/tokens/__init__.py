"""From text to token ids and back: characters, pieces of words, and the marks around them."""

from npformer.tokens.subwords import Subwords
from npformer.tokens.tokenizers import Characters, Pieces, load_tokens

__all__ = ["Characters", "Pieces", "Subwords", "load_tokens"]
