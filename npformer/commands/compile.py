"""Compile the kernels of all commands for this processor, in as many processes as there are cores.

npformer compile     # such as in the recipe of a container

A command that trains does this itself for the kernels that it needs. In a program of your own,
npformer.compile_kernels(model) compiles those of a model's training.
"""

import atexit
import json
import subprocess
import sys
from functools import partial

import numpy as np

from npformer.commands.arguments import new_parser
from npformer.commands.command import command

from npformer.decoding import beam_search, greedy_decode, sample
from npformer.models import LanguageModel, SequenceAutoencoder, Transformer, describe, from_description
from npformer.runtime.cores import cores
from npformer.training.compiling import compile_for, compile_once, rehearse_step

MODELS = (
    Transformer(11, 11, d_model=64, n_heads=2, n_layers=1, d_ff=64),
    LanguageModel(11, d_model=64, n_heads=2, n_layers=1, d_ff=64),
    SequenceAutoencoder(11, d_model=64, code_size=16),
)
NUMBERS_OF_ROWS = 1, 2, 80  # each has kernels of its own
DECODE = "import sys; sys.path[:] = {}; from npformer.commands.compile import decode_like; decode_like({!r})"


@command
def main(argv=None):
    new_parser(__doc__).parse_args(argv)
    n = compile_for([partial(rehearse_step, model=model) for model in MODELS])
    print(f"training: {n} kernels compiled, the others were on disk")
    for model in MODELS:
        decode(model)
    for n_rows in NUMBERS_OF_ROWS:
        src = np.full((n_rows, 3), 3)
        beam_search(MODELS[0], MODELS[0].init(), src, bos_id=1, eos_id=2, max_len=4)
    print("decoding: all kernels are on disk")


def decode(model):
    """Decode some tokens with a new model, which compiles the kernels for it."""
    params = model.init()
    for n_rows in NUMBERS_OF_ROWS:
        ids = np.full((n_rows, 3), 3)
        if isinstance(model, LanguageModel):
            sample(model, params, ids, bos_id=None, eos_id=None, max_len=6, seed=0)
        else:
            greedy_decode(model, params, ids, bos_id=1, eos_id=2, max_len=4)


def decode_like(description):
    """``decode`` with a model that is described in JSON."""
    decode(from_description(json.loads(description)))


def compile_ahead(trainer, progress):
    """Compile the kernels of a training, unless that was done before, and those of decoding while it trains."""
    is_new = compile_once(trainer, progress)
    if is_new and cores() > 1 and trainer.ranks.is_first:
        code = DECODE.format(sys.path, json.dumps(describe(trainer.model)))
        meanwhile = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(meanwhile.kill)
