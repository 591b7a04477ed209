"""Training: optimizers, learning rate schedules, the training loop, checkpoints and logs."""

from npformer.files.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from npformer.files.json_log import JsonLog
from npformer.runtime.interrupts import StopSignals
from npformer.training.averaging import ParameterAverage, average
from npformer.training.compiling import compile_kernels
from npformer.training.guard import NonFiniteError
from npformer.training.optimizers import OPTIMIZERS, SGD, Adam, AdamW, Lion, clip_by_global_norm
from npformer.training.schedules import inverse_sqrt, noam, warmup_cosine
from npformer.training.settings import LoopSettings, TrainingSettings
from npformer.training.trainer import StepInfo, Trainer

__all__ = [
    "OPTIMIZERS",
    "SGD",
    "Adam",
    "AdamW",
    "CheckpointError",
    "JsonLog",
    "Lion",
    "LoopSettings",
    "NonFiniteError",
    "ParameterAverage",
    "StepInfo",
    "StopSignals",
    "Trainer",
    "TrainingSettings",
    "average",
    "clip_by_global_norm",
    "compile_kernels",
    "inverse_sqrt",
    "load_checkpoint",
    "noam",
    "save_checkpoint",
    "warmup_cosine",
]
