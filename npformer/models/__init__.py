"""Models, built from ``npformer.layers``."""

from npformer.models.autoencoder import SequenceAutoencoder
from npformer.models.bytenet import ByteNet
from npformer.models.description import describe, from_description
from npformer.models.encoder import Encoder
from npformer.models.encoder_decoder import EncoderDecoder
from npformer.models.language_model import LanguageModel
from npformer.models.low_rank import LowRank
from npformer.models.recurrent import Recurrent
from npformer.models.transformer import Transformer

__all__ = [
    "ByteNet",
    "Encoder",
    "EncoderDecoder",
    "LanguageModel",
    "LowRank",
    "Recurrent",
    "SequenceAutoencoder",
    "Transformer",
    "describe",
    "from_description",
]
