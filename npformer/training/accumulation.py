"""Several batches in one step, whose gradients are added up."""

import numpy as np

from npformer.reference import derive_key


def over_batches(loss_and_grad):
    """A ``loss_and_grad`` of several batches, one after another, each with a dropout key derived from that of the step.

    The result is that of one batch with all their rows, whose activations need not be in memory at once. The function
    that is wrapped takes ``adds_up``.
    """

    def by_batches(params, *batches, dropout_key=None, **options):
        loss_of_all, n_of_all = np.float64(0), 0
        for i, batch in enumerate(batches):
            key = derive_key(dropout_key, i)
            loss, grads, n_targets = loss_and_grad(params, *batch, dropout_key=key, adds_up=i > 0, **options)
            loss_of_all = loss_of_all + loss
            n_of_all = n_of_all + n_targets
        return loss_of_all, grads, n_of_all

    return by_batches
