"""Compile the kernels of the usual models for this processor, in as many processes as there are
cores.

npformer compile     # such as in the recipe of a container

Those of training are compiled by several processes, those of decoding by one. Other settings, such
as another activation, have further kernels. A command that trains compiles what it needs itself,
and in a program of your own, npformer.compile_kernels(model) does so for the training of a model.
"""

from functools import partial

from npformer.commands.shared import UsageError, command_line
from npformer.commands.shared.compiling import rehearse_decoding

from npformer.backends import get_backend
from npformer.decoding import beam_search
from npformer.models import LanguageModel, SequenceAutoencoder, Transformer
from npformer.runtime.compilations import compilation_listener
from npformer.training.compiling import compile_for, compiles_ahead, rehearse_step

TRANSLATOR = Transformer(11, 11, d_model=64, n_heads=2, n_layers=1, d_ff=64)
MODELS = (
    TRANSLATOR,
    LanguageModel(11, d_model=64, n_heads=2, n_layers=1, d_ff=64),
    SequenceAutoencoder(11, d_model=64, code_size=16),
)


@command_line
def main():
    ops = get_backend()
    if not compiles_ahead(ops):
        raise UsageError("no compiled kernel can be kept: npformer info says why")
    steps = [partial(rehearse_step, model=model) for model in MODELS]
    n_new = len(compile_for(steps, ops))
    print(f"training: all kernels are on disk, {n_new} of them compiled now", flush=True)
    with compilation_listener():  # no line about each of them
        for model in MODELS:
            rehearse_decoding(model)
        rehearse_decoding(TRANSLATOR, beam_search)
    print("decoding: all kernels are on disk")
