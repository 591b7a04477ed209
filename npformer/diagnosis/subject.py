"""What is examined: a model with a copy of its parameters, and a few rows of a batch."""

import inspect
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from npformer import reference, tree
from npformer.arrays import on_host
from npformer.models.low_rank import LowRank
from npformer.runtime.forks import cached_property

N_TOKENS = 64  # of all rows that are examined, about
LONGEST = 32  # tokens of a row that is examined


class Interface(NamedTuple):
    """How a model is asked for its outputs, and what these say about the model."""

    compute: Callable | None = None  # compute(params, *inputs): logits or numbers; None if there are none
    missing: str = ""  # why there are none
    n_inputs: int = 1  # the arrays of a batch that are inputs and come before the targets
    ids: tuple[int, ...] = ()  # the numbers of the inputs that are ids (B, T)
    by_position: bool = False  # whether there is an output for each position
    is_text: bool = False  # whether the batch has no targets, as these are the last input without its first token
    causal: int | None = None  # the number of the input whose next tokens are predicted
    n_answers: int | None = None  # V, if one of V answers is right

    def split(self, batch):
        """The inputs and the targets of a batch."""
        if self.is_text:
            *others, ids = batch
            return [*others, ids[:, :-1]], ids[:, 1:]
        targets = batch[min(self.n_inputs, len(batch) - 1)]  # of one array, this is both
        return [*batch[: self.n_inputs], *batch[self.n_inputs + 1 :]], targets


def interface_of(model, function, params, batch, ops):
    """The ``Interface`` of a model with a method ``function(params, …)``, tried on the first row of a batch."""
    arguments = inspect.signature(function).parameters.values()
    takes_backend = any(x.name == "backend" or x.kind == x.VAR_KEYWORD for x in arguments)
    n_needed = sum(x.default is x.empty and x.kind == x.POSITIONAL_OR_KEYWORD for x in arguments)

    def compute(params, *inputs):
        return function(params, *inputs, backend=ops) if takes_backend else function(params, *inputs)

    has_logits = hasattr(model, "logits")
    are_ids = [x.dtype.kind in "iu" and x.ndim == 2 for x in batch]
    n_inputs = 1
    if n_needed == 3 and len(batch) > 1 and all(are_ids):  # params, src and tgt_in
        n_inputs = 2
    inputs = [x[:1] for x in (*batch[:n_inputs], *batch[n_inputs + 1 :])]
    is_text = has_logits and len(batch) == n_inputs
    if is_text:
        inputs[-1] = inputs[-1][:, :-1]
    shape = compute(params, *inputs).shape
    by_position = len(shape) > 2
    ids = tuple(i for i in range(n_inputs) if are_ids[i])
    causal = None
    if has_logits and by_position and ids and not has_labels(model, batch, n_inputs):
        causal = n_inputs - 1
    n_answers = None
    if has_logits or getattr(model, "task", None) in ("classes", "words"):
        n_answers = shape[-1]
    return Interface(compute, "", n_inputs, ids, by_position, is_text, causal, n_answers)


def has_labels(model, batch, n_inputs):
    """Whether the targets of a text are no tokens of it, but a label for each."""
    if n_inputs > 1 or len(batch) != 2:
        return False
    shares = shares_by_shift(*batch, getattr(model, "pad_id", None))
    return max(shares.values(), default=1) < 0.5


def shares_by_shift(ids, targets, pad_id):
    """The share of targets t (B, T) that are token t + k of the ids (B, T), by k."""
    T = ids.shape[1]
    if T < 4 or targets.shape != ids.shape:
        return {}
    shares = {}
    for k in (1, 0, 2, -1):
        of_targets = targets[:, max(0, -k) : T - max(0, k)]
        of_ids = ids[:, max(0, k) : T + min(0, k)]
        counted = (of_targets != -1) & is_word(of_targets, pad_id)
        shares[k] = (of_targets == of_ids)[counted].mean()
    return shares


def is_word(ids, pad_id):
    """True where an id is not padding."""
    if pad_id is None or ids.dtype.kind == "f":
        return np.ones(ids.shape[:2], bool)
    return ids != pad_id


