"""How the gradients of a model arrive: early, one by one, or together when the model is done."""

import inspect
from functools import wraps

from npformer import tree
from npformer.models.batch import checked_results


class GradientIntake:
    """Takes the gradients that a model gives for a batch: each of them once, in its shape.

    Parameters
    ----------
    slots : dict
        The ``Slot`` of each parameter, by its path.
    add : callable
        ``add(path, grad)`` is called with each gradient, which nobody changes from then on.
    """

    def __init__(self, slots, add):
        self.slots, self.add = slots, add
        self.missing = dict.fromkeys(slots)

    def ready(self, path, grads):
        """Take the gradients below a path."""
        for leaf, grad in tree.leaves(grads, path):
            slot = self.slots.get(leaf)
            expected = "nothing" if slot is None else slot.shape
            if getattr(grad, "shape", None) != expected:  # otherwise it would be broadcast
                what = tree.described(grad, dtypes=False)
                raise ValueError(f"the gradient of {leaf}: given {what}, expected {expected}")
            if leaf not in self.missing:
                raise ValueError(f"the gradient of {leaf}: given twice, expected once")
            del self.missing[leaf]
            self.add(leaf, grad)

    def finish(self, results):
        """Take the gradients that were not given to ``ready`` from what ``loss_and_grad`` returned.

        They may be all, or None. Return the loss.
        """
        loss, grads, _ = checked_results(results)
        for leaf, grad in tree.leaves({} if grads is None else grads):
            # What is not in the slots is no gradient of the model: ``ready`` raises.
            if leaf in self.missing or leaf not in self.slots:
                self.ready(leaf, grad)
        if self.missing:
            leaf = next(iter(self.missing))
            shape = self.slots[leaf].shape
            raise ValueError(f"the gradient of {leaf}: given nothing, expected shape {shape}")
        return loss


def with_ready(loss_and_grad):
    """A ``loss_and_grad`` that takes ``ready``. One that does not know it returns all gradients."""
    if "ready" in inspect.signature(loss_and_grad).parameters:
        return loss_and_grad

    @wraps(loss_and_grad)
    def without_ready(*args, ready, **options):
        return loss_and_grad(*args, **options)

    return without_ready
