"""npformer: the Transformer from scratch in NumPy, every backward pass written by hand.

One letter for each axis, everywhere: ``B`` batch, ``T`` query or target length, ``S`` key or source length, ``D`` model
width, ``H`` heads, ``K`` head width (= D/H), ``F`` feed-forward width, ``V`` vocabulary, ``N`` layers.

The names below are the operations of ``npformer.reference``, the model, what trains it and what decodes from it.
Importing them needs NumPy alone.
"""

from npformer import reference
from npformer import tree as tree
from npformer.backends import get_backend
from npformer.calls import Call, Calls, explain
from npformer.config import show_config
from npformer.data import CopyTask
from npformer.decoding import Hypothesis, beam_search, greedy_decode, log_probability, sample
from npformer.gradcheck import GradientError, gradcheck
from npformer.models import ByteNet, Recurrent, SequenceAutoencoder, Transformer
from npformer.reference import *  # noqa: F403
from npformer.training import (
    SGD,
    Adam,
    AdamW,
    NonFiniteError,
    ParameterAverage,
    StepInfo,
    Trainer,
    constant,
    inverse_sqrt,
    noam,
    warmup_cosine,
)

__version__ = "0.1.0"

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "ByteNet",
    "Call",
    "Calls",
    "CopyTask",
    "GradientError",
    "Hypothesis",
    "NonFiniteError",
    "ParameterAverage",
    "Recurrent",
    "SequenceAutoencoder",
    "StepInfo",
    "Trainer",
    "Transformer",
    "beam_search",
    "constant",
    "explain",
    "get_backend",
    "gradcheck",
    "greedy_decode",
    "inverse_sqrt",
    "log_probability",
    "noam",
    "sample",
    "show_config",
    "warmup_cosine",
    *reference.__all__,
]
