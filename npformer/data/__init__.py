"""Data to train on: parallel text, its subwords and batches, and the copy task."""

from npformer.data.copy_task import BOS, EOS, PAD, CopyTask
from npformer.data.in_batches import batches
from npformer.data.parallel_text import ParallelText, Place, TokenBatches
from npformer.data.subwords import Subwords

__all__ = ["BOS", "EOS", "PAD", "CopyTask", "ParallelText", "Place", "Subwords", "TokenBatches", "batches"]
