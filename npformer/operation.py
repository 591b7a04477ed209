"""An operation is one record: its math, its contract, and the dispatcher that is made from them.

``operation`` makes an operation of a function, and ``backward_of`` one of its backward pass, whose contract follows
from the forward pass. ``Backend.kernel_of`` puts a kernel in the function's place, for the arrays it takes. What is
called is always the dispatcher: it checks the arguments against the contract (``npformer.contract``) and their type
hints (``npformer.options``), converts what has to be converted, and calls the kernel, or else the function.

Arrays of floats that are not ``wide`` decide the dtype of the results, by NumPy's rules. Half precision is computed in
float32 and rounded at the end, where no kernel takes it.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import NamedTuple, TypeVar

import numpy as np

from npformer.checks import check_in_dtype
from npformer.contract import Contract, check_contract, contract_of_backward, may_be_none, parse
from npformer.docstring import docstring_of_backward
from npformer.options import check_arrays, check_ids, check_of, check_rate_and_key
from npformer.plan import converted, make_plan, rounded

Function = TypeVar("Function", bound=Callable)
MOST_PLANS = 4096  # that a dispatcher remembers

listener: Callable | None = None  # what ``npformer.explain`` puts between a dispatcher and its work


class Record(NamedTuple):
    """All that is known of an operation."""

    name: str
    function: Callable  # the math
    contract: Contract
    check: Callable | None = None  # raises if options do not go together
    flops: str = ""  # a formula in the contract's letters
    forward: Callable | None = None  # the operation whose backward pass this is

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The arguments by name."""
        return inspect.signature(self.function).parameters

    def bound(self, *args, **keywords) -> dict:
        """The values of the arguments of a call, without defaults."""
        return inspect.signature(self.function).bind(*args, **keywords).arguments


class Kernel(NamedTuple):
    """What computes an operation in a backend, and for which arrays."""

    backend: "Backend"
    function: Callable | None = None
    as_it_lies: frozenset[str] = frozenset()
    dtypes: frozenset[str] = frozenset()


def operation(contract: str, *, check: Callable | None = None, flops: str = "") -> Callable[[Function], Function]:
    """Make an operation of a function.

    Parameters
    ----------
    contract : str
        As in ``npformer.contract``.
    check : callable, optional
        Is called with all arguments by name, and raises if they do not go together.
    flops : str
        How many additions and multiplications it takes, in the contract's letters, where N stands for the dots:
        ``"2*N*D*F"``. With it ``explain`` tells GFLOP/s, without it GB/s.

    Examples
    --------
    >>> import numpy as np
    >>> @operation("x: ... D, weight: D F -> y: ... F")
    ... def project(x, weight):
    ...     return x @ weight
    >>> project(np.ones((2, 5)), np.ones((4, 3)))
    Traceback (most recent call last):
    ValueError: weight has shape (4, 3), expected (D, F) with D = 5 from x (2, 5)
    """

    def decorate(function):
        record = Record(function.__name__, function, parse(contract), check, flops)
        check_contract(record.contract, function, flops)
        return _dispatcher(record, Kernel(REFERENCE))

    return decorate


