"""A backend: every operation as an attribute, with the kernels of a device in their places."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np

from npformer.errors import UserError
from npformer.operations.dispatcher import make_dispatcher
from npformer.operations.host import HOST
from npformer.operations.options import changed_fields, check_instance

Function = TypeVar("Function", bound=Callable)


class Kernel(NamedTuple):
    """What computes an operation in a backend, and for which arrays."""

    backend: "Backend"
    function: Callable
    as_it_lies: frozenset[str]
    dtypes: frozenset[str]
    without: frozenset[str]
    # The reason why it leaves a call with these arguments to the reference.
    why_not: Callable = lambda *values: ""


class Backend:
    """The operations for a device, which layers and models take as their argument ``ops``.

    A subclass has each operation as a static method: ``npformer.reference.Ops`` those of npformer.
    A kernel takes the place of one of them in an instance.

    Parameters
    ----------
    name : str
    array : type
        Of the arrays that kernels take.
    device : Host
        The device, and how work is divided on it.
    dtypes : str
        Names of the dtypes that kernels take.
    layout : str
        A Python expression such as ``"{x}.strides"``, where ``{x}`` stands for an array. It must
        have different values for arrays that ``suited`` converts differently, as the conversion is
        chosen once for each value.
    suited : callable
        ``suited(x, as_it_lies)`` returns the function that converts ``x`` to a layout that the
        kernels accept, or None if it has such a layout.

    Attributes
    ----------
    kernels : dict
        The operations that have a kernel in this backend, by name.
    hooks : dict
        Functions that this backend has for work that consists of several operations, by name. Who
        calls one asks for it with ``hooks.get``, and composes operations if there is none.
    """

    def __init__(
        self,
        name,
        array=np.ndarray,
        *,
        device=HOST,
        dtypes="",
        layout="0",
        suited=lambda x, as_it_lies: None,
    ):
        self.name = name
        self.array = array
        self.device = device
        self.dtypes = dtypes
        self.layout = layout
        self.suited = suited
        self.kernels: dict[str, Callable] = {}
        self.hooks: dict[str, Callable] = {}
        self._unchecked: Self | None = None  # made when it is needed first

    def __repr__(self):
        return f"<the backend {self.name}>"

    def __setattr__(self, name, value):
        """Set an attribute; ``unchecked``, which has copies of them all, is made again."""
        vars(self)["_unchecked"] = None
        super().__setattr__(name, value)

    def __delattr__(self, name):
        vars(self)["_unchecked"] = None
        super().__delattr__(name)

    @classmethod
    def names(cls) -> list[str]:
        """The names of all operations.

        >>> from npformer.reference import Ops
        >>> "softmax_backward" in Ops.names()
        True
        """
        names = inspect.getmembers_static(cls, lambda value: isinstance(value, staticmethod))
        return [name for name, _ in names]

    def replaced(self, **operations: Callable) -> Self:
        """A copy with other functions in the place of some operations.

        Its hooks are removed, because they would not call the replaced operations.

        Each function has the parameters of the operation, or ``*args, **options``; layers give some
        by name.

        >>> from npformer.reference import ops
        >>> ops.replaced(relu=abs).relu(-3.0)
        3.0
        >>> ops.replaced(rely=abs)
        Traceback (most recent call last):
        npformer.UserError: no operation is called rely, \
