"""Compile kernels before they are needed.

Those of a training step are compiled in one process for each core, those of decoding in another
process while a model trains.
"""

import atexit
import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from npformer.backends import get_backend
from npformer.decoding import greedy_decode, sample
from npformer.models import (
    EncoderDecoder,
    LanguageModel,
    Transformer,
    describe,
    from_description,
)
from npformer.operations.host import HOST
from npformer.progress import compiling_bar
from npformer.runtime.cores import cores
from npformer.training.optimizers import Adam
from npformer.training.trainer import Trainer

ONE_LAYER = {"n_layers": 1, "share_layers": None}  # settings of a model, as far as it has them
NUMBERS_OF_ROWS = 1, 2, 200  # each has kernels of its own; many rows are computed in two halves


def compile_kernels(
    model: Any,
    *batch: Any,
    optimizer: Any = None,
    progress: bool = True,
    backend: Any = "auto",
    **settings: Any,
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
    **settings
        The fields of ``TrainingSettings``, such as ``label_smoothing``.

    Returns
    -------
    int
        The number of kernels that were compiled; 0 if all were on disk, or nothing can be kept on
        disk.

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
    work = partial(rehearse_step, model=model, batch=batch, optimizer=optimizer, **settings)
    return len(compile_for([work], get_backend(backend), progress))


def compile_for(
    works: Iterable[Callable], ops: Any, progress: bool = True, n_processes: int | None = None
) -> list:
    """Compile the kernels of several works for a backend, and return them.

    A work is a function of the backend that it computes with.
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
    rows = [x[:2] for x in batch] or _some_ids(model)
    names = {field.name for field in fields(model)} if is_dataclass(model) else set()
    if "n_layers" in names:
        one_layer = {name: value for name, value in ONE_LAYER.items() if name in names}
        model = replace(model, **one_layer)
    optimizer = Adam(1e-3) if optimizer is None else optimizer
    Trainer(model, optimizer, backend=ops, **settings).step(*rows)


def compile_once(trainer: Trainer, progress: bool = True) -> None:
    """``compile_kernels`` for a trainer, unless that was done for such a training before."""
    settings = trainer.settings.of_trainer
    del settings["seed"]  # on which no kernel depends
    optimizer = trainer.optimizer
    note = note_of(trainer.ops, (describe(trainer.model), type(optimizer).__name__, settings))
    if note is None or note.exists():
        return
    n_processes = None if trainer.ranks.is_first else 1
    work = partial(rehearse_step, model=trainer.model, optimizer=optimizer, **settings)
    try:
        kernels = compile_for([work], trainer.ops, progress, n_processes)
    except ValueError:  # no batch is made up that suits the model: its first step compiles them
        return
    if all(each.is_on_disk() for each in kernels):
        with contextlib.suppress(OSError):
            note.touch()


def compiles_ahead(ops):
    """Whether the kernels of a backend can be compiled before they are called, and kept on disk.

    The reference has no kernels, and those of a GPU are compiled by its driver.
    """
    return note_of(ops, work="any") is not None


def note_of(ops, work):
    """The file which says that the kernels of a work are on disk; None if they are not compiled
    ahead.
    """
    if not ops.kernels or ops.device is not HOST:
        return None
    from npformer.cpu import ahead  # needs numba

    return ahead.note_of(work)


def rehearse_decoding(model):
    """Decode some tokens with a new model, and compute its weights for a picture: this compiles the
    kernels.
    """
    params = model.init()
    for n_rows in NUMBERS_OF_ROWS:
        ids = np.full((n_rows, 3), 3)
        if isinstance(model, LanguageModel):
            sample(model, params, ids, bos_id=None, eos_id=None, max_len=6, seed=0)
        else:
            greedy_decode(model, params, ids, bos_id=1, eos_id=2, max_len=4)
    if isinstance(model, Transformer):
        model.attention_weights(params, ids[:1], ids[:1])


def decode_and_note(description, note):
    """``rehearse_decoding`` with a model that is described in JSON, and make the file which says
    that it was done.
    """
    rehearse_decoding(from_description(json.loads(description)))
    Path(note).touch()


def compile_ahead(trainer, progress):
    """Compile the kernels of a training, and those of decoding while it trains, unless that was
    done before.
    """
    compile_once(trainer, progress)
    description = json.dumps(describe(trainer.model))
    note = note_of(trainer.ops, ("decoding", description))
    if note is None or note.exists() or cores() == 1 or not trainer.ranks.is_first:
        return
    from npformer.cpu.ahead import start_python  # needs numba

    meanwhile = start_python(
        "from npformer.training.compiling import decode_and_note; "
        f"decode_and_note({description!r}, {str(note)!r})"
    )
    if meanwhile is not None:
        atexit.register(meanwhile.kill)


def _some_ids(model):
    """A batch of two rows for a model of token ids."""
    if isinstance(model, LanguageModel):
        return [_ids(model, 6)]
    if isinstance(model, EncoderDecoder):
        return [_ids(model, 3), _ids(model, 4)]
    expected = "one, such as compile_kernels(model, inputs, targets)"
    raise ValueError(f"no batch for the model {type(model).__name__}, expected {expected}")


def _ids(model, length):
    """Two rows of ids, the second with padding at its end, if the model has padding."""
    ids = np.full((2, min(length, model.max_len)), 0 if model.pad_id != 0 else 1)
    if model.pad_id is not None:
        ids[1, -1] = model.pad_id
    return ids
