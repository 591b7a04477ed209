"""Compile the kernels of all commands for this processor, in as many processes as there are cores.

npformer compile     # such as in the recipe of a container

A command that trains does this itself for the kernels that it needs. In a program of your own,
npformer.compile_kernels(model) compiles those of a model's training.
"""

from functools import partial

import numpy as np

from npformer.commands.arguments import new_parser
from npformer.commands.command import command

from npformer.decoding import beam_search, greedy_decode, sample
from npformer.models import LanguageModel, SequenceAutoencoder, Transformer
from npformer.training.compiling import compile_for, rehearse_step

TRANSFORMER = Transformer(11, 11, d_model=64, n_heads=2, n_layers=1, d_ff=64)
LANGUAGE_MODEL = LanguageModel(11, d_model=64, n_heads=2, n_layers=1, d_ff=64)
AUTOENCODER = SequenceAutoencoder(11, d_model=64, code_size=16)


@command
def main(argv=None):
    new_parser(__doc__).parse_args(argv)
    models = TRANSFORMER, LANGUAGE_MODEL, AUTOENCODER
    n = compile_for([partial(rehearse_step, model=model) for model in models])
    print(f"training: {n} kernels compiled, the others were on disk")
    decode()
    print("decoding: all kernels are on disk")


def decode():
    """Decode with small models, which compiles what decoding needs."""
    src, prompt = np.array([[3, 4, 5], [3, 4, 0]]), np.array([[3, 4, 5]])
    params = TRANSFORMER.init(seed=0)
    for rows in src[:1], src:
        greedy_decode(TRANSFORMER, params, rows, bos_id=1, eos_id=2, max_len=4)
        beam_search(TRANSFORMER, params, rows, bos_id=1, eos_id=2, max_len=4)
    sample(LANGUAGE_MODEL, LANGUAGE_MODEL.init(seed=0), prompt, bos_id=None, eos_id=2, max_len=6, seed=0)