expected one of adam_update, additive_score, …
        """
        if unknown := operations.keys() - set(self.names()):
            expected = ", ".join([*sorted(self.names())[:2], "…"])
            raise UserError(f"no operation is called {min(unknown)}, expected one of {expected}")
        for name, function in operations.items():
            check_instance(name, function, Callable, "a callable")
            parameters = list(inspect.signature(getattr(type(self), name)).parameters)
            _check_parameters(
                function, parameters, f"what replaces {name} in the backend {self.name}"
            )
        changed = copy.copy(self)
        for name, function in operations.items():
            setattr(changed, name, function)
        changed.kernels = {
            name: kernel for name, kernel in self.kernels.items() if name not in operations
        }
        changed.hooks = {}
        return changed

    @property
    def unchecked(self) -> Self:
        """The same backend, whose operations trust their options, keys and ids; arrays are checked
        as before.

        It is for the layers of a model, which has checked its settings, its parameters, the key and
        the ids.
        """
        if self._unchecked is None:
            trusting = copy.copy(self)
            for name in self.names():
                operation = getattr(self, name)
                record = getattr(operation, "record", None)
                wrapped = getattr(operation, "__wrapped__", None)
                # What ``functools.wraps`` made of a dispatcher has its record, but is another
                # function.
                if record is not None and wrapped is record.function:
                    setattr(trusting, name, operation.unchecked)
            trusting._unchecked = trusting
            self._unchecked = trusting
        return self._unchecked

    def kernel_of(
        self,
        operation: Function,
        *,
        as_it_lies: str = "",
        dtypes: str = "",
        without: str = "",
        knows: str = "",
    ) -> Callable[[Callable], Function]:
        """Make a function the kernel of an operation in this backend.

        It is called with every argument by position. If the operation has a record of options, the
        record takes the place of the arguments that are its fields, as the parameter ``options``.
        Arrays of floats have one dtype, except for ``wide`` ones, which have float32 if the others
        have half precision. Ids have 64 bits. No array is empty, and all are contiguous. If it
        returns ``NotImplemented``, the reference computes the operation.

        Parameters
        ----------
        operation : callable
            What ``npformer.reference`` has under its name.
        as_it_lies : str
            Names of arrays that the kernel accepts in any layout.
        dtypes : str
            Names of dtypes, if it takes fewer than other kernels.
        without : str
            Names of arrays that must be None for it.
        knows : str
            Names of the fields of the record of options that it reads, if the operation has such a
            record. If any other field is not at its default, the reference computes the operation.
        """
        record = cast(Any, operation).record
        name = record.name
        options = [field.name for field in fields(record.options)] if record.options else []
        _check_known(record, [*as_it_lies.split(), *without.split()], options, knows)
        # Once for all its fields, the record of options.
        parameters = dict.fromkeys("options" if x in options else x for x in record.parameters)

        def decorate(function):
            what = f"the kernel of {name} in the backend {self.name}"
            _check_parameters(function, list(parameters), what)
            kernel = Kernel(
                self,
                function,
                as_it_lies=frozenset(as_it_lies.split()),
                dtypes=frozenset((dtypes or self.dtypes).split()),
                without=frozenset(without.split()),
            )
            if options:
                of_values, why_not = _with_options(function, record, knows)
                kernel = kernel._replace(function=of_values, why_not=why_not)
            dispatcher = make_dispatcher(record, kernel)
            dispatcher.__module__ = function.__module__
            self.kernels[name] = dispatcher
            setattr(self, name, dispatcher)
            return dispatcher

        return decorate


def _check_known(record, arrays, options, knows):
    """Raise if the operation of a kernel has none of these arrays, or not the options it knows."""
    wrong = set(arrays) - record.contract.arrays.keys()
    if wrong:
        expected = f"some of {', '.join(record.contract.arrays)}"
        problem = f"{record.name}: as_it_lies or without has {min(wrong)!r}"
        raise TypeError(f"{problem}, expected {expected}")
    if bool(options) != bool(knows) or not set(knows.split()) <= set(options):
        expected = "none, as the operation has no record of options"
        if options:
            expected = f"some of {', '.join(options)}"
        raise TypeError(f"{record.name}: knows={knows!r}, expected {expected}")


def _with_options(kernel, record, knows):
    """What a dispatcher calls in place of a kernel that takes a record of options, and ``why_not``
    of the kernel.

    It makes the record of those arguments that are fields of the record; an operation has them side
    by side among its parameters. If the operation takes a record itself, ``settings``, the kernel
    gets that. Calls with an option that the kernel does not know are left to the reference.
    """
    parameters = list(record.parameters)
    fields_of_record = {field.name for field in fields(record.options)}
    names = [name for name in parameters if name in fields_of_record]
    start = parameters.index(names[0] if names else "settings")
    stop = start + (len(names) or 1)
    sizes = [size.field for size in record.contract.sizes.values()]
    may_change = {*knows.split(), *sizes}

    def settings_of(values):
        if not names:
            return values[start]
        return record.options(**dict(zip(names, values[start:stop], strict=True)))

    @wraps(kernel)
    def call(*values):
        settings = settings_of(values)
        if changed_fields(settings) <= may_change:
            return kernel(*values[:start], settings, *values[stop:])
        return NotImplemented

    def why_not(*values):
        settings = settings_of(values)
        others = changed_fields(settings) - may_change
        if not others:
            return ""
        return f"no kernel with {min(others)}={getattr(settings, min(others))}"

    return call, why_not


def _check_parameters(function, expected, what):
    """Raise if a function has other parameters than expected; one with ``*args``, or one in C, does
    not tell.
    """
    if isinstance(function, np.ufunc):
        return
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return
    takes_any = any(x.kind is x.VAR_POSITIONAL for x in parameters.values())
    if list(parameters) != expected and not takes_any:
        has = f"has the parameters ({', '.join(parameters)}), expected ({', '.join(expected)})"
        raise TypeError(f"{what} {has}: it is called by position")
