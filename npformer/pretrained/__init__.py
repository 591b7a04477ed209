"""Models of other libraries, from and to their files."""

from npformer.pretrained.loading import load, save

__all__ = ["load", "save"]
