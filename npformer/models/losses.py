"""The losses of models, each with its options: what the output layer predicts, and its targets."""

from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import Array


class CrossEntropy(NamedTuple):
    """The mean cross-entropy of words or classes: the options of ``cross_entropy``."""

    ignore_id: int | None
    label_smoothing: float
    n_tokens: int | None
    loss_scale: Any

    def of_output(self, ops, y, weight, bias, targets):
        """The loss of the logits y W + b, and its derivative by these."""
        return ops.linear_cross_entropy(y, weight, bias, targets, **self._asdict())


class MeanSquare(NamedTuple):
    """The mean square of the differences of numbers: the options of ``mse_loss``."""

    keep_mask: Array | None  # of the numbers that count; None if all do
    n_tokens: int | None
    loss_scale: Any

    def of_output(self, ops, y, weight, bias, targets):
        """The loss of the numbers y W + b, and its derivative by these."""
        return ops.mse_loss(ops.linear(y, weight, bias), targets, **self._asdict())


class RDrop(NamedTuple):
    """The cross-entropy of two passes of each sentence, with different dropout, and how far their
    predictions are apart (R-Drop, Wu et al. 2021).
    """

    cross_entropy: CrossEntropy
    consistency: float

    def of_output(self, ops, y, weight, bias, targets):
        """The loss of the logits y W + b, and its derivative by these.

        The second half of the rows of y are those of the second pass.
        """
        both = y.reshape(2, *targets.shape, y.shape[-1])
        options = self.cross_entropy._asdict()
        loss, dlogits = ops.linear_paired_cross_entropy(
            both, weight, bias, targets, self.consistency, **options
        )
        return loss, dlogits.reshape(*y.shape[:-1], dlogits.shape[-1])


def twice(*batch):
    """The arrays of a batch, each with all its rows once more below them."""
    return [np.concatenate([x, x]) for x in batch]
