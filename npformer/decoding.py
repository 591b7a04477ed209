"""From a model to a sequence."""

import numpy as np


def greedy_decode(model, params, src, *, bos_id, eos_id, max_len, backend="auto"):
    """The most probable next token, again and again, until the end token.

    Parameters
    ----------
    model : Transformer
    params : nested dict
    src : (B, S) int
    bos_id, eos_id : int
        The tokens that begin and end every target in training.
    max_len : int
        Most tokens to generate, the end token included.

    Returns
    -------
    (B, T) int
        What follows the begin token, up to and with the end token; ``model.pad_id`` after that. T <= max_len.

    Examples
    --------
    >>> from npformer import Transformer
    >>> model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> src = np.array([[3, 4, 5]])
    >>> greedy_decode(model, model.init(0), src, bos_id=1, eos_id=2, max_len=4).shape[0]
    1
    """
    for name, token in (("bos_id", bos_id), ("eos_id", eos_id)):
        if not 0 <= token < model.tgt_vocab:
            raise ValueError(f"{name}={token}, expected 0 <= {name} < {model.tgt_vocab}")
    if not 1 <= max_len <= model.max_len:
        raise ValueError(f"max_len={max_len}, expected 1 <= max_len <= {model.max_len}, the model's")
    memory = model.encode(params, src, backend=backend)
    tgt = np.full((src.shape[0], 1), bos_id)
    unfinished = np.ones(src.shape[0], bool)
    while tgt.shape[1] <= max_len and unfinished.any():
        logits = model.decode(params, memory, src, tgt, backend=backend)
        next_token = np.where(unfinished, logits[:, -1].argmax(axis=-1), model.pad_id)
        tgt = np.concatenate([tgt, next_token[:, None]], axis=1)
        unfinished &= next_token != eos_id
    return tgt[:, 1:]
