"""Compile the kernels of a training step before it is made, in one process for each core."""

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, Unpack

import numpy as np

from npformer.backends import get_backend
from npformer.checks import check_no_class
from npformer.errors import UserError
from npformer.models import EncoderDecoder, LanguageModel
from npformer.operations.host import HOST
from npformer.progress import compiling_bar
from npformer.training.optimizers import Adam
from npformer.training.settings import TrainingKeywords, TrainingSettings, with_fields_of
from npformer.training.trainer import Trainer

ONE_LAYER = {"n_layers": 1, "share_layers": None}  # settings of a model, as far as it has them


@with_fields_of(TrainingSettings)
def compile_kernels(
    model: Any,
    *batch: Any,
    optimizer: Any = None,
    progress: bool = True,
    backend: Any = "auto",
    **settings: Unpack[TrainingKeywords],
) -> int:
    """Compile the kernels of a training step, in as many processes as there are cores.

    Otherwise they are compiled one after the other in the first step. They are kept on disk, where
    all programs find them. To find out which they are, a second training of the model, of one
    layer, makes a step with the reference. The kernels of decoding are not compiled.

    Parameters
    ----------
    model : a model as of ``Trainer``
    *batch : arrays
        A batch as of ``Trainer.step``, of which the first two rows are used. Models of token ids
        need none.
    optimizer : optimizer, optional
        Adam if not given.
    progress : bool
        Show how many kernels are left.
    backend : str or backend
        As of ``Trainer``. Only kernels of the CPU are compiled ahead.
    seed, label_smoothing, consistency, clip_norm, frozen, precision, n_shards
        As the fields of ``TrainingSettings``: see ``help(npformer.training.TrainingSettings)``.

    Returns
    -------
    int
        The number of kernels that were compiled; 0 if all were on disk, or nothing can be kept on
        disk.

    Raises
    ------
    UserError
        If the model needs a batch, and none is given.

    Examples
    --------
    >>> import npformer as nf
    >>> model = nf.Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    >>> n_compiled = nf.compile_kernels(model, progress=False)
    >>> nf.compile_kernels(model, progress=False)
    0
    """
    work = partial(rehearse_step, model=model, batch=batch, optimizer=optimizer, **settings)
    return len(compile_for([work], get_backend(backend), progress))


def compile_for(
    works: Iterable[Callable], ops: Any, progress: bool = True, n_processes: int | None = None
) -> list:
    """Compile the kernels of several works for a backend, and return them.

    A work is a function ``work(backend)`` that calls everything whose kernels are compiled, such as
    ``rehearse_step``.
    """
    if not compiles_ahead(ops):
        return []
    from npformer.cpu import ahead  # needs numba

    rehearsal: list = []
    for work in works:
        work(ahead.rehearsal_backend(rehearsal))
    kernels = ahead.overloads_of(rehearsal)
    if kernels:
        with compiling_bar(len(kernels), progress) as say:
            ahead.compile_together(kernels, say, n_processes)
    return kernels


def rehearse_step(ops, model, batch=(), optimizer=None, frozen=(), **settings):
    """Make one step of a new training of a model with a backend.

    Its kernels do not depend on the number of layers, nor on which parameters are frozen.
    """
    check_no_class("model", model)
    rows = [x[:2] for x in batch] or _some_ids(model)
    names = {field.name for field in fields(model)} if is_dataclass(model) else set()
    if "n_layers" in names:
        one_layer = {name: value for name, value in ONE_LAYER.items() if name in names}
        model = replace(model, **one_layer)
    optimizer = Adam(1e-3) if optimizer is None else optimizer
    Trainer(model, optimizer, backend=ops, **settings).step(*rows)


def compiles_ahead(ops):
    """Whether the kernels of a backend can be compiled before they are called, and kept on disk.

    The reference has no kernels, and those of a GPU are compiled by its driver.
    """
    return note_of(ops, work="any") is not None  # what the work is makes no difference


def note_of(ops, work):
    """The file which says that the kernels of a work are on disk; None if they are not compiled
    ahead.
    """
    if not ops.kernels or ops.device is not HOST:
        return None
    from npformer.cpu import ahead  # needs numba

    return ahead.note_of(work)


def _some_ids(model):
    """A batch of two rows for a model of token ids."""
    if isinstance(model, LanguageModel):
        return [_ids(model, 6)]
    if isinstance(model, EncoderDecoder):
        return [_ids(model, 3), _ids(model, 4)]
    expected = "one, such as compile_kernels(model, inputs, targets)"
    raise UserError(f"no batch for the model {type(model).__name__}, expected {expected}")


def _ids(model, length):
    """Two rows of ids, the second with padding at its end, if the model has padding."""
    ids = np.full((2, min(length, model.max_len)), 0 if model.pad_id != 0 else 1)
    if model.pad_id is not None:
        ids[1, -1] = model.pad_id
    return ids
