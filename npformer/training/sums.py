"""The sum of the gradients of shards, rows of a batch that are computed together.

n arrays are added as the leaves of a binary tree, neighbours first, ((x0 + x1) + (x2 + x3)) + ….
So the order of the sum does not depend on who computes which part of it: whoever has some
neighbouring leaves adds up the subtrees that it has whole, and adding these gives the same bits for
any division.
"""

import inspect
import threading
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.runtime.memory import empty


class Shard(NamedTuple):
    """Rows of a batch that are computed together."""

    number: int  # among those of all ranks
    batch: tuple
    dropout_key: int


def of_shards(loss_and_grad):
    """A function of a shard and a ``GradientTree``, to which it gives the gradients of the shard.

    It returns the loss and the number of targets. If ``loss_and_grad`` takes ``ready``, it gives
    each gradient as soon as it is there, so that no thread keeps a whole one.
    """
    takes_ready = "ready" in inspect.signature(loss_and_grad).parameters

    def compute(shard, gradients, params, options):
        options = options | {"dropout_key": shard.dropout_key}
        if takes_ready:
            options["ready"] = partial(gradients.ready, shard.number)
        loss, grads, n_targets = loss_and_grad(params, *shard.batch, **options)
        gradients.add(shard.number, grads)  # what was not given to ``ready``
        return loss, n_targets

    return compute


class GradientTree:
    """Adds up the gradients of the shards of a batch, in the order of ``tree_sum``.

    Each shard gives its gradients in any thread, each of them once. Two arrays are added as soon as
    both are there, so that no shard keeps a whole gradient while the others compute theirs.

    Parameters
    ----------
    places : dict
        The slice of the flat arrays, and the shape, of each parameter, by its path.
    sums : dict
        For each subtree, the shards from start to stop: (start, stop) -> the flat array (n,) of
        their sum.
    is_first : bool
        Whether the sum overwrites what is in its array, instead of being added to it.
    sending : Sending, optional
        Sends sums to other ranks as soon as they are complete.
    """

    def __init__(self, places, sums, is_first, sending=None):
        self.places, self.is_first, self.sending = places, is_first, sending
        self.sum_of = {}
        for root, flat in sums.items():
            self.sum_of |= dict.fromkeys(range(*root), (root, flat))
        self.taken: set = set()  # (path, shard) of each gradient
        self.n_missing = dict.fromkeys(places, len(sums))
        self.waiting: dict = {}  # by path and subtree: sums whose siblings are not complete
        self.lock = threading.Lock()

    def ready(self, shard, path, grads):
        """Take the gradients of a shard below a path; nobody else changes them from here on."""
        for leaf, grad in tree.leaves(grads, path):
            _, shape = self.places.get(leaf, (None, "nothing"))
            if getattr(grad, "shape", None) != shape:  # otherwise it would be broadcast
                what = (
                    f"shape {grad.shape}" if hasattr(grad, "shape") else f"a {type(grad).__name__}"
                )
                raise ValueError(f"the gradient of {leaf}: given {what}, expected {shape}")
            if (leaf, shard) in self.taken:
                raise ValueError(f"the gradient of {leaf}: given twice, expected once")
            self.taken.add((leaf, shard))
            self._add(shard, leaf, grad)

    def add(self, shard, grads):
        """Take the gradients that a shard has not given to ``ready``; ``grads`` may be None."""
        for leaf, grad in tree.leaves({} if grads is None else grads):
            if (leaf, shard) not in self.taken:
                self.ready(shard, leaf, grad)

    def check_complete(self):
        """Raise if a shard has not given all gradients."""
        for leaf, (_, shape) in self.places.items():
            for shard in self.sum_of:
                if (leaf, shard) not in self.taken:
                    raise ValueError(
                        f"the gradient of {leaf}: given nothing, expected shape {shape}"
                    )

    def _add(self, shard, path, grad):
        """Add a gradient to that of its sibling, their sum to its own, and so on to the root."""
        place, shape = self.places[path]
        root, flat = self.sum_of[shard]
        total = flat[place].reshape(shape)
        node = shard, shard + 1
        while node != root:
            sibling, parent = relatives(*root)[node]
            with self.lock:
                other = self.waiting.pop((path, sibling), None)
                if other is None:
                    self.waiting[path, node] = grad
                    return
            if self.is_first and parent[0] == root[0]:
                out = total  # which has no other use before it is complete
            elif node[1] - node[0] > 1:
                out = grad  # a sum of this tree
            else:  # not ``grad``, which a model may have given as another gradient, too
                out = empty(shape, np.result_type(grad, other))
            grad = np.add(grad, other, out=out)
            node = parent
        if not self.is_first:
            total += grad
        elif grad is not total:
            total[...] = grad
        with self.lock:
            self.n_missing[path] -= 1
            is_complete = self.n_missing[path] == 0
        if is_complete and self.sending is not None:
            self.sending.complete(place)


def tree_sum(parts, start, stop, out=None):
    """Add up the leaves from ``start`` to ``stop``, in ``out`` if given.

    ``parts`` is a dict of (start, stop) to array: sums of subtrees, which together hold all these
    leaves. ``out`` may be one of them.

    >>> a, b, c = np.float32([1e8, 1, -1e8])
    >>> leaves = tree_sum({(0, 1): a, (1, 2): b, (2, 3): c}, 0, 3)
    >>> leaves == (a + b) + c == tree_sum({(0, 2): a + b, (2, 3): c}, 0, 3)
    np.True_
    """
    if (start, stop) in parts:
        part = parts[start, stop]
        if out is None or out is part:
            return part
        out[...] = part
        return out
    middle = start + half(stop - start)
    return np.add(tree_sum(parts, start, middle), tree_sum(parts, middle, stop), out=out)


def subtrees(start, stop, own):
    """The largest subtrees of the tree with the leaves from ``start`` to ``stop`` within a range.

    >>> subtrees(0, 12, range(0, 4)), subtrees(0, 12, range(3, 6))
    ([(0, 4)], [(3, 4), (4, 6)])
    """
    if own.start <= start and stop <= own.stop:
        return [(start, stop)]
    if stop <= own.start or own.stop <= start:
        return []
    middle = start + half(stop - start)
    return subtrees(start, middle, own) + subtrees(middle, stop, own)


@cache
def relatives(start, stop):
    """For each subtree of the leaves from ``start`` to ``stop``: its sibling, and their parent.

    >>> relatives(0, 2)
    {(0, 1): ((1, 2), (0, 2)), (1, 2): ((0, 1), (0, 2))}
    """
    if stop - start == 1:
        return {}
    middle = start + half(stop - start)
    left, right, parent = (start, middle), (middle, stop), (start, stop)
    return {left: (right, parent), right: (left, parent)} | relatives(*left) | relatives(*right)


def half(n):
    """The number of leaves of n in the left subtree: the largest power of two below n."""
    return 1 << ((n - 1).bit_length() - 1)
