"""Operations as everybody calls them: they check their arguments, and choose between a kernel and the reference.

Arrays of floats that are not ``wide`` decide the dtype of the results, by NumPy's rules. Half precision is computed in
float32 and rounded at the end, where no kernel takes it.
"""

from collections.abc import Callable
from typing import Any, cast

from npformer.operations import formula
from npformer.operations.dispatcher import make_dispatcher
from npformer.operations.formula import Function, Record

__all__ = ["Record", "at_the_door", "backward_of", "operation"]


def operation(contract: str, **options: Any) -> Callable[[Function], Function]:
    """Make an operation of a function. The parameters are those of ``formula.operation``.

    Examples
    --------
    >>> @operation("x: ... D, weight: D F -> y: ... F")
    ... def project(x, weight):
    ...     return x @ weight
    >>> project(np.ones((2, 5)), np.ones((4, 3)))
    Traceback (most recent call last):
    ValueError: weight has shape (4, 3), expected (D, F) with D = 5 from x (2, 5)
    """
    return lambda function: at_the_door(formula.operation(contract, **options)(function))


def backward_of(forward: Callable, contract: str | None = None, **options: Any) -> Callable[[Function], Function]:
    """Make an operation of the backward pass of another. The parameters are those of ``formula.backward_of``.

    Examples
    --------
    >>> @operation("x: ... D, weight: D F -> y: ... F")
    ... def project(x, weight):
    ...     return x @ weight
    >>> @backward_of(project)
    ... def project_backward(dy, x, weight):
    ...     return dy @ weight.T, x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])
    >>> dx, dweight = project_backward(np.ones((2, 3)), np.ones((2, 5)), np.ones((5, 3)))
    >>> project_backward(np.ones((2, 4)), np.ones((2, 5)), np.ones((5, 3)))
    Traceback (most recent call last):
    ValueError: dy has shape (2, 4), expected (..., F) with ... = (2,) from x (2, 5), F = 3 from weight (5, 3)
    """
    return lambda function: at_the_door(formula.backward_of(forward, contract, **options)(function))


def at_the_door(function: Function, module: str | None = None) -> Function:
    """The operation whose record a function has; ``module`` is where it has its name, if not that of the function."""
    dispatcher = make_dispatcher(cast(Any, function).record)
    dispatcher.__module__ = module or function.__module__
    return dispatcher
