"""The backward functions of a stack of layers."""

from collections.abc import Iterator
from typing import Any

from npformer.errors import UserError


class Stack:
    """Keep the backward function of each layer, and return them from the last layer to the first.

    A backward function holds the activations of its layer. The stack drops its reference when it
    returns the function, so that the activations are freed after the call.

    Parameters
    ----------
    train : bool
        If False, keep nothing, because no gradient will be computed.

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
        """Add the backward function of the next layer, or a tuple of several."""
        if self._train:
            self._backwards.append(backward)

    def backwards(self) -> Iterator[tuple[int, Any]]:
        """Yield (index of the layer, its backward function), the last layer first."""
        if not self._train:
            advice = "expected Stack(train=True), or with_grad=True of a model"
            raise UserError(f"the stack has kept nothing for a backward pass, {advice}")
        while self._backwards:
            # Popped, not iterated: the list would keep the activations of all layers to the end.
            backward = self._backwards.pop()
            yield len(self._backwards), backward