def backward_of(forward: Callable, contract: str | None = None, **options) -> Callable[[Function], Function]:
    """Make an operation of the backward pass of another.

    Parameters
    ----------
    forward : operation
    contract : str, optional
        If it is not that of the forward pass: ``dy`` like the result ``y``, everything else like the argument or the
        result of the same name; and a gradient for each array of floats that the forward pass takes.
    check, flops
        As for ``operation``.

    Examples
    --------
    >>> import numpy as np
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

    def decorate(function):
        own = parse(contract) if contract else contract_of_backward(forward.record.contract, function)
        record = Record(function.__name__, function, own, **options, forward=forward)
        check_contract(own, function, record.flops)
        function.__doc__ = docstring_of_backward(function, own, record.parameters, forward.record)
        return _dispatcher(record, Kernel(REFERENCE))

    return decorate


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
            kernel = Kernel(self, function, frozenset(as_it_lies.split()), frozenset((dtypes or self.dtypes).split()))
            made = self.operations[operation.record.name] = _dispatcher(operation.record, kernel, operation)
            made.__module__ = function.__module__
            return made

        return decorate


REFERENCE = Backend("reference", np.ndarray)


def _dispatcher(record, kernel, reference=None):
    """The function that everybody calls; ``reference`` is the dispatcher of an operation whose kernel this is."""
    parameters = record.parameters
    bind = _binder(record, kernel.backend, parameters)
    names, places = list(parameters), {name: place for place, name in enumerate(parameters)}
    options = [parameter for name, parameter in parameters.items() if name not in record.contract.arrays]
    checks = [(places[option.name], check) for option in options if (check := check_of(option))]
    rate, key, ignored, eps = map(places.get, ("dropout_rate", "dropout_key", "ignore_id", "eps"))
    plans: dict = {}

    @wraps(record.function)
    def dispatch(*args, **keywords):
        try:
            values, signature = bind(*args, **keywords)
        except AttributeError:  # what has no shape is no array
            try:
                check_arrays(record.contract, record.bound(*args, **keywords), parameters)
            except (TypeError, ValueError) as error:
                raise error from None
            if reference is None:
                raise
            return reference(*args, **keywords)  # arrays of another library, whose layout this backend cannot read
        for place, check in checks:
            values[place] = check(values[place])
        if rate is not None:
            check_rate_and_key(values[rate], values[key])
        plan = plans.get(signature)
        if plan is None:
            if len(plans) >= MOST_PLANS:
                plans.clear()
            plan = plans[signature] = make_plan(record, kernel, dict(zip(names, values, strict=True)))
        if eps is not None:
            check_in_dtype("eps", values[eps], plan.dtype)
        if record.check:
            record.check(**dict(zip(names, values, strict=True)))
        for place, name, size in plan.ids:
            check_ids(values[place], size, name, None if ignored is None else values[ignored])
        return run(plan, values) if listener is None else listener(record, kernel.backend, plan, values, run)

    def run(plan, values):
        if plan.nothing is not None:
            return plan.nothing()
        result = plan.kernel(*converted(values, plan.for_kernel)) if plan.kernel else NotImplemented
        if result is NotImplemented:
            given = dict(zip(names, converted(values, plan.for_function), strict=True))
            with np.errstate(invalid="ignore"):  # NaN in is NaN out, and what is masked may be NaN
                result = record.function(**given)
        return rounded(result, plan.of_results) if plan.of_results else result

    dispatch.record, dispatch.kernel = record, kernel
    return dispatch


def _binder(record, backend, parameters):
    """A function of the operation's parameters that returns their values and what a plan depends on.

    It is made from text, as named tuples are: Python then binds the arguments in half a microsecond.
    """
    contract, defaults, before, fields = record.contract, {}, [], []
    for name, parameter in parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in before:
            before.append("*")
        has_default = parameter.default is not parameter.empty
        before.append(f"{name}=default_{name}" if has_default else name)
        defaults[f"default_{name}"] = parameter.default
        if name in contract.arrays:
            layout = backend.layout.format(x=name)
            if contract.arrays[name].kind == "written":  # and may be read-only
                layout += f", getattr({name}.flags, 'writeable', True)"
            field = f"({name}.__class__, {name}.shape, {name}.dtype, {layout})"
            fields.append(f"None if {name} is None else {field}" if may_be_none(parameter) else field)
        elif name in contract.sizes:
            fields.append(name)
    text = f"lambda {', '.join(before)}: ([{', '.join(parameters)}], ({', '.join(fields)},))"
    bind = eval(text, defaults)
    bind.__name__ = bind.__qualname__ = record.name  # for Python's own errors
    return bind
