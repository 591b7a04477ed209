"""The sums of the gradients of one batch, added up while the backward passes of its shards go on.

The order of the sum does not depend on who computes which part of it: n arrays are added as the leaves of a binary
tree, neighbours first, ((x0 + x1) + (x2 + x3)) + …. Whoever has some neighbouring leaves adds up the subtrees that it
has whole; adding these gives the same bits for any division.
"""

import threading
from functools import cache

import numpy as np

from npformer import tree
from npformer.runtime.memory import empty
from npformer.training.flat_gradients import given_twice, missing, place_of


class GradientTree:
    """Adds up the gradients of shards as the leaves of a binary tree, in the order of ``tree_sum``.

    Each shard gives its gradients, in any thread: to ``ready``, as soon as those below a path are complete, or all of
    them to ``add``. Two arrays are added as soon as both are there, so that no shard keeps a whole gradient while the
    others compute theirs.

    ``places`` has the slice of the flat arrays and the shape of each parameter, by its path. ``sums`` has for each
    subtree, the shards from start to stop, (start, stop) -> the flat array (n,) of their sum; if ``is_first``, the sum
    overwrites it, instead of being added to it. ``sending`` sends sums to other ranks as soon as they are complete.
    """

    def __init__(self, places, sums, is_first=True, sending=None):
        self.places, self.is_first, self.sending = places, is_first, sending
        self.sum_of = {shard: (root, flat) for root, flat in sums.items() for shard in range(*root)}
        self.n_missing = dict.fromkeys(places, len(sums))
        self.given: set = set()  # (path, shard) of each array
        self.waiting: dict = {}  # sums of subtrees whose siblings are not complete, by path and subtree
        self.lock = threading.Lock()

    def ready(self, shard, path, grads):
        """Take the gradients of a shard below a path; nobody else changes them from here on."""
        for leaf, grad in tree.leaves(grads, path):
            self._take(shard, leaf, grad)

    def add(self, shard, grads):
        """Take the gradients of a shard that it has not given to ``ready``; ``grads`` may be None."""
        for leaf, grad in tree.leaves({} if grads is None else grads):
            if (leaf, shard) not in self.given:
                self._take(shard, leaf, grad)

    def check_complete(self):
        """Raise if a shard has not given all gradients."""
        if len(self.given) < len(self.places) * len(self.sum_of):
            path = next(path for path in self.places for shard in self.sum_of if (path, shard) not in self.given)
            raise missing(path, self.places)

    def _take(self, shard, path, grad):
        place, shape = place_of(path, grad, self.places)
        if (path, shard) in self.given:
            raise given_twice(path)
        self.given.add((path, shard))
        node, (root, flat) = (shard, shard + 1), self.sum_of[shard]
        total = flat[place].reshape(shape)
        while node != root:
            sibling, parent = relatives(*root)[node]
            with self.lock:
                other = self.waiting.pop((path, sibling), None)
                if other is None:
                    self.waiting[path, node] = grad
                    return
            if self.is_first and parent[0] == root[0]:  # the total has no other use before it is complete
                out = total
            elif node[1] - node[0] > 1:  # a sum of this tree
                out = grad
            else:  # a model may use an array that it has given as other gradients too
                out = empty(shape, np.result_type(grad, other))
            grad, node = np.add(grad, other, out=out), parent
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

    ``parts`` is a dict of (start, stop) to array: sums of subtrees, which together hold all these leaves. ``out`` may
    be one of them.

    >>> a, b, c = np.float32([1e8, 1, -1e8])
    >>> tree_sum({(0, 1): a, (1, 2): b, (2, 3): c}, 0, 3) == (a + b) + c == tree_sum({(0, 2): a + b, (2, 3): c}, 0, 3)
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
    """The largest subtrees, of the tree with the leaves from ``start`` to ``stop``, that lie in a range.

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
    """For each subtree below that with the leaves from ``start`` to ``stop``: its sibling, and their parent.

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
