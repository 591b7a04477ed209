"""The encoder-only Transformer: classes, numbers, hidden words or vectors (BERT)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import Array, beside, kept, number_of
from npformer.backends import AnyBackend
from npformer.checks import check_array, check_ids, check_shape, swapped
from npformer.errors import UserError
from npformer.layers.normalisation import normalise
from npformer.layers.projection import linear
from npformer.models.encoder_settings import EncoderSettings
from npformer.models.gradients import Gradients, MaybeGrads
from npformer.models.pooling import mapped, n_poolings, pooled
from npformer.operations.options import names_checked

MaybeArray = Array | None  # in type hints


class Inputs(NamedTuple):
    """What an encoder reads: checked, and on the device of the parameters."""

    values: Array  # ids (B, T), or real vectors (B, T, n_inputs)
    # (B, T): False where an id is the padding's, or where the caller's mask is False.
    keep_mask: MaybeArray
    types: MaybeArray  # (B, T), of each token

    @property
    def shape(self):
        """(B, T)."""
        return self.values.shape[:2]


@names_checked
@dataclass(frozen=True, repr=False)
class Encoder(EncoderSettings):
    """An encoder-only Transformer: the architecture only; parameters are a nested dict.

    It reads token ids, or real vectors such as measurements, and predicts something about each
    sequence or position.

    Parameters
    ----------
    vocab : int or None
        Vocabulary size V of the ids; None if the inputs are real vectors.
    {settings}
    task : "classes", "numbers", "words" or None
        What the output layer predicts: one of ``n_outputs`` classes, ``n_outputs`` numbers, or the
        word at each position, of which some are hidden in the input (masked language model). None:
        there is no output layer.
    n_outputs : int, optional
        Number of classes C, or of numbers.
    pooling : str, or a tuple of str
        How the positions of a sequence become one vector. "mean", "first", "last"; "max": the
        maximum of each entry; "mean_sqrt_length": their sum divided by √T; "weighted_mean": their
        mean with the weights 1, 2, …, T. The vectors of several poolings are put side by side,
        which needs task=None. "none": the output layer predicts something for each position.
        Padding is no position: where it is at the beginning, "first" is the first token, and
        transformers takes the padding.
    pooler : bool
        Whether a linear map and ``pooler_activation`` come between the vector of a sequence and the
        output layer, as in BERT. Without a task its parameters are kept and not used.
    n_inputs : int, optional
        Width of the real vectors; they are mapped to the width D.
    n_types : int
        Number of types of tokens, such as first and second sentence; each has a vector that is
        added. 0: no types.
    embedding_norm : bool
        Whether the embeddings are normalised, as in BERT.
    labels : tuple of str, optional
        The names of the outputs, for those who read them.
    after_pooling : tuple of VectorMap
        What ``sentence_vectors`` does with the vector of a sequence; needs task=None.
    counted_positions : bool
        Whether the position of a token is the number of tokens before it that are no padding, as in
        RoBERTa; else it is its place in the row. Rows with their padding at the end have the same
        in both cases.
    pooler_activation : "tanh" or "relu"
        The function in the pooler: "relu" in DistilBERT.

    Examples
    --------
    >>> sizes = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32}
    >>> model = Encoder(vocab=11, **sizes, task="classes", n_outputs=3)
    >>> params = model.init(seed=0)
    >>> ids, classes = np.array([[3, 4, 5], [6, 7, 0]]), np.array([2, 0])  # 0 is padding
    >>> model.outputs(params, ids).shape, model.vectors(params, ids).shape
    ((2, 3), (2, 16))
    >>> loss, grads, n = model.loss_and_grad(params, ids, classes)
    >>> list(grads), n
    (['embedding', 'layers', 'output'], 2)
    """

    def encode(
        self,
        params: dict,
        inputs: Array,
        keep_mask: MaybeArray = None,
        types: MaybeArray = None,
        *,
        backend: AnyBackend = "auto",
    ) -> Array:
        """Return the output of the last layer, without dropout: (B, T, D).

        Parameters
        ----------
        params : nested dict
        inputs : (B, T) int, or (B, T, n_inputs)
        keep_mask : (B, T) bool, optional
            False = padding, as where an id is ``pad_id``. What is there never matters, not even
            NaN.
        types : (B, T) int, optional
            The type of each token; 0 if not given.
        """
        y, _ = self._read(self._backend(backend, params), params, inputs, keep_mask, types)
        return y

    def vectors(
        self,
        params: dict,
        inputs: Array,
        keep_mask: MaybeArray = None,
        types: MaybeArray = None,
        *,
        backend: AnyBackend = "auto",
    ) -> Array:
        """Return the ``pooling`` of the last layer: one vector a sequence, (B, D), or (B, T, D).

        The arguments are those of ``encode``. The cosine of two vectors compares the sequences.
        """
        y, mask = self._read(self._backend(backend, params), params, inputs, keep_mask, types)
        return pooled(y, mask, self.pooling)[0]

    def sentence_vectors(
        self,
        params: dict,
        inputs: Array,
        keep_mask: MaybeArray = None,
        types: MaybeArray = None,
        *,
        backend: AnyBackend = "auto",
    ) -> Array:
        """Return what ``after_pooling`` makes of ``vectors``, with the same arguments: (B, D')."""
        ops = self._backend(backend, params)
        vectors = self.vectors(params, inputs, keep_mask, types, backend=ops)
        return mapped(ops, params.get("after_pooling", {}), self.after_pooling, vectors)

    def outputs(
        self,
        params: dict,
        inputs: Array,
        keep_mask: MaybeArray = None,
        types: MaybeArray = None,
        *,
        backend: AnyBackend = "auto",
    ) -> Array:
        """Return what the output layer computes, without dropout: logits, or numbers.

        The arguments are those of ``encode``.

        Returns
        -------
        (B, n_outputs), or (B, T, n_outputs) without pooling, or (B, T, V) of words
        """
        self._head.check_output()
        ops = self._backend(backend, params)
        y, mask = self._read(ops, params, inputs, keep_mask, types)
        z, _ = self._head.before_output(ops, params, y, mask)
        return ops.linear(z, *self.output_map(params))

    def loss_and_grad(
        self,
        params: dict,
        inputs: Array,
        targets: Array,
        keep_mask: MaybeArray = None,
        types: MaybeArray = None,
        *,
        dropout_key: int | None = None,
        label_smoothing: float = 0.0,
        n_tokens: int | None = None,
        loss_scale: Any = 1.0,
        backend: AnyBackend = "auto",
        with_grad: bool = True,
        ready: Callable[[str, dict], object] | None = None,
    ) -> tuple[Any, MaybeGrads, Any]:
        """Return the loss (cross-entropy, or mean square), its gradient, and the number of targets.

        Parameters
        ----------
        params : nested dict
        inputs, keep_mask, types
            As for ``encode``.
        targets : (B,) or (B, T) int; of numbers (B, n_outputs) or (B, T, n_outputs)
            Classes, numbers or words, of sequences or of positions. Of positions, padding is not
            counted, nor words and classes of -1.
        dropout_key : int, optional
            Key of the random bits of dropout, another one in each step; None means no dropout.
        label_smoothing, n_tokens, loss_scale, with_grad, ready
            As for ``Transformer.loss_and_grad``, as are the results. Numbers have no label
            smoothing.
        """
        ops = self._backend(backend, params)
        tokens = self._inputs(params, inputs, keep_mask, types)
        targets, n_targets = self._targets(tokens, self._beside(targets, params))
        criterion = self._head.criterion(tokens, label_smoothing, n_tokens, loss_scale)
        gradients = Gradients(params, ready, self._n_uses) if with_grad else None

        y, encode_backward = self._encode(ops, params, tokens, dropout_key, with_grad)
        z, before_backward = self._head.before_output(ops, params, y, tokens.keep_mask)
        loss, dz = self._loss(ops, params, z, targets, criterion, gradients)
        if gradients is None:
            return loss, None, n_targets
        dy = before_backward(dz, gradients)
        encode_backward(dy, gradients)
        return loss, gradients.all(), n_targets

    def count(
        self, inputs: Array, targets: Array, keep_mask: MaybeArray = None, types: MaybeArray = None
    ) -> int:
        """Check a batch, and return its number of counted targets; of numbers, each of them."""
        _, n_targets = self._targets(self._checked(inputs, keep_mask, types), targets)
        return int(n_targets)

    @property
    def vector_width(self):
        """The width D' of what ``sentence_vectors`` returns."""
        widths = [each.width for each in self.after_pooling if each.width is not None]
        return widths[-1] if widths else n_poolings(self.pooling) * self.d_model

    def _new_params(self, new):
        # The order of the calls of ``new`` is that of the random numbers: it has to stay.
        params = {}
        if self.vocab is None:
            params["input"] = new.linear(self.n_inputs, self.d_model)
        params |= self._new_tables(new)
        if self.n_types:
            params["types"] = new.positions(self.n_types, self.d_model)
        if self.embedding_norm:
            params["embedding_norm"] = new.norm(self.d_model, self.norm_type)
        params["layers"] = self._new_stack(new, "layers")
        params |= self._head.new_params(new)
        if self._head.size is not None:
            params |= self._new_output(new, self._head.size)
        return params

    def _read(self, ops, params, inputs, keep_mask, types):
        """The output of the last layer, without dropout, and the mask of what is no padding."""
        tokens = self._inputs(params, inputs, keep_mask, types)
        return self._encode_inputs(ops, params, tokens), tokens.keep_mask

    def _inputs(self, params, inputs, keep_mask=None, types=None):
        tokens = self._checked(inputs, keep_mask, types)
        return Inputs(*(None if x is None else self._beside(x, params) for x in tokens))

    def _embed_inputs(self, ops, params, inputs, dropout_key):
        """dropout(norm(token or input + position + type)), its mask, and the backward pass."""
        if self.vocab is None:
            x, inputs_backward = self._map_inputs(ops, params, inputs)
        else:
            x, inputs_backward = self._embed_tokens(ops, params, inputs.values)
            x = _zeroed(x, inputs.keep_mask)  # what is masked never matters, not even NaN
        if self.n_types:
            types = inputs.types
            if types is None:  # as in BERT, where a lone sentence has type 0
                types = np.zeros(x.shape[:2], np.int64, like=x)
            x = x + ops.embedding(types, params["types"])
        if self.embedding_norm:
            x, norm_backward = normalise(ops, params["embedding_norm"], x, self.layer_settings)
        x, drop_backward = self._drop(ops, x, dropout_key)

        def backward(dx, gradients):
            dx = drop_backward(dx)
            if self.embedding_norm:
                dx, norm_grads = norm_backward(dx)
                gradients.give("embedding_norm", norm_grads)
            if self.n_types:
                gradients.give("types", ops.embedding_backward(dx, types, params["types"].shape))
            inputs_backward(dx, gradients)

        keep_mask = None if inputs.keep_mask is None else inputs.keep_mask[:, None, None]
        return x, keep_mask, backward

    def positions_of(self, params, side, part):
        """What is added to the embeddings at positions that are those of all rows; or None."""
        if self.counted_positions:  # each row has its own: ``_embed_tokens`` adds them
            return None
        return super().positions_of(params, side, part)

    def _embed_tokens(self, ops, params, ids):
        """The vectors of the tokens and of their positions, and the backward pass."""
        x, embed_backward = self.embed(ops, params, "", ids)
        if not self.counted_positions:
            return x, embed_backward
        is_word = ids != self.pad_id
        at = np.maximum(np.cumsum(is_word, axis=1) - 1, 0)  # how many words are before each token
        positions = ops.unchecked.embedding(at, params["positions"])

        def backward(dx, gradients):
            embed_backward(dx, gradients)
            dpositions = kept(is_word[..., None], dx)  # padding has no position
            self._positions_backward(ops.unchecked, dpositions, "", gradients, at)

        return x + kept(is_word[..., None], positions), backward

    def _map_inputs(self, ops, params, inputs):
        """A linear map of real vectors, and the positions; what is not kept may be NaN."""
        vectors = _zeroed(inputs.values.astype(self.dtype, copy=False), inputs.keep_mask)
        x, map_backward = linear(ops, params["input"], vectors)
        positions = self.positions_of(params, "", slice(x.shape[1]))
        if positions is not None:
            x = x + positions

        def backward(dx, gradients):
            _, grads = map_backward(dx)
            gradients.give("input", grads)
            if self.has_learned_positions:
                self._positions_backward(ops, dx, "", gradients)

        return x, backward

    # -- checks

    def _checked(self, inputs, keep_mask, types):
        """The checked ``Inputs``, on the device where they are."""
        if self.vocab is None:
            self._check_vectors(inputs)
        else:
            self._check_tokens("inputs", inputs, self.vocab)
        if keep_mask is not None:
            check_array(keep_mask, "keep_mask", "mask")
            check_shape(keep_mask=(keep_mask, inputs.shape[:2]))
        if types is not None:
            if not self.n_types:
                raise UserError("types are given, expected None of a model with n_types=0")
            check_ids(types, self.n_types, "types")
            check_shape(types=(types, inputs.shape[:2]))
        if self.pad_id is not None:
            is_word = inputs != self.pad_id
            keep_mask = is_word if keep_mask is None else is_word & beside(keep_mask, is_word)
        return Inputs(inputs, keep_mask, types)

    def _check_vectors(self, inputs):
        """Check real vectors (B, T, n_inputs)."""
        check_array(inputs, "inputs", "float")
        if inputs.ndim != 3 or inputs.shape[2] != self.n_inputs:
            advice = swapped("inputs", inputs.shape, lambda shape: shape[2:] == (self.n_inputs,))
            raise UserError(
                f"inputs has shape {inputs.shape}, expected (B, T, {self.n_inputs}){advice}"
            )
        self._check_length("inputs", inputs.shape[1])

    def _targets(self, inputs, targets):
        """The checked targets of ``Inputs``, and how many of them count."""
        self._head.check_output()
        targets = self._head.checked(inputs, targets)
        return targets, number_of(self._head.n_counted(inputs, targets))


def _zeroed(x, keep_mask):
    """Vectors (B, T, …), with zeros at padding."""
    return x if keep_mask is None else kept(keep_mask[..., None], x)
