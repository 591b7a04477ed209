"""What the tests of decoding decode: small random models, sources, and the ways of decoding."""

from functools import partial

import numpy as np
from promises import THREE_ROWS

from npformer import Transformer, beam_search, greedy_decode, sample, tree

SRC = THREE_ROWS
PAD, BOS, EOS = 0, 1, 2
IDS = {"bos_id": BOS, "eos_id": EOS}
METHODS = {"greedy_decode": partial(greedy_decode, **IDS)}
METHODS["sample"] = partial(sample, **IDS, seed=1)
METHODS["beam_search"] = partial(beam_search, **IDS, beam_size=4, n_best=4)


def random_model(seed=0, tgt_vocab=7, dtype="float64", size=0.3, bias=0.0):
    """A model whose next token is neither certain nor anyone's guess.

    ``size`` and ``bias`` are those of what is added to all parameters, and to the logits.
    """
    sizes = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 9, "max_len": 16}
    model = Transformer(11, tgt_vocab, **sizes, dtype=dtype)
    params = model.init(seed)
    rng = np.random.default_rng(seed)
    for _, x in tree.leaves(params):
        x += size * rng.standard_normal(x.shape)
    params["output"]["bias"] += bias * rng.standard_normal(tgt_vocab).astype(dtype)
    return model, params
