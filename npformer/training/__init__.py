"""Training: optimizers, schedules of the learning rate, and the loop."""

from npformer.training.averaging import ParameterAverage
from npformer.training.optimizers import SGD, Adam, AdamW
from npformer.training.schedules import constant, noam, warmup_cosine
from npformer.training.trainer import NonFiniteError, StepInfo, Trainer

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "NonFiniteError",
    "ParameterAverage",
    "StepInfo",
    "Trainer",
    "constant",
    "noam",
    "warmup_cosine",
]
