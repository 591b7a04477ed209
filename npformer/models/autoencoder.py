"""The sequence auto-encoder (Dai and Le 2015): a sequence becomes a few numbers, and back.

Sequences with the patterns of the training data are reconstructed well. The code is too small to
hold sequences that do not follow these patterns, and they are reconstructed badly. So a large
reconstruction error marks an unusual sequence.
"""

from dataclasses import dataclass

import numpy as np

from npformer.arrays import Array
from npformer.backends import AnyBackend
from npformer.checks import check_shape
from npformer.decoding import log_probability
from npformer.decoding.states import AutoencoderDecoder
from npformer.layers.projection import linear
from npformer.layers.recurrence import read_steps
from npformer.models.encoder_decoder import EncoderDecoder
from npformer.operations.options import names_checked


@names_checked
@dataclass(frozen=True, repr=False)
class SequenceAutoencoder(EncoderDecoder):
    """A recurrent encoder, a bottleneck, and a recurrent decoder that sees nothing else.

    Parameters
    ----------
    vocab : int
        Vocabulary size V.
    d_model : int
        Width D of embeddings and states.
    code_size : int
        Number of values that a sequence is compressed to.
    dropout : float
        Dropout rate on embeddings, active when a dropout_key is given.
    pad_id : int
    max_len, dtype
        As for ``Transformer``.

    Examples
    --------
    >>> model = SequenceAutoencoder(vocab=11, d_model=16, code_size=4)
    >>> params = model.init(seed=0)
    >>> src, tgt = np.array([[3, 4, 5], [6, 7, 0]]), np.array([[1, 3, 4, 5, 2], [1, 6, 7, 2, 0]])
    >>> model.encode(params, src).shape
    (2, 4)
    >>> model.reconstruction_error(params, src, tgt).shape
    (2,)
    """

    vocab: int
    d_model: int = 128
    code_size: int = 16
    dropout: float = 0.0
    pad_id: int = 0
    max_len: int = 5000
    dtype: str = "float32"

    decoder_type = AutoencoderDecoder
    depths = (1, 1)

    def __post_init__(self):
        self._check_settings()

    @property
    def src_vocab(self):
        """Vocabulary size V, the same for source and target."""
        return self.vocab

    tgt_vocab = src_vocab

    def reconstruction_error(
        self, params: dict, src: Array, tgt: Array, *, backend: AnyBackend = "auto"
    ) -> Array:
        """Return the reconstruction error of each sequence: the mean of -log p per token, in nats.

        Parameters
        ----------
        params : nested dict
        src : (B, S) int
        tgt : (B, T+1) int
            The same sequences with begin and end tokens.

        Returns
        -------
        (B,)
        """
        counted = (tgt[:, 1:] != self.pad_id).sum(axis=-1)
        return -log_probability(self, params, src, tgt, backend=backend) / np.maximum(counted, 1)

    def _init_stacks(self, new):
        D = self.d_model
        encoder = {"0": new.recurrence(D, D, "gru"), "code": new.linear(D, self.code_size)}
        decoder = {"start": new.linear(self.code_size, D), "0": new.recurrence(D, D, "gru")}
        return encoder, decoder

    def _encode(self, ops, params, src, dropout_key=None, with_grad=False):
        """Return the code (B, code_size): a linear map of the state after the last word."""
        x, embed_backward = self.embed(ops, params, "source", src, dropout_key)
        keep_mask = src != self.pad_id
        layer = params["encoder"]["0"]
        states, (end,), read_backward = read_steps(ops, layer, x, "gru", keep_mask=keep_mask)
        code, code_backward = linear(ops, params["encoder"]["code"], end)

        def backward(dcode, gradients):
            dend, code_grads = code_backward(dcode)
            dx, _, read_grads = read_backward(np.zeros_like(states), (dend,))
            gradients.give("encoder", {"0": read_grads, "code": code_grads})
            embed_backward(dx, gradients)

        return code, backward

    def _decode(self, ops, params, code, src, tgt_in, dropout_key=None, with_grad=False):
        """Return the decoder's states (B, T, D); the first state is computed from the code."""
        check_shape(memory=(code, (len(src), self.code_size)))
        x, embed_backward = self.embed(ops, params, "target", tgt_in, dropout_key)
        first, start_backward = self.first_state(ops, params, code)
        states, _, read_backward = read_steps(ops, params["decoder"]["0"], x, "gru", first=(first,))

        def backward(dstates, gradients):
            dx, (dfirst,), read_grads = read_backward(dstates, None)
            dcode, start_grads = start_backward(dfirst)
            gradients.give("decoder", {"0": read_grads, "start": start_grads})
            embed_backward(dx, gradients)
            return dcode

        return states, backward

    def first_state(self, ops, params, code):
        """The decoder's first state, tanh of a linear map of the code."""
        inside, linear_backward = linear(ops, params["decoder"]["start"], code)
        first = ops.tanh(inside)
        return first, lambda dfirst: linear_backward(ops.tanh_backward(dfirst, first))
