"""The base class of all models: parameters, embeddings, the prediction of words, and the checks of what is given."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from npformer import tree
from npformer.arrays import Array, beside, kept, library_of, number_of
from npformer.backends import get_backend
from npformer.checks import advice_on_ids, check_ids
from npformer.models.initialization import Initializer, ShapesOnly
from npformer.operations.options import brief, check_fields, check_option
from npformer.quantized import Quantized, check_trainable, dequantized, floats, lookup
from npformer.reference import padding_mask
from npformer.runtime.forks import cached_property


class Model:
    """An architecture; its parameters are a separate nested dict.

    A subclass is a dataclass with ``d_model``, ``dropout``, ``pad_id``, ``max_len`` and ``dtype``. It defines
    ``_new_params(new)``, which draws the parameters from the ``Initializer`` ``new``, and what it computes.

    A step-by-step decoder calls ``table_of``, ``embed``, ``keep_mask`` and ``stored_output``.

    A model with two vocabularies has the tables of two sides, "source_embedding" and "target_embedding", or one
    "embedding" if they are tied. A model with one vocabulary has the side "".
    """

    d_model: int
    dropout: float
    pad_id: int | None
    max_len: int
    dtype: str
    _new_params: Callable
    loss_and_grad: Callable
    tie_embeddings = False
    forced_eos_id: int | None = None  # the token with which decoding ends a target that reaches its limit, if any
    share_layers: int | None = None  # how many sets of parameters the layers of a stack have, if several use one
    scale_embeddings = True  # whether the vectors of the tokens are multiplied by √D
    has_learned_positions = False  # whether the vectors that are added to the embeddings are parameters
    position_table: Any = None  # these vectors (max_len, D) if they are not learned; a model may need none

    def init(self, seed: int = 0) -> dict:
        """Return new parameters, a nested dict of arrays; the same seed gives the same parameters."""
        return self._new_params(Initializer(check_option("seed", seed), self.dtype))

    def shapes(self) -> dict:
        """Return arrays with the paths and shapes of the parameters that take no memory, to compare others with."""
        return self._new_params(ShapesOnly())

    @property
    def n_positions(self):
        """The largest number of positions, of width ``d_model``, that the model may compute for one sequence."""
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
        """Return the same as ``loss_and_grad``, without the gradient: (loss, number of targets)."""
        loss, _, n_targets = self.loss_and_grad(params, *batch, **options, with_grad=False)
        return loss, n_targets

    # -- tokens to vectors

    def table_of(self, params, side):
        """The embedding table (V, D) of a side."""
        return params["embedding" if self.tie_embeddings else named(side, "embedding")]

    def embed(self, ops, params, side, ids, dropout_key=None, at=None):
        """The vectors of the tokens of a side, and a function that returns the gradients of its tables by name.

        ``at`` are the positions of the columns of ids, if they are not the first ones. The ids were checked.
        """
        ops = ops.unchecked
        table, pad_id = self.table_of(params, side), -1 if self.pad_id is None else self.pad_id
        positions = self.positions_of(params, side, slice(ids.shape[1]) if at is None else at)
        dropout, scaled = (self._rate(dropout_key), dropout_key), self.scale_embeddings
        if isinstance(table, Quantized):
            ids, table, pad_id = lookup(ids, table, pad_id)
        x = ops.embed_tokens(ids, table, positions, pad_id, *dropout, scaled=scaled)

        def backward(dx):
            dtable = ops.embed_tokens_backward(dx, ids, table.shape, pad_id, *dropout, scaled=scaled)
            grads = {named(side, "embedding"): dtable}
            if self.has_learned_positions:  # a look-up, in which token t of each row has the id t
                dx = kept((ids != pad_id)[..., None], ops.dropout_backward(dx, *dropout))
                grads[named(side, "positions")] = self._positions_grad(ops, dx)
            return grads

        return x, backward

    def _positions_grad(self, ops, dx):
        """The gradient of a table of learned positions, from that of vectors to which they were added."""
        at = np.broadcast_to(np.arange(dx.shape[1], like=dx), dx.shape[:2])
        return ops.embedding_backward(dx, at, (self.max_len, self.d_model))

    def _rate(self, dropout_key):
        return 0.0 if dropout_key is None else self.dropout

    def positions_of(self, params, side, part):
        """The vectors that are added to the embeddings of a side, at a slice or an array of positions.

        None if the model adds nothing.
        """
        if self.has_learned_positions:
            return params[named(side, "positions")][part]
        if self.position_table is None:
            return None
        table = floats(tree.first_leaf(params))
        known = self.__dict__.setdefault("_position_tables", {})  # a copy for each library, NumPy and CuPy
        library = library_of(table, "table")
        if library not in known:
            known[library] = beside(self.position_table, table)
        return known[library][part]

    def keep_mask(self, ids):
        """The ``padding_mask`` of ids, or None if no id is padding."""
        return None if self.pad_id is None else padding_mask(ids, self.pad_id)

    # -- vectors to tokens

    def output_map(self, params):
        """The weight (D, V) of the output projection, which is the embedding table if tied, and its bias, or None."""
        weight, bias = self.stored_output(params)
        return dequantized(weight), bias

    def stored_output(self, params):
        """The same as it is stored: the weight may be a ``Quantized``."""
        output = params.get("output", {})
        return params["embedding"].T if self.tie_embeddings else output["weight"], output.get("bias")

    def _new_output(self, new, vocab, has_bias=True):
        """The parameters of the output projection, apart from a table of embeddings, in a dict under "output"."""
        if self.tie_embeddings:
            return {"output": {"bias": new.full(vocab, 0)}} if has_bias else {}
        weight = new.linear(self.d_model, vocab)
        return {"output": weight if has_bias else {"weight": weight["weight"]}}

    def _loss_and_grads(self, ops, params, y, loss_of, backward, with_grad, ready):
        """The loss of the output layer's input y, and all gradients, or None if ``ready`` took them or none is wanted.

        ``loss_of(y, weight, bias)`` -> (loss, dlogits). ``backward(dy, give)`` gives the gradients of the layers to
        ``give``, and returns those of the tables by name.
        """
        output = self.output_map(params)
        loss, dlogits = loss_of(y, *output)
        if not with_grad:
            return loss, None
        check_trainable(self.stored_output(params)[0])
        grads = Gradients(ready, params)
        dy, dweight, dbias = ops.linear_backward(dlogits, y, *output)
        of_output = {"weight": dweight} | ({} if dbias is None else {"bias": dbias})
        dtable = of_output.pop("weight").T if self.tie_embeddings else None
        if of_output:
            grads.give("output", of_output)
        del dlogits, of_output, dweight, dbias  # what follows needs the memory
        of_tables = backward(dy, grads.give)
        if dtable is not None:
            of_tables["embedding"] += dtable
        grads.give("", of_tables)
        return loss, grads.all()

    # -- checks

    def _check_settings(self, *vocabularies):
        """Check the fields of the dataclass; the padding's id has to be in all vocabularies."""
        check_fields(self)
        if self.pad_id is not None and not 0 <= self.pad_id < min(vocabularies, default=1):
            ids = "an id of both vocabularies" if len(vocabularies) > 1 else "an id of the vocabulary"
            raise ValueError(f"pad_id={self.pad_id}, expected {ids}")
        dtype = getattr(self.dtype, "__name__", str(self.dtype))
        if dtype not in ("float32", "float64"):
            raise ValueError(f"dtype={self.dtype!r}, expected 'float32' or 'float64'")
        object.__setattr__(self, "dtype", dtype)

    def _tokens(self, name, ids, vocab, params):
        """Check ids, and move them to the device of the parameters."""
        self._check_tokens(name, ids, vocab)
        return self._beside(ids, params)

    def _beside(self, x, params):
        """An array on the device of the parameters."""
        return beside(x, tree.first_leaf(params))

    def _check_tokens(self, name, ids, vocab):
        check_ids(ids, vocab, name)
        if ids.ndim != 2:
            advice = advice_on_ids(name, ids.shape, ids.shape[:2])
            raise ValueError(f"{name} has shape {ids.shape}, expected (B, length){advice}")
        self._check_length(name, ids)

    def _check_length(self, name, ids):
        if ids.shape[1] > self.max_len:
            raise ValueError(f"{name} has length {ids.shape[1]}, expected at most max_len={self.max_len}")

    def _counted(self, targets):
        """The number of targets that are not padding."""
        return targets.size if self.pad_id is None else number_of((targets != self.pad_id).sum())

    def __repr__(self):
        return brief(self)

    def __getstate__(self):
        """The settings alone, to copy or pickle a model: what it has computed for itself is computed again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Gradients:
    """Where a backward pass gives its gradients, from the last layer to the first: to ``ready``, or to one dict."""

    def __init__(self, ready, params):
        self.collected: list = []
        self.ready, self.params = ready, params
        self.give = ready or (lambda path, grads: self.collected.extend(tree.leaves(grads, path)))

    def all(self):
        """All gradients, like the parameters; None if they were given to ``ready``."""
        return None if self.ready else tree.ordered_like(tree.from_leaves(self.collected), self.params)


def named(side, name):
    """The name of the parameters of a side: "source_embedding", or "embedding" if there are no sides."""
    return f"{side}_{name}" if side else name


def padded(ids, shape, pad_id):
    """Ids (B, length) with rows and columns of padding, so that they have this shape; int64."""
    missing = [(0, wanted - n) for wanted, n in zip(shape, ids.shape, strict=True)]
    return np.pad(ids.astype(np.int64, copy=False), missing, constant_values=pad_id)
