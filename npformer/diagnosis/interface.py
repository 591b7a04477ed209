"""How a model is asked for its outputs, and what the outputs and a batch say about the model."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np


class Interface(NamedTuple):
    """How a model is asked for its outputs, and what these say about the model."""

    compute: Callable | None = None  # compute(params, *inputs): logits or numbers; None if none
    missing: str = ""  # why there are none
    n_inputs: int = 1  # the arrays of a batch that are inputs and come before the targets
    is_text: bool = False  # whether a batch has no targets: they are the last input, one token on
    ids: tuple[int, ...] = ()  # the numbers of the inputs that are ids (B, T)
    by_position: bool = False  # whether there is an output for each position
    causal: int | None = None  # the number of the input whose next tokens are predicted
    n_answers: int | None = None  # V, if one of V answers is right

    def split(self, batch):
        """The inputs and the targets of a batch."""
        if self.is_text:
            *others, ids = batch
            return [*others, ids[:, :-1]], ids[:, 1:]
        targets = batch[min(self.n_inputs, len(batch) - 1)]  # of one array, this is both
        return [*batch[: self.n_inputs], *batch[self.n_inputs + 1 :]], targets

    def is_by_position_of(self, which):
        """Whether there is an output for each position of this input, and not of another."""
        return self.by_position and which == self.n_inputs - 1


def interface_of(model, params, batch, ops):
    """The ``Interface`` of a model with logits or outputs, tried on the first row of a batch."""
    has_logits = hasattr(model, "logits")
    function = model.logits if has_logits else model.outputs
    parameters = inspect.signature(function).parameters.values()
    takes_backend = any(x.name == "backend" or x.kind == x.VAR_KEYWORD for x in parameters)
    compute = partial(function, backend=ops) if takes_backend else function
    n_needed = sum(x.default is x.empty and x.kind == x.POSITIONAL_OR_KEYWORD for x in parameters)
    are_ids = [x.dtype.kind in "iu" and x.ndim == 2 for x in batch]
    n_inputs = 1
    if n_needed == 3 and len(batch) > 1 and all(are_ids):  # params, src and tgt_in
        n_inputs = 2
    is_text = has_logits and len(batch) == n_inputs
    interface = Interface(compute, n_inputs=n_inputs, is_text=is_text)
    inputs, _ = interface.split(batch)
    outputs = compute(params, *[x[:1] for x in inputs])
    if not hasattr(outputs, "shape"):
        name = "logits" if has_logits else "outputs"
        returned = f"{name} of a {type(model).__name__} returns a {type(outputs).__name__}"
        return Interface(missing=f"{returned}, expected an array")
    shape = outputs.shape
    by_position = len(shape) > 2
    ids = tuple(i for i in range(n_inputs) if are_ids[i])
    predicts_tokens = has_logits and by_position and ids
    causal = None
    if predicts_tokens and not has_labels(model, batch, n_inputs):
        causal = n_inputs - 1
    chooses = has_logits or getattr(model, "task", None) in ("classes", "words")
    n_answers = shape[-1] if chooses else None
    return interface._replace(ids=ids, by_position=by_position, causal=causal, n_answers=n_answers)


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
