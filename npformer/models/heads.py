"""What follows the layers of an encoder: a head for each task.

A head has the parameters before the output layer, and says what this layer reads, which targets fit
and what the loss is. ``Encoder`` asks its head, and does not ask which task it has.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from npformer.checks import check_array, check_ids, check_shape, named
from npformer.errors import UserError
from npformer.layers.normalisation import normalise
from npformer.layers.position_wise import hidden_layer
from npformer.layers.projection import linear
from npformer.models.losses import CrossEntropy, MeanSquare
from npformer.models.pooling import n_poolings, new_maps, pooled
from npformer.reference.math.activations import INPUTS

IGNORED = -1  # a class or word that is not counted


@dataclass(frozen=True)
class Head:
    """The head of an encoder without a task, and the base class of the others.

    Without a task the encoder ends with its vectors: one for each sequence, or, if the setting
    ``pooling`` is "none", one for each position. There is no output layer that makes something else
    of them, and so there are no targets. A head with an output layer defines

    - ``checked(inputs, targets)`` -> the targets, checked; classes are -1 at the padding of inputs
    - ``n_counted(inputs, targets)`` -> how many of them count
    - ``criterion(inputs, label_smoothing, n_tokens, loss_scale)`` -> one of ``losses``
    """

    settings: Any  # the ``EncoderSettings`` of the model

    has_n_outputs = False  # whether the setting ``n_outputs`` has to be given
    may_tie = False  # whether the output layer may be the table of embeddings

    @property
    def size(self):
        """The width of the output layer; None if there is none."""
        return self.settings.n_outputs

    @property
    def by_position(self):
        """Whether there is an output for each position."""
        return self.settings.pooling == "none"

    def check_settings(self):
        """Check that the settings of the output are those of the task."""
        task = f"task={self.settings.task!r}"
        n_outputs = self.settings.n_outputs
        if (n_outputs is not None) != self.has_n_outputs:
            tasks = named([name for name, head in HEADS.items() if head.has_n_outputs])
            expected = f"a number of outputs with {tasks}, and only with them"
            raise UserError(f"n_outputs={n_outputs} with {task}: expected {expected}")
        if self.settings.tie_embeddings and not self.may_tie:
            raise UserError(f"tie_embeddings=True with {task}, expected task='words'")

    def check_output(self):
        """Raise an error if there is no output layer."""
        if self.size is None:
            tasks = named([name for name in HEADS if name is not None])
            raise UserError(f"task=None, expected {tasks}: without one there is no output")

    def new_params(self, new):
        """The parameters between the layers and the output layer."""
        D = self.settings.d_model
        params = {}
        if self.settings.pooler:
            params["pooler"] = new.linear(D, D)
        width = D * n_poolings(self.settings.pooling)
        if maps := new_maps(new, width, self.settings.after_pooling):
            params["after_pooling"] = maps
        return params

    def before_output(self, ops, params, y, keep_mask):
        """What the output layer reads, from what the layers give (B, T, D).

        The backward pass is (dz, gradients) -> dy.
        """
        vectors, pool_backward = pooled(y, keep_mask, self.settings.pooling)
        if not self.settings.pooler:
            return vectors, lambda dz, gradients: pool_backward(dz)
        inside, pooler_backward = linear(ops, params["pooler"], vectors)
        is_tanh = self.settings.pooler_activation == "tanh"
        z = ops.tanh(inside) if is_tanh else ops.relu(inside)

        def backward(dz, gradients):
            dinside = ops.tanh_backward(dz, z) if is_tanh else ops.relu_backward(dz, inside)
            dvectors, grads = pooler_backward(dinside)
            gradients.give("pooler", grads)
            return pool_backward(dvectors)

        return z, backward

    def shape_of_targets(self, inputs):
        """(B, T) if each position has a target, else (B,)."""
        return inputs.shape if self.by_position else inputs.shape[:1]


class ClassHead(Head):
    """The class of each sequence, or of each position."""

    has_n_outputs = True

    def checked(self, inputs, targets):
        """Classes (B,) or (B, T) from 0 to ``size`` - 1; of positions also -1, as at padding."""
        check_ids(targets, self.size, "targets", ignore_id=self.ignore_id)
        check_shape(targets=(targets, self.shape_of_targets(inputs)))
        if self.by_position and inputs.keep_mask is not None:
            return np.where(inputs.keep_mask, targets, IGNORED)
        return targets

    def n_counted(self, inputs, targets):
        """The number of classes that are not -1."""
        return (targets != IGNORED).sum() if self.by_position else targets.size

    def criterion(self, inputs, label_smoothing, n_tokens, loss_scale):
        """The cross-entropy."""
        return CrossEntropy(self.ignore_id, label_smoothing, n_tokens, loss_scale)

    @property
    def ignore_id(self):
        """The class that is not counted, if there may be one."""
        return IGNORED if self.by_position else None


class WordHead(ClassHead):
    """The word at each position, as in BERT, which learns from words that are hidden."""

    has_n_outputs = False
    may_tie = True
    by_position = True

    @property
    def size(self):
        """The size of the vocabulary."""
        return self.settings.vocab

    def check_settings(self):
        """Check that there is a vocabulary."""
        super().check_settings()
        if self.settings.vocab is None:
            raise UserError("task='words' with vocab=None, expected a vocabulary")

    def new_params(self, new):
        """A layer of its own, as in BERT, and its normalisation."""
        D = self.settings.d_model
        hidden = new.linear(D, INPUTS[self.settings.activation] * D)
        return {"words": {"hidden": hidden, "norm": new.norm(D, self.settings.norm_type)}}

    def before_output(self, ops, params, y, keep_mask):
        """The layer of its own, at each position."""
        params = params["words"]
        hidden, hidden_backward = hidden_layer(ops, params, y, self.settings.activation)
        z, norm_backward = normalise(ops, params["norm"], hidden, self.settings.layer_settings)

        def backward(dz, gradients):
            dhidden, norm_grads = norm_backward(dz)
            dy, grads = hidden_backward(dhidden)
            gradients.give("words", grads | {"norm": norm_grads})
            return dy

        return z, backward


class NumberHead(Head):
    """``n_outputs`` numbers of each sequence, or of each position."""

    has_n_outputs = True

    def checked(self, inputs, targets):
        """Numbers (B, n_outputs) or (B, T, n_outputs)."""
        check_array(targets, "targets", "float")
        check_shape(targets=(targets, (*self.shape_of_targets(inputs), self.size)))
        return targets

    def n_counted(self, inputs, targets):
        """How many numbers there are where there is no padding."""
        counted = self._counted(inputs)
        return targets.size if counted is None else counted.sum() * self.size

    def criterion(self, inputs, label_smoothing, n_tokens, loss_scale):
        """The mean square."""
        if label_smoothing:
            both = f"label_smoothing={label_smoothing} with task='numbers'"
            raise UserError(f"{both}, expected 0: it is of classes")
        return MeanSquare(self._counted(inputs), n_tokens, loss_scale)

    def _counted(self, inputs):
        """The positions (B, T, 1) whose numbers count; None if all do."""
        if self.by_position and inputs.keep_mask is not None:
            return inputs.keep_mask[..., None]
        return None


HEADS = {None: Head, "classes": ClassHead, "numbers": NumberHead, "words": WordHead}
