"""Compile the kernels of a training when a command begins it, once for all trainings of its kind,
and those of decoding in another process while the model trains.
"""

import atexit
import contextlib
import json
from functools import partial
from pathlib import Path

import numpy as np

from npformer.decoding import greedy_decode, sample
from npformer.models import LanguageModel, Transformer, describe, from_description
from npformer.runtime.cores import cores
from npformer.training.compiling import compile_for, note_of, rehearse_step

NUMBERS_OF_ROWS = 1, 2, 200  # each has kernels of its own; many rows are computed in two halves


def compile_once(trainer, progress=True):
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


def rehearse_decoding(model, decode=greedy_decode):
    """Decode some tokens with a new model, and compute its weights for a picture: this compiles the
    kernels.
    """
    params = model.init()
    for n_rows in NUMBERS_OF_ROWS:
        ids = np.full((n_rows, 3), 3)
        if isinstance(model, LanguageModel):
            sample(model, params, ids, bos_id=None, eos_id=None, max_len=6, seed=0)
        else:
            decode(model, params, ids, bos_id=1, eos_id=2, max_len=4)
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
        "from npformer.commands.shared.compiling import decode_and_note; "
        f"decode_and_note({description!r}, {str(note)!r})"
    )
    if meanwhile is not None:
        atexit.register(meanwhile.kill)
