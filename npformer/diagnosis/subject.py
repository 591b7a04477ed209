"""What is examined: a model with a copy of its parameters, and a few rows of a batch."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from npformer import reference, tree
from npformer.arrays import beside, on_host
from npformer.diagnosis.interface import Interface, interface_of, is_word
from npformer.errors import UserError
from npformer.models.batch import count_of
from npformer.models.loss_and_grad import checked_results, taken_by_loss
from npformer.models.low_rank import LowRank
from npformer.runtime.forks import cached_property

TOKENS_EXAMINED = 64  # of all rows that are examined, about
LONGEST_ROW = 32  # tokens of a row that is examined
MOVE = 0.2  # by which parameters are moved, relative to their size: a ReLU has no derivative at 0
LEAST_MOVE = 0.02  # where they are zeros


class WithoutOutputs(UserError):
    """The model cannot be asked for its outputs; why is in ``Subject.interface.missing``."""


class Rows(NamedTuple):
    """Rows of a batch: what a model is given, and what it has to answer."""

    inputs: list
    targets: np.ndarray
    interface: Interface
    pad_id: int | None

    def seen(self, which=0):
        """True where an input is not padding, and no mask (B, T) among the inputs is False."""
        ids = self.inputs[which]
        masks = [x for x in self.inputs if x.dtype == bool and x.shape == ids.shape[:2]]
        return np.logical_and.reduce([is_word(ids, self.pad_id), *masks])

    @property
    def counted(self):
        """True where a target is in the loss."""
        counted = (self.targets != -1) | (self.targets.dtype.kind == "f")
        if not self.interface.by_position:
            return counted
        if self.interface.causal is None:
            has_output = self.seen()
        else:
            has_output = is_word(self.targets, self.pad_id)
        return counted & (has_output if self.targets.ndim == 2 else has_output[..., None])


class Computed(NamedTuple):
    """What ``loss_and_grad`` computes: the loss, its gradient by path, the number of targets, and
    the paths without a gradient, in whose places are zeros.
    """

    loss: float
    grads: dict[str, np.ndarray]
    n_targets: int
    missing: set[str]


class Decoding(NamedTuple):
    """What the user decodes with, as far as it is known."""

    bos_id: int | None
    eos_id: int | None
    max_len: int | None


@dataclass
class Subject:
    """A model, a copy of its parameters, a batch, and what they compute.

    Each property is computed once, when the first check asks for it: a check whose property cannot
    be computed is one that is not made, and the others are.
    """

    model: Any
    original_params: dict
    params: dict  # a copy, as a model may write into it
    batch: tuple
    ops: Any
    trainer: Any
    n_steps: int | None
    decoding: Decoding

    # -- what the model is like

    @property
    def architecture(self):
        """The model itself, or that to which adapters belong."""
        return self.model.model if isinstance(self.model, LowRank) else self.model

    @cached_property
    def interface(self):
        """How the model is asked for its outputs."""
        kind = type(self.model).__name__
        name = "logits" if hasattr(self.architecture, "logits") else "outputs"
        if not hasattr(self.architecture, name):
            return Interface(missing=f"a {kind} has no logits(params, …) or outputs(params, …)")
        try:
            return interface_of(self.architecture, self.full_params, self.batch, self.ops)
        except Exception as error:
            return Interface(missing=f"{name} of {kind} does not run: {with_type(error)}")

    @cached_property
    def pad_id(self):
        """The id of padding, which a model may know without having it as an attribute."""
        if hasattr(self.architecture, "pad_id"):
            return self.architecture.pad_id
        _, targets = self.interface.split(self.batch)
        n_counted = self.model.count(*self.batch)
        return 0 if n_counted == (targets != 0).sum() < targets.size else None

    @cached_property
    def full_params(self):
        """The parameters of the architecture: these, or those that the adapters change."""
        if not self.has_adapters:
            return self.params
        return self.model.merged(self.params, backend=self.ops)

    @cached_property
    def params_by_path(self):
        """The arrays of the parameters as NumPy arrays."""
        return arrays_by_path(self.params)

    @cached_property
    def new_params(self):
        """The arrays of a new model, by path."""
        return arrays_by_path(self.model.init(0))

    @cached_property
    def movement(self):
        """How far each bias and gain is from 0 or 1, with which they begin, a root mean square."""
        vectors = [on_host(x) for _, x in tree.leaves(self.full_params) if x.ndim == 1]
        return np.array([rms(np.minimum(abs(x), abs(x - 1))) for x in vectors])

    @property
    def is_new(self):
        """Whether most biases and gains are as they begin, and no adapter is trained."""
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

    # -- the whole batch, and a few rows of it

    def rows_of(self, batch):
        """The inputs and targets of a batch."""
        return Rows(*self.interface.split(batch), self.interface, self.pad_id)

    @cached_property
    def all_rows(self):
        """The inputs and targets of the whole batch."""
        return self.rows_of(self.batch)

    @cached_property
    def sample(self):
        """A few rows of the batch, long ones and short ones."""
        causal = self.interface.causal
        ids = self.batch[causal or 0]
        end = None if causal is None else LONGEST_ROW + 1
        lengths = is_word(ids, self.pad_id).reshape(len(ids), -1).sum(axis=1)
        n = TOKENS_EXAMINED // max(1, min(LONGEST_ROW, lengths.max()))
        n = min(int(np.clip(n, 2, 8)), len(ids))
        by_length = np.argsort(-lengths, kind="stable")
        chosen = by_length[np.linspace(0, len(ids) - 1, n).astype(int)]

        def part(x):
            if x.shape[:1] != ids.shape[:1]:
                return x  # it is not a number for each row
            return np.ascontiguousarray(x[chosen, :end] if x.ndim > 1 else x[chosen])

        return tuple(map(part, self.batch))

    @cached_property
    def rows(self):
        """The inputs and targets of the few rows, on which all experiments are made."""
        return self.rows_of(self.sample)

    @property
    def inputs(self):
        """The inputs of the few rows."""
        return self.rows.inputs

    # -- what the model computes

    def check_outputs(self):
        """Check that the model can be asked for outputs."""
        if self.interface.compute is None:
            raise WithoutOutputs(self.interface.missing)

    def outputs(self, inputs, params=None):
        """The logits, or numbers, for some inputs, without dropout."""
        self.check_outputs()
        return on_host(self.interface.compute(params or self.full_params, *inputs)).astype(float)

    @cached_property
    def outputs_of_rows(self):
        """The outputs for the few rows."""
        return self.outputs(self.inputs)

    @cached_property
    def computed(self):
        """The loss of the few rows and its gradient."""
        return self.gradient()

    @cached_property
    def grads_beside(self):
        """The gradient by path for parameters in another place near these."""
        rng = np.random.default_rng(7)

        def other(x):
            change = length_of_move(on_host(x)) * rng.standard_normal(x.shape)
            return x + beside(change.astype(x.dtype), x)

        return self.gradient(params=tree.map_leaves(other, self.params)).grads

    def gradient(self, *batch, params=None, **options):
        """What is ``Computed`` of a batch, or the few rows, with zeros for what has no gradient."""
        params = params or self.params
        results = self._loss_and_grad(params, batch or self.sample, options)
        loss, grads, n_targets = checked_results(results)
        arrays = arrays_by_path(grads)
        by_path = {}
        missing = set()
        for path, x in tree.leaves(params):
            if path not in arrays:
                arrays[path] = np.zeros(x.shape, x.dtype)
                missing.add(path)
            by_path[path] = arrays[path]
        return Computed(float(loss), by_path, int(n_targets), missing)

    def loss_of(self, params=None, **options):
        """The loss alone, for which a model that has the option computes no gradient."""
        if "with_grad" in taken_by_loss(self.model).names:
            options["with_grad"] = False  # a third of the time
        return float(self._loss_and_grad(params or self.params, self.sample, options)[0])

    def _loss_and_grad(self, params, batch, options):
        options = {"dropout_key": None, "backend": self.ops} | options
        if taken_by_loss(self.model).needs_n_tokens:
            options.setdefault("n_tokens", count_of(self.model, batch))
        return self.model.loss_and_grad(params, *batch, **options)


def with_type(error):
    """The type of an error, and its message if it has one."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def arrays_by_path(params):
    """The arrays of a tree as NumPy arrays, by path."""
    return {path: on_host(x) for path, x in tree.leaves(params)}


def rms(x):
    """The root of the mean square."""
    return reference.global_norm(x) / x.size**0.5


def length_of_move(x):
    """How far a parameter is moved, so that it is no longer where the loss has no derivative."""
    return max(MOVE * rms(x), LEAST_MOVE)
