"""An operation is one record: its math, its contract, and what follows from them.

The decorators make a dispatcher of a function: it checks the arguments, and calls a kernel or the
function.

Arrays of floats that are not ``wide`` decide the dtype of the results, by NumPy's rules. Half
precision is computed in float32 and rounded at the end, where no kernel takes it.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

from npformer.operations.contract import Contract, check_contract, contract_of_backward, parse
from npformer.operations.dispatcher import make_dispatcher
from npformer.operations.docstring import docstring_of

Function = TypeVar("Function", bound=Callable)
_signature = cache(inspect.signature)  # is slow


class Record(NamedTuple):
    """All that is known of an operation."""

    name: str
    function: Callable  # the math
    contract: Contract
    check: Callable | None = None  # raises if options do not go together
    flops: str = ""  # a formula in the contract's letters
    options: type | None = None  # a dataclass; kernels get the options that are its fields as one
    forward: Callable | None = None  # the operation whose backward pass this is

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The arguments by name."""
        return _signature(self.function).parameters


def operation(
    contract: str,
    *,
    check: Callable | None = None,
    flops: str = "",
    tables: Mapping[str, Mapping[str, int]] | None = None,
    options: type | None = None,
    checked: bool = True,
) -> Callable[[Function], Function]:
    """Make an operation of a function.

    Parameters
    ----------
    contract : str
        As in ``npformer.operations.contract``.
    check : callable, optional
        Is called with all arguments by name, and raises if they do not go together.
    flops : str
        How many additions and multiplications it takes, in the contract's letters, where N stands
        for the dots: ``"2*N*D*F"``. With it ``explain`` tells GFLOP/s, without it GB/s.
    tables : mapping, optional
        The tables of sizes that the contract names, as in ``INPUTS[activation] = I``.
    options : dataclass, optional
        Kernels get the arguments that are its fields as one record, and say which of them they
        know.
    checked : bool
        Make the dispatcher, which checks arguments. Otherwise the function only gets its record.

    Examples
    --------
    >>> @operation("x: ... D, weight: D F -> y: ... F")
    ... def project(x, weight):
    ...     return x @ weight
    >>> project(np.ones((2, 5)), np.ones((4, 3)))
    Traceback (most recent call last):
    npformer.UserError: weight has shape (4, 3), expected (D, F) with D = 5 from x (2, 5)
    """

    def decorate(function):
        parsed = parse(contract, tables)
        return _made(Record(function.__name__, function, parsed, check, flops, options), checked)

    return decorate


def backward_of(
    forward: Callable,
    contract: str | None = None,
    *,
    check: Callable | None = None,
    flops: str = "",
    checked: bool = True,
) -> Callable[[Function], Function]:
    """Make an operation of the backward pass of another.

    Parameters
    ----------
    forward : operation
    contract : str, optional
        If it is not that of the forward pass: ``dy`` like the result ``y``, everything else like
        the argument or the result of the same name; and a gradient for each array of floats that
        the forward pass takes.
    check, flops, checked
        As for ``operation``.

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
    npformer.UserError: dy has shape (2, 4), expected (..., F) with ... = (2,) from x (2, 5), \
F = 3 from weight (5, 3)
    """
    of_forward = cast(Any, forward).record

    def decorate(function):
        if contract:
            parsed = parse(contract)
        else:
            parsed = contract_of_backward(of_forward.contract, function)
        name = function.__name__
        record = Record(name, function, parsed, check, flops, of_forward.options, forward)
        return _made(record, checked)

    return decorate


def _made(record, checked):
    """The operation with this record: its dispatcher, or the function itself, without checks."""
    check_contract(record.contract, record.function, record.flops)
    record.function.__doc__ = docstring_of(record)
    record.function.record = record
    return make_dispatcher(record) if checked else record.function
