"""Compile the kernels of a training step before it is made, in as many processes as there are cores."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from npformer.backends import get_backend
from npformer.models import EncoderDecoder, LanguageModel, describe
from npformer.runtime.host import HOST
from npformer.training.optimizers import Adam
from npformer.training.progress import compiling_bar
from npformer.training.trainer import Trainer


def compile_kernels(
    model: Any, *batch: Any, optimizer: Any = None, progress: bool = True, backend: Any = "auto", **settings: Any
) -> int:
    """Compile the kernels of a training step, in as many processes as there are cores.

    Otherwise they are compiled one after the other in the first step. They are kept on disk, where all programs find
    them. Those of decoding are not compiled.

    Parameters
    ----------
    model : a model as of ``Trainer``
    *batch : arrays
        A batch as of ``Trainer.step``, of which the first two rows are used. Models of token ids need none.
    optimizer : optimizer, optional
        Adam if not given.
    progress : bool
        Show how many kernels are left.
    backend : str or backend
        As of ``Trainer``. Only kernels of the CPU are compiled ahead.
    **settings
        The fields of ``TrainingSettings``, such as ``label_smoothing``.

    Returns
    -------
    int
        The number of kernels that were not compiled before.

    Raises
    ------
    ValueError
        If the model needs a batch, and none is given.

    Examples
    --------
    >>> import npformer as nf
    >>> model = nf.Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    >>> n_compiled = nf.compile_kernels(model, progress=False)
    >>> nf.compile_kernels(model, progress=False)
    0
    """
    if not _is_compiled_ahead(get_backend(backend)):
        return 0
    return compile_for([lambda ops: rehearse_step(ops, model, *batch, optimizer=optimizer, **settings)], progress)


def compile_for(works: Iterable[Callable], progress: bool = True) -> int:
    """The same for the kernels of several works, each a function of the backend that it computes with."""
    from npformer.cpu import ahead  # needs numba

    found: list = []
    for work in works:
        work(ahead.rehearsal(found))
    kernels = ahead.wanted(found)
    if kernels:
        with compiling_bar(len(kernels), progress) as say:
            ahead.compile_together(kernels, say)
    return len(kernels)


def rehearse_step(ops, model, *batch, optimizer=None, **settings):
    """Make one step of a new training of a model with a backend."""
    rows = [x[:2] for x in batch] or _some_ids(model)
    Trainer(model, optimizer or Adam(1e-3), backend=ops, **settings).step(*rows)


def compile_once(trainer: Trainer, progress: bool = True) -> bool:
    """``compile_kernels`` for a trainer of a model of token ids; False if it was done for such a training before."""
    if not _is_compiled_ahead(trainer.ops):
        return False
    from npformer.cpu import ahead  # needs numba

    model, settings = trainer.model, trainer.settings.of_trainer
    note = ahead.note_of((describe(model), type(trainer.optimizer).__name__, settings))
    if note is None or note.exists():
        return False
    compile_kernels(model, optimizer=trainer.optimizer, progress=progress, **settings)
    with contextlib.suppress(OSError):
        note.touch()
    return True


def _is_compiled_ahead(ops):
    """Whether a backend has kernels of the CPU: the reference has none, and a GPU's are compiled by its driver."""
    return bool(ops.kernels) and ops.device is HOST


def _some_ids(model):
    """A batch of two rows for a model of token ids."""
    if isinstance(model, LanguageModel):
        return [_ids(model.pad_id, 6)]
    if isinstance(model, EncoderDecoder):
        return [_ids(model.pad_id, 3), _ids(model.pad_id, 4)]
    name = type(model).__name__
    raise ValueError(f"no batch for a {name}, expected one, such as compile_kernels(model, inputs, targets)")


def _ids(pad_id, length):
    ids = np.full((2, length), 0 if pad_id != 0 else 1)
    if pad_id is not None:
        ids[1, -1] = pad_id
    return ids
