"""The sums of the gradients of one batch, added up while the backward passes of its shards go on."""

import threading

import numpy as np

from npformer import tree
from npformer.runtime.memory import empty
from npformer.training.state import missing, place_of
from npformer.training.tree_sum import relatives


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
        for leaf, grad in tree.leaves(grads or {}):
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
            raise ValueError(f"the gradient of {path}: given twice, expected once")
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
