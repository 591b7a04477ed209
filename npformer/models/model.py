"""The base class of all models: parameters, embeddings, the prediction of words, and the checks."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from npformer import reference, tree
from npformer.arrays import Array, beside, kept, number_of
from npformer.backends import get_backend
from npformer.checks import check_ids, check_two_axes, name_of_dtype
from npformer.errors import UserError
from npformer.layers.projection import linear_grads
from npformer.models.initialization import Initializer, ShapesOnly
from npformer.operations.options import brief, check_fields, check_option
from npformer.quantized import dequantized, look_up
from npformer.runtime.forks import cached_property


class Model:
    """An architecture; its parameters are a separate nested dict.

    A subclass is a dataclass with ``d_model``, ``dropout``, ``pad_id``, ``max_len`` and ``dtype``.
    It defines ``_new_params(new)``, which draws the parameters from the ``Initializer`` ``new``,
    and what it computes.

    A step-by-step decoder calls ``table_of``, ``embed``, ``keep_mask`` and ``stored_output``.

    A model with two vocabularies has the tables of two ``sides``, "source_embedding" and
    "target_embedding", or one "embedding" if they are tied. A model with one vocabulary has the
    side "".
    """

    d_model: int
    dropout: float
    pad_id: int | None
    max_len: int
    dtype: str
    _vocabularies: list[int]  # their sizes, one for each side
    _new_params: Callable
    loss_and_grad: Callable
    tie_embeddings: bool
    scale_embeddings: bool  # whether the vectors of the tokens are multiplied by √D
    has_learned_positions: bool  # whether what is added to these vectors are parameters
    # How many sets of parameters the layers of a stack have, if several use one.
    share_layers: int | None

    sides: tuple[str, ...] = ("",)
    # The token with which decoding ends a target that reaches its limit, if any.
    forced_eos_id: int | None = None

    def init(self, seed: int = 0) -> dict:
        """Return new parameters, a nested dict; the same seed gives the same parameters."""
        return self._new_params(Initializer(check_option("seed", seed), self.dtype))

    def shapes(self) -> dict:
        """Return arrays like the parameters that take no memory, to compare others with."""
        return self._new_params(ShapesOnly(self.dtype))

    @property
    def n_positions(self):
        """How many positions, of width ``d_model``, the model may compute for one sequence."""
        return self.max_len

    @cached_property
    def _shapes(self):
        return tree.shapes_of(self.shapes())

    def _backend(self, backend, params):
        """``get_backend``, for parameters that are checked to be those of such a model."""
        if tree.shapes_of(params) != self._shapes:
            tree.check_like(params, self.shapes(), dtypes=False)  # raises, and says where
        return get_backend(backend, params)

    def loss(self, params: dict, *batch: Array, **options: Any) -> tuple[Any, Any]:
        """Return what ``loss_and_grad`` does, without the gradient: (loss, number of targets)."""
        loss, _, n_targets = self.loss_and_grad(params, *batch, **options, with_grad=False)
        return loss, n_targets

    # -- tokens to vectors

    @cached_property
    def _tables(self):
        """The name of the table of embeddings of each side."""
        if self.tie_embeddings:
            return dict.fromkeys(self.sides, "embedding")
        return {side: named(side, "embedding") for side in self.sides}

    def _new_tables(self, new):
        """The tables of embeddings and learned positions of all sides."""
        params = {}
        # An encoder of real vectors has a side, and no vocabulary.
        for side, vocab in zip(self.sides, self._vocabularies, strict=False):
            if self._tables[side] not in params:
                params[self._tables[side]] = new.embedding(vocab, self.d_model)
        if self.has_learned_positions:
            for side in self.sides:
                params[named(side, "positions")] = new.positions(self.max_len, self.d_model)
        return params

    def table_of(self, params, side):
        """The embedding table (V, D) of a side."""
        return params[self._tables[side]]

    def positions_of(self, params, side, part):
        """What is added to the embeddings of a side at positions, a slice or an array; or None."""
        return

    def embed(self, ops, params, side, ids, dropout_key=None, at=None):
        """The vectors of the tokens of a side, and the backward pass, which ends at its tables.

        ``at`` are the positions of the columns of ids, if they are not the first ones.
        """
        ops = ops.unchecked  # the model has checked the ids and the key
        name = self._tables[side]
        pad_id = -1 if self.pad_id is None else self.pad_id  # -1: no token has it
        # Of a table with 8 bits the rows of these ids become floats; another one stays as it is.
        ids, table, pad_id = look_up(ids, params[name], pad_id)
        positions = self.positions_of(params, side, slice(ids.shape[1]) if at is None else at)
        rate = self._rate(dropout_key)
        scaled = self.scale_embeddings
        x = ops.embed_tokens(ids, table, positions, pad_id, rate, dropout_key, scaled=scaled)

        def backward(dx, gradients):
            dtable = ops.embed_tokens_backward(
                dx, ids, table.shape, pad_id, rate, dropout_key, scaled=scaled
            )
            gradients.give(name, dtable)
            if self.has_learned_positions and positions is not None:
                # ``embed_tokens_backward`` has undone its dropout for the table alone. A padding's
                # vector is 0, whatever its position: it has no gradient.
                dx = kept((ids != pad_id)[..., None], ops.dropout_backward(dx, rate, dropout_key))
                self._positions_backward(ops, dx, side, gradients)

        return x, backward

    def _positions_backward(self, ops, dx, side, gradients, at=None):
        """Give the gradient of learned positions, from that of vectors to which they were added.

        ``at`` (B, T) are the positions of the vectors, if they are not 0, 1, … in each row.
        """
        if at is None:  # a look-up, too: row t of the table is used in every sentence
            at = np.broadcast_to(np.arange(dx.shape[1], like=dx), dx.shape[:2])
        dpositions = ops.embedding_backward(dx, at, (self.max_len, self.d_model))
        gradients.give(named(side, "positions"), dpositions)

    def _rate(self, dropout_key):
        return 0.0 if dropout_key is None else self.dropout

    def _drop(self, ops, x, dropout_key):
        """Dropout of x, and its backward pass."""
        rate = self._rate(dropout_key)
        y = ops.dropout(x, rate, dropout_key)
        return y, lambda dy: ops.dropout_backward(dy, rate, dropout_key)

    def keep_mask(self, ids):
        """The ``padding_mask`` of ids, or None if no id is padding."""
        return None if self.pad_id is None else reference.padding_mask(ids, self.pad_id)

    # -- vectors to tokens, and back

    def output_map(self, params):
        """The weight (D, V) of the output projection, and its bias, or None.

        The weight is the embedding table, transposed, if they are tied.
        """
        weight, bias = self.stored_output(params)
        return dequantized(weight), bias

    def stored_output(self, params):
        """The ``output_map`` as it is stored: its weight may have integers of 8 bits."""
        output = params.get("output", {})
        # A view: a tied table is not copied, and its gradient comes back transposed.
        weight = params["embedding"].T if self.tie_embeddings else output["weight"]
        return weight, output.get("bias")

    def _new_output(self, new, vocab, has_bias=True):
        """The parameters of the output projection in a dict under "output"; no table is in it."""
        if not self.tie_embeddings:
            return {"output": new.linear(self.d_model, vocab, bias=has_bias)}
        return {"output": {"bias": new.full(vocab, 0)}} if has_bias else {}

    @cached_property
    def _n_uses(self):
        return self._count_uses()

    def _count_uses(self):
        """How often parameters are used, by path: a tied table on each side, and in the output."""
        return {"embedding": len(self.sides) + 1} if self.tie_embeddings else {}

    def _loss(self, ops, params, y, targets, criterion, gradients):
        """The loss of what the output y of the last layer predicts, and its derivative by y.

        A backward pass begins here. Without ``gradients`` there is none, and dy is None.
        """
        weight, bias = self.output_map(params)
        loss, dlogits = criterion.of_output(ops, y, weight, bias, targets)
        if gradients is None:
            return loss, None
        dy, dweight, dbias = ops.linear_backward(dlogits, y, weight, bias)
        grads = linear_grads(dweight, dbias)
        if self.tie_embeddings:
            gradients.give_last("embedding", grads.pop("weight").T)
        if grads:
            gradients.give("output", grads)
        return loss, dy

    # -- checks

    def _check_settings(self):
        """Check the fields of the dataclass; the padding's id has to be in all vocabularies."""
        check_fields(self)
        if self.pad_id is not None and not 0 <= self.pad_id < min(self._vocabularies):
            which = "both vocabularies" if len(self._vocabularies) > 1 else "the vocabulary"
            raise UserError(f"pad_id={self.pad_id}, expected an id of {which}")
        dtype = name_of_dtype(self.dtype)
        if dtype not in ("float32", "float64"):
            raise UserError(f"dtype={self.dtype!r}, expected 'float32' or 'float64'")
        self._set(dtype=dtype)

    def _set(self, **settings):
        """Write fields of the frozen dataclass in another form, while it is made."""
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    def _check_tokens(self, name, ids, vocab, n_more=0):
        """Check ids (B, length), of which ``n_more`` columns are not read."""
        check_ids(ids, vocab, name)
        check_two_axes(name, ids, "expected (B, length)")
        read = f"{name} without its last token" if n_more else name
        self._check_length(read, ids.shape[1] - n_more)

    def _check_length(self, name, length):
        if length > self.max_len:
            limit = f"max_len={self.max_len}"
            raise UserError(f"{name} has length {length}, expected at most {limit}")

    def _beside(self, x, params):
        """An array on the device of the parameters."""
        return beside(x, tree.first_leaf(params))

    # -- batches

    def _counted(self, targets):
        """The number of targets that are not padding."""
        return targets.size if self.pad_id is None else number_of((targets != self.pad_id).sum())

    def __repr__(self):
        return brief(self)

    def __getstate__(self):
        """The settings alone: a copy computes again what a model computes for itself."""
        own = fields(self)  # type: ignore[arg-type]
        return {field.name: getattr(self, field.name) for field in own}


def named(side, name):
    """The name of the parameters of a side: "source_embedding", or "embedding" of the side ""."""
    return f"{side}_{name}" if side else name
