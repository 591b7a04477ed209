"""npformer: the Transformer from scratch in NumPy, every backward pass written by hand."""

from npformer.reference import *  # noqa: F403
