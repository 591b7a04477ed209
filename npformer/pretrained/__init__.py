"""Models of other libraries, from and to their files."""

from npformer.pretrained.loading import load
from npformer.pretrained.saving import save

__all__ = ["load", "save"]
