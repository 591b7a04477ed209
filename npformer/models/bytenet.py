"""ByteNet: translation with convolutions (Kalchbrenner et al. 2016).

The paper is "Neural machine translation in linear time".
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from npformer.arrays import beside, kept, on_host
from npformer.checks import check_int, check_number, check_shape, shown
from npformer.decoding.convolutions import ByteNetDecoder
from npformer.errors import UserError
from npformer.layers.convolution import masked_conv1d, residual_conv_block
from npformer.layers.normalisation import layer_norm
from npformer.layers.projection import linear
from npformer.layers.stack import Stack
from npformer.models.encoder_decoder import EncoderDecoder, check_depths, of_both
from npformer.operations.options import names_checked
from npformer.reference.math.random import keys_from
from npformer.runtime.forks import cached_property


@names_checked
@dataclass(frozen=True, repr=False)
class ByteNet(EncoderDecoder):
    """An encoder-decoder of dilated convolutions: the architecture; parameters are a nested dict.

    The encoder is a stack of residual blocks whose convolutions see the positions on both sides.
    The decoder is a stack of residual blocks with causal convolutions on top of the encoder: its
    input at step t is the embedding of target token t plus a linear map of column t of the
    encoder's output. The cost is linear in the length. As the dilations double from block to block,
    each set of five blocks adds (W - 1) · (1 + 2 + 4 + 8 + 16) positions to the receptive field.

    Source and target may have different lengths, which dynamic unfolding handles. The encoder turns
    a source of S words into a·S + b columns. The columns after the last word are zeros at the input
    of the first block; then the convolutions fill them. A decoder step beyond the last column gets
    zeros from the encoder, and sees the source only through the steps before it. If the target is
    shorter, the last columns are cut off, in training as in decoding, as a causal decoder cannot
    have seen them yet. So step t sees only the columns up to t, and each set of the encoder lets
    column t see (W - 1)/2 · (1 + 2 + 4 + 8 + 16) more words to its right. If a source is longer
    than that and the first step depends on its end, the model needs more sets or larger dilations.

    Parameters
    ----------
    src_vocab, tgt_vocab : int
        Vocabulary sizes V.
    d_model : int
        Width D, an even number: inside the blocks the width is D/2. (The paper writes 2d and d.)
    n_sets : int or (int, int)
        Number of sets of blocks in each stack, or in (encoder, decoder).
    dilations : tuple of int
        Dilation of each block of a set, in order.
    kernel_sizes : (int, int)
        Kernel size W (number of taps) of the convolutions of the encoder (an odd number) and of the
        decoder.
    unfold : (float, int)
        (a, b), with a at least 1: a source of S words gets a·S + b columns. Choose them such that
        few targets are longer.
    dropout : float
        Dropout rate on embeddings and every block's output, active when a dropout_key is given.
    tie_embeddings : bool
        One table for source, target and output projection; both vocabularies must be the same size.
    pad_id : int
        The id that pads short sequences: embedded as zeros, set to zero before every convolution,
        not counted in the loss.
    max_len, dtype
        As for ``Transformer``.

    Examples
    --------
    >>> model = ByteNet(src_vocab=11, tgt_vocab=11, d_model=16, n_sets=1, dilations=(1, 2, 4))
    >>> params = model.init(seed=0)
    >>> src, tgt = np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]])
    >>> model.logits(params, src, tgt[:, :-1]).shape
    (1, 4, 11)
    >>> loss, grads, n_tokens = model.loss_and_grad(params, src, tgt, dropout_key=1)
    >>> grads["encoder"]["0"]["conv"]["weight"].shape, n_tokens
    ((5, 8, 8), 4)
    """

    src_vocab: int
    tgt_vocab: int
    d_model: int = 1600
    n_sets: int | tuple[int, int] = 6
    dilations: tuple[int, ...] = (1, 2, 4, 8, 16)
    kernel_sizes: tuple[int, int] = (5, 3)
    unfold: tuple[float, int] = (1.2, 0)
    dropout: float = 0.1
    tie_embeddings: bool = False
    pad_id: int = 0
    max_len: int = 5000
    dtype: str = "float32"

    decoder_type = ByteNetDecoder

    def __post_init__(self):
        self._check_settings()
        if self.d_model % 2:
            expected = "an even number: blocks are half as wide inside"
            raise UserError(f"d_model={shown(self.d_model)}, expected {expected}")
        check_tuple("dilations", self.dilations, "one or more")
        check_tuple("kernel_sizes", self.kernel_sizes, "two")
        check_tuple("unfold", self.unfold, "two")
        dilations = [check_int("dilations", x, at_least=1) for x in self.dilations]
        sizes = [check_int("kernel_sizes", x, at_least=1) for x in self.kernel_sizes]
        if sizes[0] % 2 == 0:
            expected = "an odd first one: the encoder sees both sides"
            raise UserError(f"kernel_sizes={self.kernel_sizes}, expected {expected}")
        a = check_number("unfold[0]", self.unfold[0])
        b = check_int("unfold[1]", self.unfold[1], at_least=0)
        if not 1 <= a < float("inf"):
            raise UserError(
                f"unfold={self.unfold}, expected (a, b) with a >= 1, for a·S + b columns"
            )
        # They were lists, if they were read from a file.
        self._set(dilations=tuple(dilations), kernel_sizes=tuple(sizes), unfold=(a, b))
        self._set(n_sets=check_depths("n_sets", self.n_sets))

    @cached_property
    def depths(self):
        """Blocks of (encoder, decoder)."""
        return tuple(n * len(self.dilations) for n in of_both(self.n_sets))

    @property
    def n_positions(self):
        """How many columns the model may compute for one sequence, or pad one with."""
        a, b = self.unfold
        return max(a * self.max_len + b, max(self.dilations) * max(self.kernel_sizes))

    def dilation(self, block):
        """The dilation of block number ``block`` of a stack."""
        return self.dilations[block % len(self.dilations)]

    def _init_stacks(self, new):
        encoder, decoder = [
            {str(i): new.residual_conv_block(self.d_model, W) for i in range(depth)}
            for depth, W in zip(self.depths, self.kernel_sizes, strict=True)
        ]
        encoder["norm"] = new.norm(self.d_model)
        decoder["norm"] = new.norm(self.d_model)
        decoder["memory"] = new.linear(self.d_model, self.d_model)
        return encoder, decoder

    def _encode(self, ops, params, src, dropout_key=None, with_grad=False):
        """The columns (B, S', D) of the encoder: one for each word, and some more."""
        embedding_key, *block_keys = keys_from(dropout_key, 1 + self.depths[0])
        keep_mask = beside(self.unfolded(src), src)

        words, embed_backward = self.embed(ops, params, "source", src, embedding_key)
        x = fitted(words, keep_mask.shape[1])
        y, stack_backward = self._stack(
            ops, params["encoder"], x, keep_mask, block_keys, with_grad, causal=False
        )

        def backward(dy, gradients):
            dx, grads = stack_backward(dy)
            gradients.give("encoder", grads)
            embed_backward(fitted(dx, src.shape[1]), gradients)

        return y, backward

    def _decode(self, ops, params, memory, src, tgt_in, dropout_key=None, with_grad=False):
        """The decoder stands on the encoder: its input is word t plus a map of column t."""
        embedding_key, *block_keys = keys_from(dropout_key, 1 + self.depths[1])
        keep_mask = tgt_in != self.pad_id

        words, embed_backward = self.embed(ops, params, "target", tgt_in, embedding_key)
        columns, columns_backward = self.columns(ops, params, memory, src, tgt_in.shape[1])
        y, stack_backward = self._stack(
            ops, params["decoder"], words + columns, keep_mask, block_keys, with_grad, causal=True
        )

        def backward(dy, gradients):
            dx, grads = stack_backward(dy)
            dmemory, grads["memory"] = columns_backward(dx)
            gradients.give("decoder", grads)
            embed_backward(dx, gradients)
            return dmemory

        return y, backward

    def unfolded(self, src):
        """Return a mask of the columns of each source: its words, and blank ones up to a·S + b.

        Parameters
        ----------
        src : (B, S) int

        Returns
        -------
        (B, S') bool
            S' is the largest number of columns of a source in the batch; False is padding.

        Examples
        --------
        >>> ByteNet(11, 11, unfold=(1.2, 1)).unfolded(np.array([[3, 4, 5], [6, 0, 0]])).astype(int)
        array([[1, 1, 1, 1, 1],
               [1, 1, 1, 0, 0]])
        """
        is_word = on_host(src) != self.pad_id
        places = np.where(is_word, np.arange(1, 1 + src.shape[1]), 0)
        n_words = places.max(axis=1, initial=0)[:, None]
        a, b = self.unfold
        # Rounded before it is rounded up: 1.1 · 50 is 55.00000000000001.
        n_columns = np.ceil(np.round(a * n_words, 9)).astype(int) + b
        t = np.arange(n_columns.max(initial=0))
        is_blank = (n_words <= t) & (t < n_columns)
        return fitted(is_word, len(t)) | is_blank

    def columns(self, ops, params, memory, src, T):
        """The encoder's part (B, T, D) of the input of T decoder steps, and its backward pass.

        It is a linear map of the encoder's output ``memory`` (B, S', D), and zeros beyond its
        columns. The backward pass is dcolumns -> (dmemory, grads).
        """
        keep_mask = beside(self.unfolded(src)[..., None], memory)
        S = keep_mask.shape[1]
        check_shape(memory=(memory, (len(src), S, self.d_model)))
        zeroed = kept(keep_mask, memory)  # padding has no influence, even if it is NaN
        projected, project_backward = linear(ops, params["decoder"]["memory"], zeroed)

        def backward(dcolumns):
            return project_backward(kept(keep_mask, fitted(dcolumns, S)))

        return fitted(kept(keep_mask, projected), T), backward

    def _stack(self, ops, params, x, keep_mask, keys, with_grad, causal):
        """Residual blocks, of which each sees further than the one before it."""
        stack = Stack(with_grad)
        for i, dropout_key in enumerate(keys):
            block = params[str(i)]
            convolve = partial(
                masked_conv1d,
                ops,
                block["conv"],
                keep_mask=keep_mask,
                dilation=self.dilation(i),
                causal=causal,
            )
            rate = self._rate(dropout_key)
            x, block_backward = residual_conv_block(
                ops, block, x, convolve, dropout_rate=rate, dropout_key=dropout_key
            )
            stack.keep(block_backward)
        y, norm_backward = layer_norm(ops, params["norm"], x)

        def backward(dy):
            dx, norm_grads = norm_backward(dy)
            grads = {"norm": norm_grads}
            for i, block_backward in stack.backwards():
                dx, grads[str(i)] = block_backward(dx)
            return dx, grads

        return y, backward


def check_tuple(name, value, meaning):
    """Check that a setting is a tuple of one or more numbers, or of two."""
    is_long_enough = isinstance(value, (tuple, list)) and len(value) > 0
    if not is_long_enough or (meaning == "two" and len(value) != 2):
        raise UserError(f"{name}={value!r}, expected a tuple of {meaning} numbers")


def fitted(x, length):
    """x (B, T, …) cut or padded with zeros to another length; it is its own backward pass.

    >>> fitted(np.array([[1, 2, 3]]), 2), fitted(np.array([[1, 2, 3]]), 5)
    (array([[1, 2]]), array([[1, 2, 3, 0, 0]]))
    """
    added = [(0, 0)] * x.ndim  # zeros before and after, on each axis
    added[1] = 0, max(0, length - x.shape[1])
    return np.pad(x[:, :length], added)
