"""A backend: the kernels of a device, and for which arrays they take the place of the reference."""

import inspect
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from npformer.operations.dispatcher import make_dispatcher

Function = TypeVar("Function", bound=Callable)


class Kernel(NamedTuple):
    """What computes an operation in a backend, and for which arrays."""

    backend: "Backend"
    function: Callable | None = None
    as_it_lies: frozenset[str] = frozenset()
    dtypes: frozenset[str] = frozenset()


class Backend:
    """A place for kernels: which arrays they take, and how an array is made to suit.

    Parameters
    ----------
    name : str
    array : type
    dtypes : str
        Names of the dtypes that kernels take.
    layout : str
        An expression of an array ``{x}``: its value differs where ``suited`` returns another conversion.
    suited : callable
        ``suited(x, as_it_lies)`` returns the conversion that makes the layout of ``x`` suit the kernels, or None.
    wait : callable
        Returns when all kernels that were called have ended.
    """

    def __init__(self, name, array, dtypes="", layout="0", suited=lambda x, as_it_lies: None, wait=lambda: None):
        self.name, self.array, self.dtypes, self.layout = name, array, dtypes, layout
        self.suited, self.wait = suited, wait
        self.operations: dict[str, Callable] = {}

    def kernel_of(
        self, operation: Function, *, as_it_lies: str = "", dtypes: str = ""
    ) -> Callable[[Callable], Function]:
        """Make a function the kernel of an operation in this backend.

        It is called with every argument by position. Arrays of floats have one dtype, but for ``wide`` ones, which
        have float32 if the others have half precision. Ids have 64 bits. No array is empty, and all are contiguous. If
        it returns ``NotImplemented``, the reference computes the operation.

        Parameters
        ----------
        operation : callable
            What ``npformer.reference`` has under its name.
        as_it_lies : str
            Names of arrays whose layout the kernel minds itself.
        dtypes : str
            Names of dtypes, if it takes fewer than other kernels.
        """

        def decorate(function):
            given, expected = list(inspect.signature(function).parameters), list(operation.record.parameters)
            if given != expected:
                raise TypeError(
                    f"the kernel of {operation.record.name} in the backend {self.name} has the parameters "
                    f"({', '.join(given)}), expected ({', '.join(expected)}): it is called by position"
                )
            kernel = Kernel(self, function, frozenset(as_it_lies.split()), frozenset((dtypes or self.dtypes).split()))
            made = self.operations[operation.record.name] = make_dispatcher(operation.record, kernel, operation)
            made.__module__ = function.__module__
            return made

        return decorate


REFERENCE = Backend("reference", np.ndarray)
