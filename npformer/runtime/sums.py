"""The order in which n arrays are added, whoever adds which of them.

They are the leaves of a binary tree, neighbours first, ((x0 + x1) + (x2 + x3)) + …. So the order
of the sum does not depend on who computes which part of it: whoever has some neighbouring leaves
adds up the subtrees that it has whole, and adding these gives the same bits for any division.
"""

from functools import cache

import numpy as np


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
def siblings_and_parents(start, stop):
    """For each subtree of the leaves from ``start`` to ``stop``: its sibling, and their parent.

    >>> siblings_and_parents(0, 2)
    {(0, 1): ((1, 2), (0, 2)), (1, 2): ((0, 1), (0, 2))}
    """
    if stop - start == 1:
        return {}
    middle = start + half(stop - start)
    left, right, parent = (start, middle), (middle, stop), (start, stop)
    return (
        {left: (right, parent), right: (left, parent)}
        | siblings_and_parents(*left)
        | siblings_and_parents(*right)
    )


def half(n):
    """The number of leaves of n in the left subtree: the largest power of two below n."""
    return 1 << ((n - 1).bit_length() - 1)
