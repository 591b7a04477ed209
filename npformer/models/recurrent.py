"""The recurrent sequence-to-sequence model, and the attention that was invented for it.

An encoder reads the source word by word into a state (Sutskever et al. 2014); a decoder starts from
that state and generates the target word by word. With attention (Bahdanau et al. 2015, in the form
of Luong et al. 2015) each step of the decoder has access to all states of the encoder, so that the
last state need not hold the whole source.
"""

from dataclasses import dataclass

import numpy as np

from npformer.arrays import Array, on_host
from npformer.backends import AnyBackend
from npformer.checks import check_choice, check_shape, shown
from npformer.decoding.states import RecurrentDecoder
from npformer.errors import UserError
from npformer.layers.projection import linear
from npformer.layers.recurrence import read_both_ways, read_steps
from npformer.layers.stack import Stack
from npformer.models.encoder_decoder import EncoderDecoder
from npformer.operations.options import names_checked
from npformer.reference.math.random import keys_from
from npformer.reference.math.scores import SCORES

# The names in the papers: the names in npformer.
SCORE_OF = {"dot": "dot", "general": "bilinear", "additive": "additive"}


@names_checked
@dataclass(frozen=True, repr=False)
class Recurrent(EncoderDecoder):
    """A recurrent encoder-decoder: the architecture only; parameters are a separate nested dict.

    Parameters
    ----------
    src_vocab, tgt_vocab : int
        Vocabulary sizes V.
    d_model : int
        Width D of embeddings and states.
    n_layers : int
        Number of layers N of encoder and of decoder. The input of a layer is the states of the
        layer below.
    cell : "gru" or "lstm"
    attention : None, "dot", "general" or "additive"
        The score that compares a decoder state with the encoder's states; None means no attention,
        so the decoder starts from the encoder's final states and sees nothing else of the source.
    bidirectional : bool
        Half of each encoder layer reads from the end to the beginning, so that a state depends on
        the words on both sides.
    dropout : float
        Dropout rate on embeddings, the states of each layer and the attentional state, active when
        a dropout_key is given.
    tie_embeddings : bool
        One table for source, target and output projection; both vocabularies must be the same size.
    pad_id : int
        The id that pads short sequences: it changes no state of the encoder, and nothing attends to
        it.
    max_len, dtype
        As for ``Transformer``.

    Examples
    --------
    >>> model = Recurrent(src_vocab=11, tgt_vocab=11, d_model=16, attention="general")
    >>> params = model.init(seed=0)
    >>> src, tgt = np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]])
    >>> model.logits(params, src, tgt[:, :-1]).shape
    (1, 4, 11)
    >>> loss, grads, n_tokens = model.loss_and_grad(params, src, tgt, dropout_key=1)
    """

    src_vocab: int
    tgt_vocab: int
    d_model: int = 256
    n_layers: int = 1
    cell: str = "gru"
    attention: str | None = "general"
    bidirectional: bool = True
    dropout: float = 0.1
    tie_embeddings: bool = False
    pad_id: int = 0
    max_len: int = 5000
    dtype: str = "float32"

    decoder_type = RecurrentDecoder

    def __post_init__(self):
        self._check_settings()
        check_choice("cell", self.cell, ("gru", "lstm"))
        # Compared with a tuple: a list, which is wrong, too, cannot be looked up in a dict.
        if self.attention is not None and self.attention not in tuple(SCORE_OF):
            expected = "None, 'dot', 'general' (the bilinear score) or 'additive'"
            raise UserError(f"attention={self.attention!r}, expected {expected}")
        if self.bidirectional and self.d_model % 2:
            why = "with bidirectional=True each direction gets half"
            raise UserError(f"d_model={shown(self.d_model)} is odd: {why}")

    @property
    def depths(self):
        """Layers of (encoder, decoder)."""
        return self.n_layers, self.n_layers

    def attention_weights(
        self, params: dict, src: Array, tgt_in: Array, *, backend: AnyBackend = "auto"
    ) -> dict:
        """Return the attention weights of the decoder, {"memory": [(B, 1, T, S)]}."""
        if self.attention is None:
            raise UserError("a model with attention=None has no attention weights")
        ops = self._backend(backend, params)
        src, tgt_in = self._inputs(params, src, tgt_in)
        (encoder_states, ends), _ = self._encode(ops, params, src)
        states, _ = self._decoder_states(ops, params, ends, tgt_in)
        _, weights = self._context(
            ops, params["decoder"], states, encoder_states, src != self.pad_id
        )
        return {"memory": [on_host(weights)[:, None]]}

    def _init_stacks(self, new):
        D = self.d_model
        cell = self.cell
        encoder = {}
        decoder = {}
        for i in range(self.n_layers):
            if self.bidirectional:
                sides = "forward", "backward"
                encoder[str(i)] = {side: new.recurrence(D, D // 2, cell) for side in sides}
            else:
                encoder[str(i)] = new.recurrence(D, D, cell)
            decoder[str(i)] = new.recurrence(D, D, cell)
        if self.attention not in (None, "dot"):  # which have no parameters
            decoder["attention"] = new.score(self.attention, D)
        decoder["combine"] = new.linear(D if self.attention is None else 2 * D, D)
        return encoder, decoder

    def _encode(self, ops, params, src, dropout_key=None, with_grad=False):
        """The memory: the states of the last layer (B, S, D), and the final states of each."""
        states, ends, read_backward = self._read(
            ops, params, "source", src, dropout_key, with_grad, keep_mask=src != self.pad_id
        )

        def backward(dmemory, gradients):
            _, grads = read_backward(*dmemory, gradients)
            gradients.give("encoder", grads)

        return (states, ends), backward

    def _decode(self, ops, params, memory, src, tgt_in, dropout_key=None, with_grad=False):
        """The attentional states (B, T, D)."""
        if not isinstance(memory, tuple):
            expected = "the output of encode: (states, ends)"
            raise TypeError(f"memory is a {type(memory).__name__}, expected {expected}")
        encoder_states, ends = memory
        check_shape(memory=(encoder_states, (*src.shape, self.d_model)))
        states_key, out_key = keys_from(dropout_key, 2)

        states, states_backward = self._decoder_states(
            ops, params, ends, tgt_in, states_key, with_grad
        )
        combined, combine_backward = self.combine(
            ops, params["decoder"], states, encoder_states, src != self.pad_id
        )
        y, drop_backward = self._drop(ops, combined, out_key)

        def backward(dy, gradients):
            dcombined = drop_backward(dy)
            dstates, dencoder_states, combine_grads = combine_backward(dcombined)
            dends, layer_grads = states_backward(dstates, gradients)
            gradients.give("decoder", layer_grads | combine_grads)
            return dencoder_states, dends

        return y, backward

    def _decoder_states(self, ops, params, ends, tgt_in, dropout_key=None, with_grad=False):
        """The states h_t (B, T, D); each layer starts from the encoder's final state."""
        states, _, backward = self._read(
            ops, params, "target", tgt_in, dropout_key, with_grad, firsts=ends
        )
        dends = [None] * self.n_layers  # nobody uses the final states of a decoder
        return states, lambda dstates, gradients: backward(dstates, dends, gradients)

    def _read(self, ops, params, side, ids, dropout_key, with_grad, *, keep_mask=None, firsts=None):
        """The states of the last layer, and the final states of each.

        Without ``firsts``, the state of each layer before the first word, these are zeros.
        """
        is_encoder = side == "source"
        layers = params["encoder" if is_encoder else "decoder"]
        firsts = firsts or [None] * self.n_layers
        embedding_key, *layer_keys = keys_from(dropout_key, 1 + self.n_layers)
        x, embed_backward = self.embed(ops, params, side, ids, embedding_key)
        ends = []
        stack = Stack(with_grad)
        for i, layer_key in enumerate(layer_keys):
            layer = layers[str(i)]
            if is_encoder and self.bidirectional:
                states, end, read_backward = read_both_ways(
                    ops, layer, x, self.cell, keep_mask=keep_mask
                )
            else:
                states, end, read_backward = read_steps(
                    ops, layer, x, self.cell, keep_mask=keep_mask, first=firsts[i]
                )
            x, drop_backward = self._drop(ops, states, layer_key)
            ends.append(end)
            stack.keep((read_backward, drop_backward))

        def backward(dx, dends, gradients):
            dfirst = {}
            grads = {}
            for i, (read_backward, drop_backward) in stack.backwards():
                dx, dfirst[i], grads[str(i)] = read_backward(drop_backward(dx), dends[i])
            embed_backward(dx, gradients)
            return dfirst, grads

        return x, ends, backward

    def combine(self, ops, params, states, encoder_states, keep_mask):
        """The attentional state h̃_t = tanh(W [h_t; c_t] + b), which predicts the next word.

        This is equation 5 of Luong et al. Without attention there is no context c_t.
        """
        if self.attention is None:
            joined = states
        else:
            context, weights = self._context(ops, params, states, encoder_states, keep_mask)
            joined = np.concatenate([states, context], axis=-1)
        combined, linear_backward = linear(ops, params["combine"], joined)
        y = ops.tanh(combined)

        def backward(dy):
            djoined, combine_grads = linear_backward(ops.tanh_backward(dy, y))
            grads = {"combine": combine_grads}
            if self.attention is None:
                return djoined, np.zeros_like(encoder_states), grads
            dstates, dcontext = np.split(djoined, 2, axis=-1)
            q, k, v = states, encoder_states, encoder_states
            dq, dk, dv, *dparams = ops.score_attention_backward(
                dcontext.copy(), q, k, v, weights, *self._score(params)
            )
            grads["attention"] = dict(zip(self._score_names(), dparams, strict=True))
            return dstates + dq, dk + dv, grads

        return y, backward

    def _context(self, ops, params, states, encoder_states, keep_mask):
        """c_t = softmax(score(h_t, H)) H, and the weights (B, T, S)."""
        return ops.score_attention(
            states, encoder_states, encoder_states, *self._score(params), keep_mask[:, None]
        )

    def _score(self, params):
        """The name of the score, and its parameters in the order of its arguments."""
        arguments = tuple(params["attention"][name] for name in self._score_names())
        return SCORE_OF[self.attention], arguments

    def _score_names(self):
        return SCORES[SCORE_OF[self.attention]][2]
