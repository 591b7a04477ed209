"""Data to train on: text, its tokens and batches, and the copy task."""

from npformer.data.copy_task import BOS, EOS, PAD, CopyTask
from npformer.data.in_batches import batches
from npformer.data.parallel_text import ParallelText, Place, TokenBatches
from npformer.data.subwords import Subwords
from npformer.data.text import Text
from npformer.data.tokens import Characters, Pieces, load_tokens

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "Characters",
    "CopyTask",
    "ParallelText",
    "Pieces",
    "Place",
    "Subwords",
    "Text",
    "TokenBatches",
    "batches",
    "load_tokens",
]
