"""Layers one upon the other."""

from collections.abc import Iterator
from typing import Any


class Stack:
    """Keeps the backward of each layer, and gives them back from the last layer to the first.

    A backward holds the activations of its layer. They are freed as soon as it was given back and called.

    Parameters
    ----------
    train : bool
        False: keep nothing, as no gradient will be wanted.

    Examples
    --------
    >>> stack, x = Stack(train=True), 1.0
    >>> for factor in (2.0, 3.0):
    ...     x = factor * x
    ...     stack.keep(lambda dy, factor=factor: factor * dy)
    >>> for i, backward in stack.backwards():
    ...     print(i, backward(1.0))
    1 3.0
    0 2.0
    """

    def __init__(self, train: bool):
        self._train = train
        self._backwards: list = []

    def keep(self, backward: Any) -> None:
        """Add the backward of the next layer, or several of them as a tuple."""
        if self._train:
            self._backwards.append(backward)

    def backwards(self) -> Iterator[tuple[int, Any]]:
        """(number of the layer, its backward), the last layer first."""
        while self._backwards:
            backward = self._backwards.pop()
            yield len(self._backwards), backward
