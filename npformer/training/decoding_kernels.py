"""Compile kernels before they are needed, also those of decoding while a model trains."""

import atexit
import json
from pathlib import Path

import numpy as np

from npformer.decoding import greedy_decode, sample
from npformer.models import LanguageModel, Transformer, describe, from_description
from npformer.runtime.cores import cores
from npformer.training.compiling import compile_once, note_of

NUMBERS_OF_ROWS = 1, 2, 200  # each has kernels of its own; many rows are computed in two halves


def decode(model):
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
    """``decode`` with a model that is described in JSON, and make the file which says that it was
    done.
    """
    decode(from_description(json.loads(description)))
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
        "from npformer.training.decoding_kernels import decode_and_note; "
        f"decode_and_note({description!r}, {str(note)!r})"
    )
    if meanwhile is not None:
        atexit.register(meanwhile.kill)
