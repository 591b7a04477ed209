"""The encoder-decoder Transformer (Vaswani et al. 2017, "Attention is all you need")."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from npformer import layers
from npformer.backends import get_backend
from npformer.models.incremental import IncrementalDecoder
from npformer.models.initialization import Initializer
from npformer.reference import padding_mask, sinusoidal_encoding, split_key
from npformer.reference.checks import check_fraction, check_ids, check_int, check_shape
from npformer.reference.fused import check_activation
from npformer.reference.packed_attention import split_parts


@dataclass(frozen=True)
class Transformer:
    """An encoder-decoder Transformer: the architecture only; parameters are a separate nested dict.

    Parameters
    ----------
    src_vocab, tgt_vocab : int
        Vocabulary sizes V.
    d_model, n_heads, d_ff : int
        Width D, heads H (D must be divisible by H), feed-forward width F.
    n_layers : int or (int, int)
        Layers N of both stacks, or of (encoder, decoder).
    dropout : float
        On embeddings and every sublayer's output (section 5.4), active when a key is given.
    norm : "pre" or "post"
        Layer normalisation before each sublayer, with one more after each stack, or after each sum as in the paper.
    activation : "relu", "gelu" or "silu"
    tie_embeddings : bool
        One table for source, target and output projection (section 3.4); both vocabularies must be the same size.
    pad_id : int
        The id that fills up short sequences: never attended to, never counted in the loss, embedded as zeros.
    max_len : int
        Longest sequence accepted.
    dtype : "float32" or "float64"
        Of the parameters.
    inner_dropout : float, optional
        On attention weights and hidden layers; the same as ``dropout`` if not given. The paper has none.

    Examples
    --------
    >>> import numpy as np
    >>> model = Transformer(src_vocab=11, tgt_vocab=11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    >>> params = model.init(seed=0)
    >>> src, tgt = np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]])
    >>> model.logits(params, src, tgt[:, :-1]).shape
    (1, 4, 11)
    >>> loss, grads, n_tokens = model.loss_and_grad(params, src, tgt[:, :-1], tgt[:, 1:], key=1)
    >>> grads["encoder"]["0"]["attention"]["qkv"]["weight"].shape, n_tokens
    ((16, 48), 4)
    """

    src_vocab: int
    tgt_vocab: int
    d_model: int = 512
    n_heads: int = 8
    n_layers: int | tuple[int, int] = 6
    d_ff: int = 2048
    dropout: float = 0.1
    norm: str = "pre"
    activation: str = "relu"
    tie_embeddings: bool = False
    pad_id: int = 0
    max_len: int = 5000
    dtype: str = "float32"
    inner_dropout: float | None = None

    def __post_init__(self):
        for name in ("src_vocab", "tgt_vocab", "d_model", "n_heads", "d_ff", "max_len"):
            check_int(name, getattr(self, name), at_least=1)
        for n in self.depths:
            check_int("n_layers", n, at_least=0)
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model={self.d_model} is not divisible by n_heads={self.n_heads}")
        if self.norm not in ("pre", "post"):
            raise ValueError(f"norm={self.norm!r}, expected 'pre' or 'post'")
        check_fraction(dropout=self.dropout)
        if self.inner_dropout is not None:
            check_fraction(inner_dropout=self.inner_dropout)
        check_activation(self.activation)
        if self.tie_embeddings and self.src_vocab != self.tgt_vocab:
            raise ValueError(
                f"tie_embeddings=True with src_vocab={self.src_vocab}, tgt_vocab={self.tgt_vocab}: "
                "expected equal sizes, from one joint vocabulary"
            )
        check_int("pad_id", self.pad_id, at_least=0)
        if self.pad_id >= min(self.src_vocab, self.tgt_vocab):
            raise ValueError(f"pad_id={self.pad_id}, expected an id of both vocabularies")
        dtype = getattr(self.dtype, "__name__", str(self.dtype))
        if dtype not in ("float32", "float64"):
            raise ValueError(f"dtype={self.dtype!r}, expected 'float32' or 'float64'")
        object.__setattr__(self, "dtype", dtype)

    @property
    def depths(self):
        """Layers of (encoder, decoder)."""
        if isinstance(self.n_layers, (tuple, list)):
            if len(self.n_layers) != 2:
                raise ValueError(f"n_layers={self.n_layers}, expected an int or (encoder, decoder)")
            return tuple(self.n_layers)
        return self.n_layers, self.n_layers

    def init(self, seed: int = 0) -> dict:
        """New parameters, the same for the same seed.

        Returns
        -------
        nested dict of arrays
            {"source_embedding", "target_embedding", "encoder", "decoder", "output"}, or one "embedding" if tied.
        """
        check_int("seed", seed, at_least=0)
        new = Initializer(seed, self.dtype)
        D, F = self.d_model, self.d_ff
        n_encoder, n_decoder = self.depths
        params: dict = {}
        if self.tie_embeddings:
            params["embedding"] = new.embedding(self.src_vocab, D)
        else:
            params["source_embedding"] = new.embedding(self.src_vocab, D)
            params["target_embedding"] = new.embedding(self.tgt_vocab, D)
        params["encoder"] = {str(i): new.encoder_layer(D, F) for i in range(n_encoder)}
        params["decoder"] = {str(i): new.decoder_layer(D, F) for i in range(n_decoder)}
        if self.norm == "pre":
            params["encoder"]["norm"] = new.layer_norm(D)
            params["decoder"]["norm"] = new.layer_norm(D)
        if self.tie_embeddings:
            params["output"] = {"bias": np.zeros(self.tgt_vocab, self.dtype)}
        else:
            params["output"] = new.linear(D, self.tgt_vocab)
        return params

    def encode(self, params, src, *, backend="auto"):
        """The encoder's output, without dropout.

        Parameters
        ----------
        params : nested dict
        src : (B, S) int

        Returns
        -------
        memory : (B, S, D)
        """
        memory, _ = self._encode(get_backend(backend, params), params, src)
        return memory

    def decode(self, params, memory, src, tgt_in, *, backend="auto"):
        """Logits of each next token, given the encoder's output, without dropout.

        Parameters
        ----------
        params : nested dict
        memory : (B, S, D)
            ``encode(params, src)``.
        src : (B, S) int
            Read only to know what is padding.
        tgt_in : (B, T) int
            The target up to each position, beginning with the begin token.

        Returns
        -------
        logits : (B, T, V)
        """
        ops = get_backend(backend, params)
        y, _ = self._decode(ops, params, memory, src, tgt_in)
        return ops.linear(y, self.tables(params)[2], params["output"]["bias"])

    def decoder(self, params, src, *, max_rows, max_len, backend="auto"):
        """A decoder that takes a token at a time and keeps what it has computed: see ``IncrementalDecoder``.

        Parameters
        ----------
        params : nested dict
        src : (B, S) int
        max_rows : int
            Most rows of a step, B times the hypotheses of each source.
        max_len : int
            Most steps.

        Examples
        --------
        >>> model = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
        >>> params, src = model.init(0), np.array([[3, 4, 5]])
        >>> decoder = model.decoder(params, src, max_rows=1, max_len=9)
        >>> for token in (1, 3, 4):
        ...     logits = decoder.step(np.array([token]), parents=np.array([0]))
        >>> bool(np.allclose(logits, model.logits(params, src, np.array([[1, 3, 4]]))[:, -1], atol=1e-5))
        True
        """
        return IncrementalDecoder(self, get_backend(backend, params), params, src, max_rows, max_len)

    def logits(self, params, src, tgt_in, *, backend="auto"):
        """``decode`` after ``encode``: (B, S) and (B, T) ids -> (B, T, V) logits."""
        return self.decode(params, self.encode(params, src, backend=backend), src, tgt_in, backend=backend)

    def attention_weights(self, params, src, tgt_in, *, backend="auto"):
        """Who attends to what, layer by layer.

        Returns
        -------
        dict of lists, an entry a layer
            "encoder" (B, H, S, S), "decoder" (B, H, T, T), and "memory" (B, H, T, S), the cross-attention.
        """
        ops = _Watched(get_backend(backend, params))
        memory, _ = self._encode(ops, params, src)
        self._decode(ops, params, memory, src, tgt_in)
        n_encoder, n_decoder = self.depths
        decoder = ops.weights[n_encoder:]  # self-attention and attention to the memory in turn
        return {"encoder": ops.weights[:n_encoder], "decoder": decoder[0::2], "memory": decoder[1::2]}

    def loss(self, params, src, tgt_in, tgt_out, *, key=None, label_smoothing=0.0, backend="auto"):
        """What ``loss_and_grad`` returns, without the gradient: (loss, n_tokens)."""
        loss, n_tokens, _ = self._loss(get_backend(backend, params), params, src, tgt_in, tgt_out, key, label_smoothing)
        return loss, n_tokens

    def loss_and_grad(
        self, params, src, tgt_in, tgt_out, *, key=None, label_smoothing=0.0, n_tokens=None, backend="auto"
    ):
        """The mean cross-entropy per token, its gradient, and the number of tokens.

        Parameters
        ----------
        params : nested dict
        src : (B, S) int
        tgt_in, tgt_out : (B, T) int
            The target without its last, and without its first token.
        key : int, optional
            Where dropout draws from; None means no dropout.
        label_smoothing : float
        n_tokens : int, optional
            Divide by this many instead of the batch's own, where the batch is a part of a larger one.

        Returns
        -------
        loss : scalar
        grads : nested dict
            With the keys and shapes of ``params``.
        n_tokens : int
            Targets that are not padding.
        """
        ops = get_backend(backend, params)
        batch = src, tgt_in, tgt_out
        loss, counted, backward = self._loss(ops, params, *batch, key, label_smoothing, n_tokens, train=True)
        return loss, backward(), counted

    def _loss(self, ops, params, src, tgt_in, tgt_out, key, label_smoothing, n_tokens=None, train=False):
        encoder_key, decoder_key = split_key(key, 2)
        memory, encode_backward = self._encode(ops, params, src, encoder_key, train)
        y, decode_backward = self._decode(ops, params, memory, src, tgt_in, decoder_key, train)
        self._check_tokens("tgt_out", tgt_out, self.tgt_vocab)
        if tgt_in.shape != tgt_out.shape:
            raise ValueError(f"tgt_in {tgt_in.shape}, tgt_out {tgt_out.shape}: expected equal shapes (B, T)")
        weight, bias = self.tables(params)[2], params["output"]["bias"]
        options = {"ignore_id": self.pad_id, "label_smoothing": label_smoothing, "n_tokens": n_tokens}
        loss, dlogits = ops.linear_cross_entropy(y, weight, bias, tgt_out, **options)

        def backward():
            dy, dweight, dbias = ops.linear_backward(dlogits, y, weight, bias)
            dmemory, decoder_grads, target_table_grad = decode_backward(dy)
            encoder_grads, source_table_grad = encode_backward(dmemory)
            grads = {"encoder": encoder_grads, "decoder": decoder_grads}
            if self.tie_embeddings:  # one table, used three times
                grads["embedding"] = source_table_grad + target_table_grad + dweight.T
                grads["output"] = {"bias": dbias}
            else:
                grads["source_embedding"], grads["target_embedding"] = source_table_grad, target_table_grad
                grads["output"] = {"weight": dweight, "bias": dbias}
            return _in_order(grads, params)

        return loss, int((tgt_out != self.pad_id).sum()), backward

    def _encode(self, ops, params, src, key=None, train=False):
        self._check_tokens("src", src, self.src_vocab)
        embedding_key, *layer_keys = split_key(key, 1 + self.depths[0])
        table = self.tables(params)[0]
        options = self._layer_options(key)
        keep_mask = padding_mask(src, self.pad_id)

        x, embed_backward = self._embed(ops, table, src, embedding_key)
        backwards = []
        for i, layer_key in enumerate(layer_keys):
            x, layer_backward = layers.encoder_layer(
                ops, params["encoder"][str(i)], x, keep_mask, key=layer_key, **options
            )
            if train:  # a backward holds its layer's activations
                backwards.append(layer_backward)
        x, norm_backward = self._final_norm(ops, params["encoder"], x)

        def backward(dx):
            dx, grads = norm_backward(dx)
            for i in reversed(range(len(layer_keys))):
                dx, grads[str(i)] = backwards.pop()(dx)  # popped, so that its memory is free
            return _in_order(grads, params["encoder"]), embed_backward(dx)

        return x, backward

    def _decode(self, ops, params, memory, src, tgt_in, key=None, train=False):
        self._check_tokens("tgt_in", tgt_in, self.tgt_vocab)
        if tgt_in.shape[0] != src.shape[0]:
            raise ValueError(f"src has {src.shape[0]} rows, the target {tgt_in.shape[0]}: expected the same number")
        check_shape(memory=(memory, (*src.shape, self.d_model)))
        embedding_key, *layer_keys = split_key(key, 1 + self.depths[1])
        table = self.tables(params)[1]
        options = self._layer_options(key)
        masks = padding_mask(tgt_in, self.pad_id), padding_mask(src, self.pad_id)

        x, embed_backward = self._embed(ops, table, tgt_in, embedding_key)
        backwards = []
        for i, layer_key in enumerate(layer_keys):
            x, layer_backward = layers.decoder_layer(
                ops, params["decoder"][str(i)], x, memory, *masks, key=layer_key, **options
            )
            if train:
                backwards.append(layer_backward)
        x, norm_backward = self._final_norm(ops, params["decoder"], x)

        def backward(dx):
            dmemory = np.zeros_like(memory)
            dx, grads = norm_backward(dx)
            for i in reversed(range(len(layer_keys))):
                dx, dmemory_of_layer, grads[str(i)] = backwards.pop()(dx)
                dmemory += dmemory_of_layer
            return dmemory, _in_order(grads, params["decoder"]), embed_backward(dx)

        return x, backward

    def tables(self, params):
        """The (V, D) tables of source and target, and the (D, V) weight of the output; one array if they are tied."""
        if not isinstance(params, dict):
            raise TypeError(f"params is a {type(params).__name__}, expected a nested dict such as model.init(seed)")
        if ("embedding" in params) != self.tie_embeddings:
            raise ValueError(f"params has {list(params)}, the model has tie_embeddings={self.tie_embeddings}")
        if self.tie_embeddings:
            tables = params["embedding"], params["embedding"], params["embedding"].T
        else:
            tables = params["source_embedding"], params["target_embedding"], params["output"]["weight"]
        layers_in = [len(params[stack].keys() - {"norm"}) for stack in ("encoder", "decoder")]
        given = [*(table.shape for table in tables), *layers_in]
        D = self.d_model
        expected = [(self.src_vocab, D), (self.tgt_vocab, D), (D, self.tgt_vocab), *self.depths]
        if given != expected:
            raise ValueError(f"params are those of another model: tables and layers {given}, expected {expected}")
        return tables

    def _embed(self, ops, table, ids, key):
        positions = self.positions[: ids.shape[1]]
        rate = self._rate(key)
        x = ops.embed_tokens(ids, table, positions, self.pad_id, rate, key)

        def backward(dx):
            return ops.embed_tokens_backward(dx, ids, table.shape, self.pad_id, rate, key)

        return x, backward

    def _final_norm(self, ops, params, x):
        """After a pre-norm stack, whose sums are never normalised otherwise."""
        if self.norm == "post":
            return x, lambda dx: (dx, {})
        y, norm_backward = layers.layer_norm(ops, params["norm"], x)

        def backward(dy):
            dx, grads = norm_backward(dy)
            return dx, {"norm": grads}

        return y, backward

    def _layer_options(self, key):
        return {
            "n_heads": self.n_heads,
            "norm": self.norm,
            "activation": self.activation,
            "dropout_rate": self._rate(key),
            "inner_dropout_rate": None if key is None else self.inner_dropout,
        }

    def _rate(self, key):
        return 0.0 if key is None else self.dropout

    @cached_property
    def positions(self):
        """The encoding added at each position: (max_len, D)."""
        return sinusoidal_encoding(self.max_len, self.d_model).astype(self.dtype)

    def _check_tokens(self, name, ids, vocab):
        check_ids(ids, vocab, name)
        if ids.ndim != 2:
            raise ValueError(f"{name} has shape {ids.shape}, expected (B, length)")
        if ids.shape[1] > self.max_len:
            raise ValueError(f"{name} has length {ids.shape[1]}, expected at most max_len={self.max_len}")


class _Watched:
    """A backend that notes the weights of every attention it computes."""

    def __init__(self, ops):
        self.ops = ops
        self.weights = []

    def __getattr__(self, name):
        return getattr(self.ops, name)

    def self_attention(self, qkv, n_heads, keep_mask=None, *, causal=False, **options):
        q, k, v = split_parts(qkv, n_heads, 3, "qkv")
        self.weights.append(self.ops.attention(q, k, v, keep_mask, causal=causal)[1])
        return self.ops.self_attention(qkv, n_heads, keep_mask, causal=causal, **options)

    def cross_attention(self, q, kv, n_heads, keep_mask=None, *, causal=False, **options):
        (queries,), (k, v) = split_parts(q, n_heads, 1, "q"), split_parts(kv, n_heads, 2, "kv")
        self.weights.append(self.ops.attention(queries, k, v, keep_mask, causal=causal)[1])
        return self.ops.cross_attention(q, kv, n_heads, keep_mask, causal=causal, **options)


def _in_order(grads, params):
    return {name: grads[name] for name in params}
