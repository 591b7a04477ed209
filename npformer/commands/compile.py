"""Compile the kernels of the usual models for this processor, in as many processes as there are
cores.

npformer compile     # such as in the recipe of a container

Those of training are compiled by several processes, those of decoding by one. Other settings, such
as another activation, have further kernels. A command that trains compiles what it needs itself,
and in a program of your own, npformer.compile_kernels(model) does so for the training of a model.
"""

import atexit
import json
from functools import partial
from pathlib import Path

import numpy as np

from npformer.commands.arguments import new_parser
from npformer.commands.command import command

from npformer.backends import get_backend
from npformer.decoding import beam_search, greedy_decode, sample
from npformer.models import (
    LanguageModel,
    SequenceAutoencoder,
    Transformer,
    describe,
    from_description,
)
from npformer.progress import compilation_listener
from npformer.runtime.cores import cores
from npformer.training.compiling import (
    compile_for,
    compile_once,
    compiles_ahead,
    note_of,
    rehearse_step,
)

TRANSLATOR = Transformer(11, 11, d_model=64, n_heads=2, n_layers=1, d_ff=64)
MODELS = (
    TRANSLATOR,
    LanguageModel(11, d_model=64, n_heads=2, n_layers=1, d_ff=64),
    SequenceAutoencoder(11, d_model=64, code_size=16),
)
NUMBERS_OF_ROWS = 1, 2, 200  # each has kernels of its own; many rows are computed in two halves


@command
def main(argv=None):
    parser = new_parser(__doc__)
    parser.parse_args(argv)
    ops = get_backend()
    if not compiles_ahead(ops):
        parser.error("no compiled kernel can be kept: npformer info says why")
    steps = [partial(rehearse_step, model=model) for model in MODELS]
    n_new = len(compile_for(steps, ops))
    print(f"training: all kernels are on disk, {n_new} of them compiled now", flush=True)
    with compilation_listener():  # no line about each of them
        for model in MODELS:
            decode(model)
        params = TRANSLATOR.init()
        for n_rows in NUMBERS_OF_ROWS:
            ids = np.full((n_rows, 3), 3)
            beam_search(TRANSLATOR, params, ids, bos_id=1, eos_id=2, max_len=4)
    print("decoding: all kernels are on disk")


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
        "from npformer.commands.compile import decode_and_note; "
        f"decode_and_note({description!r}, {str(note)!r})"
    )
    if meanwhile is not None:
        atexit.register(meanwhile.kill)
