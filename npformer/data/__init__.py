"""What to train on."""

from npformer.data.copy_task import BOS, EOS, PAD, CopyTask

__all__ = ["BOS", "EOS", "PAD", "CopyTask"]
