"""Models, put together from ``npformer.layers``."""

from npformer.models.autoencoder import SequenceAutoencoder
from npformer.models.description import describe, from_description
from npformer.models.recurrent import Recurrent
from npformer.models.transformer import Transformer

__all__ = ["Recurrent", "SequenceAutoencoder", "Transformer", "describe", "from_description"]
