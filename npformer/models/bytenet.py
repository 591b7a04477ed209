"""ByteNet: translation with convolutions (Kalchbrenner et al. 2016, "Neural machine translation in linear time")."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from npformer.arrays import beside, kept, on_host
from npformer.checks import check_int, check_number, check_shape, shown
from npformer.decoding.stepwise import StepwiseDecoder
from npformer.layers.convolution import masked_conv1d, residual_conv_block
from npformer.layers.normalisation import layer_norm
from npformer.layers.projection import linear
from npformer.layers.stack import Stack
from npformer.models.encoder_decoder import EncoderDecoder, check_depths
from npformer.reference import split_key


class ByteNetDecoder(StepwiseDecoder):
    """The step-by-step decoder of a ``ByteNet``, which caches the inputs of its convolutions; ``decoder`` makes one."""

    def __init__(self, model, ops, params, src, max_rows, max_len):
        super().__init__(model, ops, params, len(src), max_rows, max_len)
        self.columns = self.empty_cache(len(src), max_len, model.d_model)  # of the encoder, the same in all steps
        ops.device.run_rows(lambda part: self._read(src, part), *src.shape)
        self.blocks = [params["decoder"][str(i)] for i in range(model.depths[1])]
        self.seen = self.empty_cache(len(self.blocks), max_len * max_rows, model.d_model // 2)

    def _read(self, src, part):
        """Compute the columns of some sources for all steps."""
        memory = self.model.encode(self.params, src[part], backend=self.ops)
        columns, _ = self.model.columns(self.ops, self.params, memory, src[part], self.max_len)
        self.columns[part] = columns

    def _newest(self, tokens, t, part):
        model, ops = self.model, self.ops
        tokens, at, sources = map(self.beside, (tokens[:, None], self.at[part], self.sources[part]))
        x, keep_mask = self.embed(tokens)[:, 0] + self.columns[sources, t], tokens != model.pad_id
        for i, (block, seen) in enumerate(zip(self.blocks, self.seen, strict=True)):
            convolve = partial(self._convolve, block["conv"], seen, at, keep_mask, model.dilation(i))
            x, _ = residual_conv_block(ops, block, x, convolve)
        return layer_norm(ops, self.params["decoder"]["norm"], x)[0]

    def _convolve(self, params, seen, at, keep_mask, dilation, h):
        """The newest output of a causal ``masked_conv1d``, from the newest input and the cached ones."""
        seen[at[:, -1]] = kept(keep_mask, h)
        taps = at[:, ::-dilation][:, : len(params["weight"])][:, ::-1]  # none before the first token
        window = seen[taps].reshape(len(at), -1)
        weight = params["weight"][-taps.shape[1] :].reshape(window.shape[1], -1)
        return self.ops.linear(window, weight, params["bias"]), None


@dataclass(frozen=True, repr=False)
class ByteNet(EncoderDecoder):
    """An encoder-decoder of dilated convolutions: the architecture only; parameters are a separate nested dict.

    The encoder is a stack of residual blocks whose convolutions see the positions on both sides. The decoder is a
    stack of residual blocks with causal convolutions on top of the encoder: its input at step t is the embedding of
    target token t plus a linear map of column t of the encoder's output. The cost is linear in the length. As the
    dilations double from block to block, each set of five blocks adds (W - 1) · (1 + 2 + 4 + 8 + 16) positions to
    the receptive field.

    Source and target may have different lengths, which dynamic unfolding handles. The encoder turns a source of S
    words into a·S + b columns. The columns after the last word are zeros at the input of the first block; then the
    convolutions fill them. A decoder step beyond the last column gets zeros from the encoder, and sees the source only
    through the steps before it. If the target is shorter, the last columns are cut off, in training as in decoding,
    as a causal decoder cannot have seen them yet. So step t sees only the columns up to t, and each set of the encoder
    lets column t see (W - 1)/2 · (1 + 2 + 4 + 8 + 16) more words to its right. If a source is longer than that and
    the first step depends on its end, the model needs more sets or larger dilations.

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
        Kernel size W (number of taps) of the convolutions of the encoder (an odd number) and of the decoder.
    unfold : (float, int)
        (a, b), with a at least 1: a source of S words gets a·S + b columns. Choose them such that few targets are
        longer.
    dropout : float
        Dropout rate on embeddings and every block's output, active when a dropout_key is given.
    tie_embeddings : bool
        One table for source, target and output projection; both vocabularies must be the same size.
    pad_id : int
        The id that pads short sequences: embedded as zeros, set to zero before every convolution, not counted in the
        loss.
    max_len, dtype
        As for ``Transformer``.

    Examples
    --------
    >>> model = ByteNet(src_vocab=11, tgt_vocab=11, d_model=16, n_sets=1, dilations=(1, 2, 4))
    >>> params = model.init(seed=0)
    >>> src, tgt = np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]])
    >>> model.logits(params, src, tgt[:, :-1]).shape
    (1, 4, 11)
    >>> loss, grads, n_tokens = model.loss_and_grad(params, src, tgt[:, :-1], tgt[:, 1:], dropout_key=1)
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
            raise ValueError(f"d_model={shown(self.d_model)}, expected an even number: blocks are half as wide inside")
        for name, meaning in (("dilations", "one or more"), ("kernel_sizes", "two"), ("unfold", "two")):
            value = getattr(self, name)
            if not isinstance(value, (tuple, list)) or not value or (meaning == "two" and len(value) != 2):
                raise ValueError(f"{name}={value!r}, expected a tuple of {meaning} numbers")
        for name in ("dilations", "kernel_sizes"):
            sizes = tuple(check_int(name, size, at_least=1) for size in getattr(self, name))
            object.__setattr__(self, name, sizes)  # a list when it was read from a file
        if self.kernel_sizes[0] % 2 == 0:
            raise ValueError(
                f"kernel_sizes={self.kernel_sizes}, expected an odd first one: the encoder sees both sides"
            )
        object.__setattr__(self, "n_sets", check_depths("n_sets", self.n_sets))
        a, b = check_number("unfold[0]", self.unfold[0]), check_int("unfold[1]", self.unfold[1], at_least=0)
        if not 1 <= a < float("inf"):
            raise ValueError(f"unfold={self.unfold}, expected (a, b) with a >= 1, for a·S + b columns")
        object.__setattr__(self, "unfold", (a, b))

    @property
    def depths(self):
        """Blocks of (encoder, decoder)."""
        n_sets = self.n_sets if isinstance(self.n_sets, tuple) else (self.n_sets, self.n_sets)
        return tuple(n * len(self.dilations) for n in n_sets)

    @property
    def n_positions(self):
        """The largest number of columns that the model may compute for one sequence, or pad one with."""
        a, b = self.unfold
        return max(a * self.max_len + b, max(self.dilations) * max(self.kernel_sizes))

    def dilation(self, block):
        """The dilation of block number ``block`` of a stack."""
        return self.dilations[block % len(self.dilations)]

    def _init_stacks(self, new):
        encoder, decoder = (
            {str(i): new.residual_conv_block(self.d_model, W) for i in range(depth)}
            for depth, W in zip(self.depths, self.kernel_sizes, strict=True)
        )
        encoder["norm"], decoder["norm"] = new.norm(self.d_model), new.norm(self.d_model)
        decoder["memory"] = new.linear(self.d_model, self.d_model)
        return encoder, decoder

    def _encode(self, ops, params, src, dropout_key=None, train=False):
        embedding_key, *block_keys = split_key(dropout_key, 1 + self.depths[0])
        keep_mask = beside(self.unfolded(src), src)

        words, embed_backward = self.embed(ops, params, "source", src, embedding_key)
        x = fitted(words, keep_mask.shape[1])
        y, stack_backward = self._stack(ops, params["encoder"], x, keep_mask, block_keys, train, causal=False)

        def backward(dy, gradients):
            dx, grads = stack_backward(dy)
            gradients.give("encoder", grads)
            embed_backward(fitted(dx, src.shape[1]), gradients)

        return y, backward

    def _decode(self, ops, params, memory, src, tgt_in, dropout_key=None, train=False):
        embedding_key, *block_keys = split_key(dropout_key, 1 + self.depths[1])
        keep_mask = tgt_in != self.pad_id

        words, embed_backward = self.embed(ops, params, "target", tgt_in, embedding_key)
        columns, columns_backward = self.columns(ops, params, memory, src, tgt_in.shape[1])
        x = words + columns
        y, stack_backward = self._stack(ops, params["decoder"], x, keep_mask, block_keys, train, causal=True)

        def backward(dy, gradients):
            dx, grads = stack_backward(dy)
            dmemory, grads["memory"] = columns_backward(dx)
            gradients.give("decoder", grads)
            embed_backward(dx, gradients)
            return dmemory

        return y, backward

    def unfolded(self, src):
        """Return a mask of the columns of each source: one for each word, and blank ones up to a·S + b.

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
        n_words = np.where(is_word, np.arange(1, 1 + src.shape[1]), 0).max(axis=1, initial=0)[:, None]
        a, b = self.unfold
        n_columns = np.ceil(np.round(a * n_words, 9)).astype(int) + b  # 1.1 · 50 is 55.00000000000001
        t = np.arange(n_columns.max(initial=0))
        return fitted(is_word, len(t)) | ((n_words <= t) & (t < n_columns))

    def columns(self, ops, params, memory, src, T):
        """The encoder's part (B, T, D) of the input of T decoder steps, and its backward: dcolumns -> (dmemory, grads).

        It is a linear map of the encoder's output ``memory`` (B, S', D), and zeros beyond its columns.
        """
        keep_mask = beside(self.unfolded(src)[..., None], memory)
        check_shape(memory=(memory, (*keep_mask.shape[:2], self.d_model)))
        zeroed = kept(keep_mask, memory)  # padding has no influence, even if it is NaN
        projected, project_backward = linear(ops, params["decoder"]["memory"], zeroed)

        def backward(dcolumns):
            return project_backward(kept(keep_mask, fitted(dcolumns, keep_mask.shape[1])))

        return fitted(kept(keep_mask, projected), T), backward

    def _stack(self, ops, params, x, keep_mask, keys, train, causal):
        stack = Stack(train)
        for i, dropout_key in enumerate(keys):
            block, options = params[str(i)], {"dilation": self.dilation(i), "causal": causal}
            convolve = partial(masked_conv1d, ops, block["conv"], keep_mask=keep_mask, **options)
            rates = {"dropout_rate": self._rate(dropout_key), "dropout_key": dropout_key}
            x, block_backward = residual_conv_block(ops, block, x, convolve, **rates)
            stack.keep(block_backward)
        y, norm_backward = layer_norm(ops, params["norm"], x)

        def backward(dy):
            dx, norm_grads = norm_backward(dy)
            grads = {"norm": norm_grads}
            for i, block_backward in stack.backwards():
                dx, grads[str(i)] = block_backward(dx)
            return dx, grads

        return y, backward


def fitted(x, length):
    """x (B, T, …) cut, or padded with zeros, to another length. The function is its own backward pass.

    >>> fitted(np.array([[1, 2, 3]]), 2), fitted(np.array([[1, 2, 3]]), 5)
    (array([[1, 2]]), array([[1, 2, 3, 0, 0]]))
    """
    missing = max(0, length - x.shape[1])
    return np.pad(x[:, :length], ((0, 0), (0, missing), *((0, 0) for _ in x.shape[2:])))
