"""The contract of an operation: one line that states the axes and the kind of each array.

A contract reads ``arguments -> results``::

    q: ... T K>0, k: ... S K, v: ... S Kv, keep_mask: ~ ... T S mask -> out: ... T Kv, weights: ... T S

======================  ============================================================================================
``x: B T 3*H*K``        an array of floats with these axes. A letter has the same size everywhere in the contract. In a
                        product, at most one letter may have a size that is not known yet.
``x: ... D``            any number of leading axes, which have the same sizes wherever ``...`` occurs
``D>0``                 an axis with at least one entry
``n_heads = H``         an argument that is a size, or, as in ``table_shape = V D``, a tuple of sizes
``settings.n_heads = H``  a field of an argument that is a size
``activation = G``      the name of an activation; G is the number of inputs that it takes for one output
``~ ... T S``           broadcasts to these axes
``mask``                an array of booleans
``ids<V``               an array of integers from 0 to V - 1, except entries equal to ``ignore_id``
``wide``                floats, which are float32 if the other arrays have half precision
``written``             floats that the operation modifies in place
``loss: wide``          a result without axes is a single number
``-> dq: ... T K, *``   more arrays of floats are returned after these
======================  ============================================================================================

The name of an axis is one capital letter, optionally followed by a small letter, or one small letter. An array may be
None if its type hint allows it: ``bias: Array | None``. Arguments that the contract does not name are options:
``npformer.operations.options`` checks them against their type hints, and against the ranges of common names such as
``eps`` and ``dropout_rate``.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import numpy as np

GATES = {"relu": 1, "gelu": 1, "silu": 1, "swiglu": 2}  # number of inputs that an activation takes for one output
KINDS = {"mask", "ids", "wide", "written"}


class Argument(NamedTuple):
    """An array, as a contract describes it."""

    name: str
    axes: tuple[str, ...]  # "...", letters, numbers and products
    kind: str = "float"
    below: str = ""  # the letter whose size is the upper bound of ids
    broadcasts: bool = False

    def __str__(self) -> str:
        return "(" + ", ".join(self.axes) + ("," if len(self.axes) == 1 else "") + ")"


class Contract(NamedTuple):
    """The arrays that an operation takes and returns, and its arguments that are sizes."""

    arrays: dict[str, Argument]
    sizes: dict[str, tuple[str, ...]]
    results: tuple[Argument, ...]
    more: bool  # whether more arrays are returned after ``results``
    not_empty: frozenset[str]  # letters whose size must be at least 1


class Sizes(dict):
    """The known sizes of letters and of ``...``, and the argument that each size comes from."""

    def __init__(self):
        super().__init__()
        self.source = {}

    def learn(self, letter, size, source):
        """Store a size, and the argument that it comes from."""
        self[letter], self.source[letter] = size, source

    def of(self, axis):
        """(product of the known factors of an axis, letters of it whose size is not known)."""
        known, unknown = 1, []
        for factor in axis.split("*"):
            if factor.isdecimal() or factor in self:
                known *= int(factor) if factor.isdecimal() else self[factor]
            else:
                unknown.append(factor)
        return known, unknown

    def shape_of(self, argument):
        """The shape of an array, or None if a size is not known."""
        shape = []
        for axis in argument.axes:
            size, unknown = (self.get("...", ()), []) if axis == "..." else self.of(axis)
            if unknown:
                return None
            shape.extend(size if axis == "..." else [size])
        return tuple(shape)


def parse(text: str) -> Contract:
    """Parse a contract.

    Examples
    --------
    >>> contract = parse("x: ... D>0, n_heads = H -> y: ... H wide")
    >>> contract.arrays["x"].axes, contract.sizes, contract.results[0].kind
    (('...', 'D'), {'n_heads': ('H',)}, 'wide')
    """
    not_empty = frozenset(re.findall(r"(\w+)>0", text))
    inputs, _, outputs = text.replace(">0", "").partition("->")
    items = [item.strip() for item in inputs.split(",") if item.strip()]
    for item in (*items, *(outputs.removesuffix("*").split(",") if outputs.strip(" *") else ())):
        if item.strip() and not re.fullmatch(r"[\w.]+ *(:.*|= *\w+( +\w+)*)", item.strip()):
            raise ValueError(f"contract {text!r}: {item.strip()!r}, expected 'array: axes' or 'argument = letters'")
    sizes = {name.strip(): tuple(letters.split()) for name, _, letters in (i.partition("=") for i in items) if letters}
    arrays = [_argument(item) for item in items if ":" in item]
    results = tuple(_argument(item) for item in outputs.split(",") if ":" in item)
    return Contract({x.name: x for x in arrays}, sizes, results, outputs.endswith("*"), not_empty)


def _argument(text):
    name, _, description = text.partition(":")
    axes = description.split()
    for word in axes:
        if not re.fullmatch(
            r"~|\.\.\.|(\d+|[A-Z][a-z]?|[a-z])(\*(\d+|[A-Z][a-z]?|[a-z]))*|mask|wide|written|ids(<\w+)?", word
        ):
            raise ValueError(f"contract {text.strip()!r}: {word!r} is no axis and no kind")
    broadcasts = axes[:1] == ["~"]
    kind, _, below = axes[-1].partition("<") if axes else ("", "", "")
    if kind in KINDS:
        return Argument(name.strip(), tuple(axes[broadcasts:-1]), kind, below, broadcasts)
    return Argument(name.strip(), tuple(axes[broadcasts:]), broadcasts=broadcasts)


def contract_of_backward(forward: Contract, backward: Callable) -> Contract:
    """The contract of a backward pass, derived from that of the forward pass.

    ``dy`` has the axes of the result ``y``, and every other argument those of the argument or result of the same name.
    The results are one gradient for each array of floats that the forward pass takes.
    """
    known = {argument.name: argument for argument in (*forward.arrays.values(), *forward.results)}
    known |= {f"d{result.name}": Argument(f"d{result.name}", result.axes) for result in forward.results}
    names = inspect.signature(backward).parameters
    inputs = {name: argument for name, argument in known.items() if name in names}  # gradients last, sizes known first
    sizes = {name: letters for name, letters in forward.sizes.items() if name.partition(".")[0] in names}
    gradients = tuple(Argument(f"d{x.name}", x.axes) for x in forward.arrays.values() if x.kind == "float")
    return Contract(inputs, sizes, gradients, False, forward.not_empty)


def check_contract(contract: Contract, function: Callable, flops: str = "") -> None:
    """Check that a contract describes each array argument of a function, and nothing else.

    Raises
    ------
    ValueError
        If the contract has a name that is not a parameter; if it lacks a parameter that is an array (one with the type
        hint of an array, or with neither a type hint nor a default value); or if ``flops`` has a letter that the
        contract does not have.
    """
    parameters = inspect.signature(function).parameters
    described = [*contract.arrays, *(name.partition(".")[0] for name in contract.sizes)]
    unknown = [name for name in described if name not in parameters]
    if unknown:
        raise ValueError(f"the contract of {function.__name__} has {unknown[0]}, expected some of {list(parameters)}")
    for name, parameter in parameters.items():
        if _is_array(parameter) and name not in described:
            raise ValueError(
                f"the contract of {function.__name__} lacks {name}, expected '{name}: axes', or, if it is no array, "
                "a type hint; a backward pass has the names of the forward pass, as dy for the gradient of its result y"
            )
    axes = [axis for x in (*contract.arrays.values(), *contract.results) for axis in x.axes]
    letters = {"N"}.union(*contract.sizes.values(), *(re.findall(r"[A-Z][a-z]?|[a-z]", axis) for axis in axes))
    wrong = set(re.findall(r"[A-Za-z]\w*", flops)) - letters
    if wrong:
        raise ValueError(f"flops={flops!r} of {function.__name__} has {min(wrong)}, expected some of {sorted(letters)}")


def _is_array(parameter):
    hint, empty = parameter.annotation, parameter.empty
    return hint is np.ndarray or np.ndarray in get_args(hint) or (hint is empty and parameter.default is empty)


def may_be_none(parameter: inspect.Parameter) -> bool:
    """Whether the type hint of a parameter includes None."""
    return type(None) in get_args(parameter.annotation)


def match(contract: Contract, given: Mapping[str, Any]) -> Sizes:
    """The sizes of all letters, from the shapes of the arrays and from the arguments that are sizes.

    Raises
    ------
    TypeError
        If an argument that is a size is not an int.
    ValueError
        If a shape does not match. The message names the argument, its shape, the expected shape, and the arguments that
        the sizes come from.
    """
    sizes = Sizes()
    for name, letters in contract.sizes.items():
        record, _, field = name.partition(".")
        value = getattr(given[record], field) if field else given[record]
        values = value if isinstance(value, tuple) else (value,)
        for letter, value in zip(letters, values, strict=True):
            if not isinstance(value, int) and value not in GATES:
                raise TypeError(f"{name}={value!r} is a {type(value).__name__}, expected an int")
            sizes.learn(letter, GATES.get(value, value), name)
    for argument in sorted(contract.arrays.values(), key=lambda argument: argument.broadcasts):
        x = given[argument.name]
        if x is not None:
            _match(argument, x.shape, sizes, contract.not_empty)
    return sizes


def _match(argument, shape, sizes, not_empty):
    before = dict(sizes)
    if argument.broadcasts:
        fits = broadcasts_to(shape, sizes.shape_of(argument))
    else:
        axes = _without_dots(argument, shape, sizes)
        fits = axes is not None and all(
            _learn(axis, size, sizes, f"{argument.name} {shape}") for axis, size in zip(*axes, strict=True)
        )
    if not fits or any(sizes[x] == 0 for x in not_empty if x in sizes and x not in before):
        known = {x: before[x] for axis in argument.axes for x in axis.split("*") if x in before}
        told = [f"{x} = {size} from {sizes.source[x]}" for x, size in known.items()]
        told += [f"{x} divisible by {sizes.of(x)[0]}" for x in argument.axes if "*" in x and _has_unknown(x, before)]
        told += [
            f"{x} at least 1" for axis in argument.axes for x in axis.split("*") if x in not_empty and x not in known
        ]
        expected = f"one that broadcasts to {argument}" if argument.broadcasts else argument
        reasons = f" with {', '.join(told)}" if told else ""
        index = index_that_fits(shape, sizes.shape_of(argument)) if argument.broadcasts else None
        advice = f": try {argument.name}[{index}]" if index else ""
        raise ValueError(f"{argument.name} has shape {shape}, expected {expected}{reasons}{advice}")


def _has_unknown(axis, sizes):
    return any(not factor.isdecimal() and factor not in sizes for factor in axis.split("*"))


def _without_dots(argument, shape, sizes):
    """(axes, their sizes) without ``...``, whose sizes are stored or compared here; None if they do not match."""
    axes = argument.axes
    if "..." not in axes:
        return (axes, shape) if len(axes) == len(shape) else None
    place, n_leading = axes.index("..."), len(shape) - len(axes) + 1
    leading = shape[place : place + n_leading]
    if n_leading < 0 or sizes.get("...", leading) != leading:
        return None
    if "..." not in sizes:
        sizes.learn("...", leading, f"{argument.name} {shape}")
    return axes[:place] + axes[place + 1 :], shape[:place] + shape[place + n_leading :]


def _learn(axis, size, sizes, source):
    """Whether an axis may have this size; stores the size of a letter that was not known."""
    known, unknown = sizes.of(axis)
    if not unknown:
        return size == known
    if len(unknown) > 1 or known == 0 or size % known:
        return False
    sizes.learn(unknown[0], size // known, source)
    return True


def broadcasts_to(shape: tuple, target: tuple) -> bool:
    """Whether an array of ``shape`` broadcasts to exactly ``target``.

    Examples
    --------
    >>> broadcasts_to((1, 7), (5, 7)), broadcasts_to((5, 7), (1, 7))
    (True, False)
    """
    axes = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, wanted) for size, wanted in axes)


def index_that_fits(shape: tuple, target: tuple) -> str | None:
    """The index after which an array of ``shape`` broadcasts to ``target``, by axes more or by an axis of size 1 less.

    Examples
    --------
    >>> index_that_fits((2, 5), (2, 8, 3, 5)), index_that_fits((2, 1, 1, 5), (2, 3, 5))
    (':, None, None', ':, 0')
    """
    for n in range(1, len(target) - len(shape) + 1):
        for i in range(1, len(shape)):
            if broadcasts_to(shape[:i] + (1,) * n + shape[i:], target):
                return ", ".join([":"] * i + ["None"] * n)
    for i, size in enumerate(shape):
        if size == 1 and broadcasts_to(shape[:i] + shape[i + 1 :], target):
            return ", ".join([":"] * i + ["0"])
    return None
