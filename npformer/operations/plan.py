"""The plan of a dispatcher: how it computes an operation for arguments with given types, shapes,
dtypes and layouts.

The arguments are checked once, when the plan is made. The dispatcher uses the plan again for all
similar arguments: ``make_binder`` makes the function that tells which are similar.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import underflow_is_zero
from npformer.checks import check_in_dtype, warn
from npformer.operations.contract import may_be_none
from npformer.operations.shapes import check_arrays, match, shape_of

DECIDING = ("float", "written")  # kinds of arrays whose dtypes decide that of the results
NOT_0 = ("eps", "delta")  # options that must not be 0 in the dtype of the arrays
FLOAT32 = np.dtype(np.float32)
IDS = np.dtype(np.int64)
MASK = np.dtype(bool)
_told: set[frozenset[np.dtype]] = set()  # pairs of dtypes that a warning has told of


def make_binder(record, layout):
    """A function of the operation's parameters that returns their values and what a plan depends
    on.

    ``layout`` is that of a backend. The function is made from text, as named tuples are: Python
    then binds arguments in half a microsecond. For ``linear`` on the CPU the text is ::

        lambda x, weight, bias=default_bias: (
            [x, weight, bias],
            (
                (x.__class__, x.shape, x.dtype, x.flags.num),
                (weight.__class__, weight.shape, weight.dtype, weight.flags.num),
                None if bias is None else (bias.__class__, bias.shape, bias.dtype, bias.flags.num),
            ),
        )
    """
    contract = record.contract
    parameters = record.parameters
    defaults = {}
    declared = []  # the parameters as the lambda declares them
    fields = []  # what a plan depends on
    for name, parameter in parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in declared:
            declared.append("*")
        has_default = parameter.default is not parameter.empty
        declared.append(f"{name}=default_{name}" if has_default else name)
        defaults[f"default_{name}"] = parameter.default
        if name in contract.arrays:
            lies = layout.format(x=name)
            if contract.arrays[name].kind == "written":  # and may be read-only
                lies += f", getattr({name}.flags, 'writeable', True)"
            field = f"({name}.__class__, {name}.shape, {name}.dtype, {lies})"
            if may_be_none(parameter):
                field = f"None if {name} is None else {field}"
            fields.append(field)
        if name in NOT_0:
            fields.append(f"{name} if {name}.__class__ is float else repr({name})")
        fields += [_value_of(size) for size in contract.sizes.values() if size.argument == name]
    text = f"lambda {', '.join(declared)}: ([{', '.join(parameters)}], ({', '.join(fields)},))"
    bind = eval(text, defaults)
    bind.__name__ = bind.__qualname__ = record.name  # for Python's own errors
    return bind


def _value_of(size):
    """The expression of a size, which is an argument or a field of one that may be missing in a
    wrong argument.
    """
    return f"getattr({size.argument}, {size.field!r}, None)" if size.field else size.argument


class Plan(NamedTuple):
    """How to compute an operation for arguments with these types, shapes, dtypes and layouts."""

    # The kernel, or what returns the results if all of them are empty; None for the reference.
    compute: Callable | None
    why: str  # the reason why no kernel runs, or ""
    kernel_conversions: dict[int, Callable]  # of arguments, by position, before ``compute``
    reference_conversions: dict[int, Callable]  # the same before the function of the reference
    result_dtypes: list  # empty if no result has to be cast
    ids: list[tuple]  # (position, name, upper bound) of each array of ids


class Operand(NamedTuple):
    """An array that an operation is called with."""

    position: int  # among the arguments
    name: str
    kind: str  # as the contract states it
    x: Any


def make_plan(record, kernel, arguments: Mapping[str, Any]) -> Plan:
    """Check arguments with a new signature, and decide whether a kernel or the reference computes
    the operation.
    """
    contract = record.contract
    check_arrays(contract, arguments, record.parameters)
    sizes = match(contract, arguments)
    positions = {name: position for position, name in enumerate(arguments)}
    operands = [
        Operand(positions[name], name, argument.kind, arguments[name])
        for name, argument in contract.arrays.items()
        if arguments[name] is not None
    ]

    dtype = _dtype_of_results(operands)
    for name in NOT_0:
        if name in arguments:
            check_in_dtype(name, arguments[name], widened(dtype))
    result_dtypes = [_dtype_of(result.kind, dtype) for result in contract.results]
    why, conversions = _fit_of_kernel(record.name, kernel, operands, dtype)
    compute = kernel.function if kernel and not why else None
    nothing = _function_of_nothing(contract, sizes, result_dtypes, operands)
    if nothing is not None:  # all results are empty: neither kernel nor reference has to know it
        compute = nothing
        conversions = {}
    return Plan(
        compute=compute,
        why=why,
        kernel_conversions=conversions,
        reference_conversions=_reference_conversions(operands, widened(dtype)),
        result_dtypes=result_dtypes if _rounds(operands, dtype) else [],
        ids=_ids(contract, sizes, operands),
    )


def _dtype_of_results(operands):
    """The dtype of the results by NumPy's promotion rules; None if there is no array of floats to
    determine it.
    """
    deciding = [operand for operand in operands if operand.kind in DECIDING]
    if not deciding:
        return None
    dtypes = [operand.x.dtype for operand in deciding]
    # Of a complex step the imaginary part must not be lost, whichever array makes the step.
    wide = [operand.x.dtype for operand in operands if operand.kind == "wide"]
    dtypes += [dtype for dtype in wide if dtype.kind == "c"]
    try:
        return np.result_type(*dtypes).newbyteorder("=")
    except TypeError:  # float16 and bfloat16 have no common dtype
        named = ", ".join(f"{operand.name} {operand.x.dtype}" for operand in deciding)
        problem = f"arrays of dtypes that have no common dtype: {named}"
        raise TypeError(f"{problem}; convert them to one first") from None


def _dtype_of(kind, dtype):
    """The dtype of an array of this kind, where floats have the given one."""
    return {"wide": widened(dtype), "ids": IDS, "mask": MASK}.get(kind, dtype)


def widened(dtype):
    """float32 for half precision, else the dtype itself."""
    return FLOAT32 if dtype is not None and dtype.itemsize == 2 else dtype


def _rounds(operands, dtype):
    """Whether what the reference computes may have another dtype than the results."""
    floats = [operand.x.dtype for operand in operands if operand.kind in ("float", "wide")]
    return dtype != widened(dtype) or any(other != dtype for other in floats)


def _ids(contract, sizes, operands):
    """(position, name, upper bound) of each array of ids."""
    ids = []
    for position, name, _, x in operands:
        letter = contract.arrays[name].below
        if letter or x.dtype.name == "uint64":  # kernels have int64
            ids.append((position, name, sizes.get(letter, 2**63)))
    return ids


def _reference_conversions(operands, dtype):
    """The conversions of the arrays that need one for the reference, by position."""
    conversions = {}
    for position, _, kind, x in operands:
        if kind == "float" and x.dtype.kind == dtype.kind == "f" and x.dtype != dtype:
            conversions[position] = _cast_to(dtype)  # so that no step in between is rounded
        elif kind in ("float", "wide") and x.dtype.itemsize == 2:
            conversions[position] = _cast_to(FLOAT32)
        elif isinstance(x, np.generic | np.ndarray) and type(x) is not np.ndarray:
            conversions[position] = np.asarray
    return conversions


def _fit_of_kernel(operation, kernel, operands, dtype):
    """The reason why no kernel takes these arrays, or "", and the conversions of arrays for the
    kernel, by position.
    """
    if kernel is None:
        return "reference was called", {}
    computed = dtype
    if computed is not None and computed.name not in kernel.dtypes:
        computed = widened(dtype)
        if computed.name not in kernel.dtypes:
            return f"no kernel for {computed}", {}
    for operand in operands:
        if operand.name in kernel.without:
            return f"no kernel with {operand.name}", {}
    conversions = {}
    for position, name, kind, x in operands:
        dtype_of_kernel = _dtype_of(kind, computed)
        if not isinstance(x, kernel.backend.array):
            return f"{name} is a {type(x).__name__}", {}
        conversion = kernel.backend.suited(x, name in kernel.as_it_lies)
        if x.size == 0:
            return f"{name} is empty", {}
        if kind in DECIDING and x.dtype.newbyteorder("=") != computed and x.dtype.itemsize != 2:
            return _warned_of_dtypes(operation, operands, computed), {}
        if kind == "written" and (conversion or x.dtype != dtype_of_kernel):
            return f"{name} would have to be copied, but is written in place", {}
        if x.dtype != dtype_of_kernel:
            conversions[position] = _cast_to(dtype_of_kernel)
        elif conversion:
            conversions[position] = conversion
    return "", conversions


def _warned_of_dtypes(operation, operands, computed):
    """The reason why no kernel takes arrays of several dtypes, of which a process is warned once.

    The reason names an array whose dtype most others do not have. A float64 array beside float32
    parameters would else make everything after it slow without a word. The warning names the first
    such operation of a process: the array with the other dtype was made before it.
    """
    dtypes = {}
    for _, name, kind, x in operands:
        if kind in DECIDING and x.dtype.itemsize != 2:
            dtypes[name] = x.dtype.newbyteorder("=")
    counts = Counter(dtypes.values())
    most = max(dtypes.values(), key=lambda dtype: (counts[dtype], dtype != computed))
    name = next(name for name, dtype in dtypes.items() if dtype != most)
    why = f"{name} has {dtypes[name]}, others {most}"
    pair = frozenset((dtypes[name], most))
    if pair not in _told:
        _told.add(pair)
        advice = f"try {name}.astype('{most}')"
        warn(f"{why}: the slower reference computes {operation} in {computed}; {advice}")
    return why


def _function_of_nothing(contract, sizes, dtypes, operands):
    """A function of the arguments that returns the results if all of them are empty, else None."""
    names = {operand.name for operand in operands}
    if any(x.kind == "float" and x.name not in names for x in contract.arrays.values()):
        return None  # the gradient of an array that is None is None
    if contract.more or any(result.broadcasts for result in contract.results):
        return None  # results whose number or shape the contract does not tell
    shapes = [shape_of(result.axes, sizes) for result in contract.results]
    are_empty = [shape is not None and 0 in shape for shape in shapes]
    if not shapes or not all(are_empty) or any(dtype is None for dtype in dtypes):
        return None
    like = operands[0].x
    pairs = zip(shapes, dtypes, strict=True)
    empty = [np.zeros_like(like, shape=shape, dtype=dtype) for shape, dtype in pairs]

    def nothing(*values):
        results = tuple(x.copy() for x in empty)
        return results if len(results) > 1 else results[0]

    return nothing


def _cast_to(dtype):
    def cast(x):
        if isinstance(x, np.generic | np.ndarray):
            x = np.asarray(x)  # from a scalar or a subclass
        return x.astype(dtype, order="C")

    return cast


def converted(values, conversions):
    """The arguments, with the conversions applied."""
    values = list(values)
    with underflow_is_zero():
        for position, convert in conversions.items():
            values[position] = convert(values[position])
    return values


def rounded(result, dtypes):
    """The results, cast to these dtypes; additional results are cast to the first dtype."""
    with underflow_is_zero():
        if not isinstance(result, tuple):
            return _in_dtype(result, dtypes[0])
        n_more = len(result) - len(dtypes)
        return tuple(map(_in_dtype, result, dtypes + dtypes[:1] * n_more))


def _in_dtype(x, dtype):
    return x if x is None or dtype is None or x.dtype == dtype else x.astype(dtype)
