"""The old place of ``npformer.files.checkpoint``."""

from npformer.files.checkpoint import CheckpointError, load_checkpoint, save_checkpoint

__all__ = ["CheckpointError", "load_checkpoint", "save_checkpoint"]