class Subject:
    """A model, a copy of its parameters, a batch, and what they compute.

    ``architecture`` is the model itself, or that to which adapters belong.
    """

    def __init__(self, model, params, batch, ops, trainer, decoding, n_steps):
        self.model = model
        self.original_params = params
        self.params = tree.map_leaves(lambda x: x.copy(), params)
        self.batch = tuple(batch)
        self.ops = ops
        self.trainer = trainer
        self.decoding = decoding
        self.n_steps = n_steps
        self.architecture = model.model if isinstance(model, LowRank) else model

    # -- what the model is like

    @cached_property
    def interface(self):
        """How the model is asked for its outputs."""
        kind = type(self.model).__name__
        name = "logits" if hasattr(self.architecture, "logits") else "outputs"
        function = getattr(self.architecture, name, None)
        if function is None:
            return Interface(missing=f"a {kind} has no logits(params, …) or outputs(params, …)")
        try:
            return interface_of(self.architecture, function, self.full_params, self.batch, self.ops)
        except Exception as error:
            return Interface(missing=f"{name} of a {kind} does not run: {error}")

    @cached_property
    def pad_id(self):
        """The id of padding, which a model may know without having it as an attribute."""
        if hasattr(self.architecture, "pad_id"):
            return self.architecture.pad_id
        targets = self.split(self.batch)[1]
        n_counted = self.model.count(*self.batch)
        return 0 if n_counted == (targets != 0).sum() < targets.size else None

    @cached_property
    def full_params(self):
        """The parameters of the architecture: those that are examined, or those that the adapters change."""
        if not self.has_adapters:
            return self.params
        return self.model.merged(self.params, backend=self.ops)

    @cached_property
    def params_by_path(self):
        """The arrays of the parameters as NumPy arrays."""
        return {path: on_host(x) for path, x in tree.leaves(self.params)}

    @cached_property
    def new_params(self):
        """The arrays of a new model, by path."""
        return {path: on_host(x) for path, x in tree.leaves(self.model.init(0))}

    @cached_property
    def movement(self):
        """How far each bias and gain is from 0 or 1, with which they begin: a root mean square for each vector."""
        vectors = [on_host(x) for _, x in tree.leaves(self.full_params) if x.ndim == 1]
        return np.array([size(np.minimum(abs(x), abs(x - 1))) for x in vectors])

    @property
    def is_new(self):
        """Whether biases and gains are as they begin, but for a tenth of them, and no adapter is trained."""
        if self.has_adapters and not self.has_new_adapters:
            return False
        return len(self.movement) > 0 and (self.movement == 0).mean() > 0.9

    @property
    def has_adapters(self):
        """Whether the parameters are adapters of a model."""
        return self.architecture is not self.model

    @property
    def has_new_adapters(self):
        """Whether an adapter still has the zeros with which it begins."""
        return self.has_adapters and not all(x.any() for x in self.params_by_path.values())

    # -- a batch

    def split(self, batch):
        """The inputs and the targets of a batch."""
        return self.interface.split(batch)

    def is_word(self, ids):
        """True where an id is not padding."""
        return is_word(ids, self.pad_id)

    def is_seen(self, inputs, which=0):
        """True where an input is not padding, and no mask (B, T) among the inputs is False."""
        masks = [x for x in inputs if x.dtype == bool and x.shape == inputs[which].shape[:2]]
        return np.logical_and.reduce([self.is_word(inputs[which]), *masks])

    def is_counted(self, inputs, targets):
        """True where a target is in the loss."""
        counted = (targets != -1) | (targets.dtype.kind == "f")
        if not self.interface.by_position:
            return counted
        has_output = self.is_word(targets) if self.interface.causal is not None else self.is_seen(inputs)
        return counted & (has_output if targets.ndim == 2 else has_output[..., None])

    @cached_property
    def rows(self):
        """The rows that are examined, long ones and short ones."""
        causal = self.interface.causal
        ids = self.batch[causal or 0]
        end = None if causal is None else LONGEST + 1
        lengths = self.is_word(ids).reshape(len(ids), -1).sum(axis=1)
        n = N_TOKENS // max(1, min(LONGEST, lengths.max()))
        n = min(int(np.clip(n, 2, 8)), len(ids))
        chosen = np.argsort(-lengths, kind="stable")[np.linspace(0, len(ids) - 1, n).astype(int)]

        def rows_of(x):
            if x.shape[:1] != ids.shape[:1]:
                return x
            return np.ascontiguousarray(x[chosen, :end] if x.ndim > 1 else x[chosen])

        return tuple(map(rows_of, self.batch))

    @cached_property
    def inputs(self):
        """The inputs of the rows."""
        return self.split(self.rows)[0]

    @cached_property
    def targets(self):
        """The targets of the rows."""
        return self.split(self.rows)[1]

    def longest_row(self, which):
        """The row with most words in an input, as a batch of inputs, and where its words are."""
        words = self.is_seen(self.inputs, which)
        row = int(words.sum(axis=1).argmax())
        return [x[row : row + 1] for x in self.inputs], np.flatnonzero(words[row])

    # -- what the model computes

    def outputs(self, inputs, params=None):
        """The logits, or numbers, for some inputs, without dropout."""
        if self.interface.compute is None:
            raise ValueError(self.interface.missing)
        return on_host(self.interface.compute(params or self.full_params, *inputs)).astype(float)

    def compute(self):
        """Compute the loss of the rows, its gradient by path, and the number of targets, which the checks read."""
        self.loss, self.grads, self.n_targets = self.gradient()

    def gradient(self, *batch, params=None, **options):
        """The loss, the gradient by path as NumPy arrays, where 0 is what is left out, and the number of targets."""
        params = params or self.params
        loss, grads, n_targets = self._computed(params, batch or self.rows, options)
        arrays = dict(tree.leaves(grads))
        by_path = {}
        for path, x in tree.leaves(params):
            by_path[path] = on_host(arrays[path]) if path in arrays else np.zeros(x.shape, x.dtype)
        return float(loss), by_path, int(n_targets)

    def loss_of(self, params=None, **options):
        """The loss alone, for which a model that has the option computes no gradient."""
        if "with_grad" in inspect.signature(self.model.loss_and_grad).parameters:
            options["with_grad"] = False  # a third of the time
        return float(self._computed(params or self.params, self.rows, options)[0])

    def _computed(self, params, batch, options):
        options = {"dropout_key": None, "n_tokens": None, "backend": self.ops} | options
        return self.model.loss_and_grad(params, *batch, **options)


def size(x):
    """The root of the mean square."""
    return reference.global_norm(x) / x.size**0.5
