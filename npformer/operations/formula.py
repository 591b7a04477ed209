"""An operation is one record: its math, its contract, and what follows from them.

The functions of ``npformer.reference.math`` are decorated here: they remain what they are, and call each other without
any check. ``record.py`` makes of them what everybody calls.

Arrays of floats that are not ``wide`` decide the dtype of the results, by NumPy's rules. Half precision is computed in
float32 and rounded at the end, where no kernel takes it.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple, TypeVar

from npformer.operations.contract import Contract, check_contract, contract_of_backward, parse
from npformer.operations.docstring import docstring_of

Function = TypeVar("Function", bound=Callable)
_signature = cache(inspect.signature)


class Record(NamedTuple):
    """All that is known of an operation."""

    name: str
    function: Callable  # the math
    contract: Contract
    check: Callable | None = None  # raises if options do not go together
    flops: str = ""  # a formula in the contract's letters
    options: type | None = None  # a dataclass whose fields are options of the operation, which kernels get as one
    forward: Callable | None = None  # the operation whose backward pass this is

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The arguments by name."""
        return _signature(self.function).parameters

    def bound(self, *args, **keywords) -> dict:
        """The values of the arguments of a call, without defaults."""
        return _signature(self.function).bind(*args, **keywords).arguments


def operation(
    contract: str,
    *,
    check: Callable | None = None,
    flops: str = "",
    tables: Mapping[str, Mapping[str, int]] | None = None,
    options: type | None = None,
) -> Callable[[Function], Function]:
    """Give a function the record of an operation.

    Parameters
    ----------
    contract : str
        As in ``npformer.operations.contract``.
    check : callable, optional
        Is called with all arguments by name, and raises if they do not go together.
    flops : str
        How many additions and multiplications it takes, in the contract's letters, where N stands for the dots:
        ``"2*N*D*F"``. With it ``explain`` tells GFLOP/s, without it GB/s.
    tables : mapping, optional
        The tables of sizes that the contract names, as in ``INPUTS[activation] = I``.
    options : dataclass, optional
        Kernels get the arguments that are its fields as one record, and say which of them they know.
    """
    return lambda function: _made(Record(function.__name__, function, parse(contract, tables), check, flops, options))


def backward_of(forward: Callable, contract: str | None = None, **options) -> Callable[[Function], Function]:
    """Give a function the record of the backward pass of an operation.

    Parameters
    ----------
    forward : operation
    contract : str, optional
        If it is not that of the forward pass: ``dy`` like the result ``y``, everything else like the argument or the
        result of the same name; and a gradient for each array of floats that the forward pass takes.
    check, flops
        As for ``operation``.
    """

    def decorate(function):
        own = parse(contract) if contract else contract_of_backward(forward.record.contract, function)
        of_forward = {"options": forward.record.options, "forward": forward}
        return _made(Record(function.__name__, function, own, **options, **of_forward))

    return decorate


def _made(record):
    """The function itself, with its record: ``at_the_door`` checks the arguments, and other math calls it directly."""
    check_contract(record.contract, record.function, record.flops)
    record.function.__doc__ = docstring_of(record)
    record.function.record = record
    return record.function
