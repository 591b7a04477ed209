"""The tokens under the name that they had before: they are in ``npformer.data.tokens``."""

from npformer.data.tokens import Characters, Pieces, load_tokens

__all__ = ["Characters", "Pieces", "load_tokens"]
