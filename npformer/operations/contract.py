"""The contract of an operation: one line that states the axes and the kind of each array.

A contract reads ``arguments -> results``::

    q: ... T K>0, k: ... S K, v: ... S Kv, keep_mask: ~ ... T S mask
    -> out: ... T Kv, weights: ... T S

======================= ======================================================================
``x: B T 3*H*K``        an array of floats with these axes. A letter has the same size
                        everywhere in the contract. In a product, at most one letter may have
                        a size that is not known yet.
``x: B T (H+2*G)*K``    a factor may be a sum of products, of letters whose sizes are known
``x: ... D``            any number of leading axes, which have the same sizes wherever ``...``
                        occurs
``D>0``                 an axis with at least one entry
``n_heads = H``         an argument that is a size, or, as in ``table_shape = V D``, a tuple
                        of sizes
``settings.width = D``  a field of an argument that is a size
``n_kv_heads = G or H`` an argument or a field that is a size, or None for the size of another
                        letter
``INPUTS[name] = I``    the name of a size in a table, which is given beside the contract:
                        ``tables={"INPUTS": …}``
``G divides H``         a condition on sizes; ``2 divides K if x``: only if the array ``x`` is
                        not None
``~ ... T S``           broadcasts to these axes
``mask``                an array of booleans
``ids<V``               an array of integers from 0 to V - 1, except entries equal to
                        ``ignore_id``
``wide``                floats, which are float32 if the other arrays have half precision
``written``             floats that the operation modifies in place
``loss: wide``          a result without axes is a single number
``-> dq: ... T K, *``   more arrays of floats are returned after these
======================= ======================================================================

The name of an axis is one capital letter, optionally followed by a small letter, or one small
letter. An array may be None if its type hint allows it: ``bias: Array | None``. Arguments that the
contract does not name are options: ``npformer.operations.options`` checks them against their type
hints, and against the ranges of common names such as ``eps`` and ``dropout_rate``.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, get_args

import numpy as np

from npformer.errors import UserError

KINDS = {"mask", "ids", "wide", "written"}
LETTER = r"(?:[A-Z][a-z]?|[a-z])"
PRODUCT = rf"(?:\d+|{LETTER})(?:\*(?:\d+|{LETTER}))*"
SUM = rf"\({PRODUCT}(?:\+{PRODUCT})+\)"
AXIS = rf"(?:{SUM}|{PRODUCT})(?:\*(?:{SUM}|{PRODUCT}))*"
WORD = re.compile(rf"~|\.\.\.|{AXIS}|mask|wide|written|ids(<\w+)?")
SIZE = re.compile(
    rf"(?:(\w+)\[(\w+)\]|(\w+)(?:\.(\w+))?) *= *({LETTER}(?: +{LETTER})*)(?: +or +({LETTER}))?"
)
CONDITION = re.compile(rf"(\d+|{LETTER}) +divides +({LETTER})(?: +if +(\w+))?")


class Argument(NamedTuple):
    """An array, as a contract describes it."""

    name: str
    axes: tuple[str, ...]  # "...", letters, numbers, products and sums
    kind: str = "float"
    below: str = ""  # the letter whose size is the upper bound of ids
    broadcasts: bool = False

    def __str__(self) -> str:
        return "(" + ", ".join(self.axes) + ("," if len(self.axes) == 1 else "") + ")"


class Size(NamedTuple):
    """An argument, or a field of one, that is a size, as a contract describes it."""

    argument: str
    field: str  # "" for the argument itself
    letters: tuple[str, ...]  # several if the argument is a tuple of sizes
    default: str = ""  # the letter whose size it has if it is None
    table: Mapping[str, int] | None = None  # has the size, if the argument is a name


class Condition(NamedTuple):
    """That a number or the size of a letter divides the size of another letter."""

    divisor: str
    dividend: str
    array: str  # it holds only if this array is not None; "" for always


class Contract(NamedTuple):
    """The arrays that an operation takes and returns, and its arguments that are sizes."""

    arrays: dict[str, Argument]
    sizes: dict[str, Size]  # by "argument" or "argument.field"
    conditions: tuple[Condition, ...]
    results: tuple[Argument, ...]
    more: bool  # whether more arrays are returned after ``results``
    not_empty: frozenset[str]  # letters whose size must be at least 1


def parse(text: str, tables: Mapping[str, Mapping[str, int]] | None = None) -> Contract:
    """Parse a contract.

    >>> contract = parse("x: ... D>0, n_heads = H -> y: ... H wide")
    >>> contract.arrays["x"].axes, contract.sizes["n_heads"].letters, contract.results[0].kind
    (('...', 'D'), ('H',), 'wide')
    """
    inputs, _, outputs = text.replace(">0", "").partition("->")
    arrays, sizes, conditions = {}, {}, []
    for item in filter(None, map(str.strip, inputs.split(","))):
        size = SIZE.fullmatch(item)
        condition = CONDITION.fullmatch(item)
        if size:
            table, key, argument, field, letters, default = size.groups("")
            if table and table not in (tables or {}):
                expected = f"tables={{{table!r}: …}} beside the contract"
                raise UserError(f"contract {text!r}: {item!r}, expected {expected}")
            name = f"{argument}.{field}" if field else key or argument
            of_table = (tables or {}).get(table)
            sizes[name] = Size(key or argument, field, tuple(letters.split()), default, of_table)
        elif condition:
            conditions.append(Condition(*condition.groups("")))
        else:
            array = _argument(text, item)
            arrays[array.name] = array
    items = filter(None, map(str.strip, outputs.removesuffix("*").split(",")))
    return Contract(
        arrays,
        sizes,
        tuple(conditions),
        results=tuple(_argument(text, item) for item in items),
        more=outputs.endswith("*"),
        not_empty=frozenset(re.findall(r"(\w+)>0", text)),
    )


def _argument(text, item):
    """An array, as the item of a contract describes it."""
    name, colon, description = item.partition(":")
    name = name.rstrip()
    if not (colon and re.fullmatch(r"\w+", name)):
        expected = "'array: axes', 'argument = letters' or 'letter divides letter'"
        raise UserError(f"contract {text!r}: {item!r}, expected {expected}")
    words = description.split()
    for word in words:
        if not WORD.fullmatch(word):
            raise UserError(f"contract {item!r}: {word!r} is no axis and no kind")
    broadcasts = words[:1] == ["~"]
    if broadcasts:
        words = words[1:]
    kind, _, below = words[-1].partition("<") if words else ("", "", "")
    if kind not in KINDS:
        return Argument(name, tuple(words), broadcasts=broadcasts)
    return Argument(name, tuple(words[:-1]), kind, below, broadcasts)


def factors_of(axis: str) -> list[str]:
    """The numbers, letters and sums whose product an axis is.

    >>> factors_of("2*(H+2*G)*K")
    ['2', '(H+2*G)', 'K']
    """
    return re.findall(r"\([^)]*\)|[^*]+", axis)


def letters_of(*axes: str) -> list[str]:
    """The letters of axes, as often as they occur.

    >>> letters_of("...", "2*(H+2*G)*Kv")
    ['H', 'G', 'Kv']
    """
    return re.findall(LETTER, " ".join(axes))


def contract_of_backward(forward: Contract, backward: Callable) -> Contract:
    """The contract of a backward pass, derived from that of the forward pass.

    ``dy`` has the axes of the result ``y``, and every other argument those of the argument or
    result of the same name. The results are one gradient for each array of floats that the forward
    pass takes.
    """
    described = {x.name: x for x in (*forward.arrays.values(), *forward.results)}
    for result in forward.results:  # gradients come last, so that the sizes are known by then
        name = f"d{result.name}"
        described[name] = Argument(name, result.axes)
    names = inspect.signature(backward).parameters
    arrays = {name: x for name, x in described.items() if name in names}
    sizes = {name: size for name, size in forward.sizes.items() if size.argument in names}
    letters = _letters_of_inputs(arrays, sizes)
    conditions = []
    for condition in forward.conditions:
        divisor, dividend, array = condition
        if letters.issuperset(letters_of(divisor, dividend)) and array in ("", *arrays):
            conditions.append(condition)
    floats = [x for x in forward.arrays.values() if x.kind == "float"]
    gradients = tuple(Argument(f"d{x.name}", x.axes, broadcasts=x.broadcasts) for x in floats)
    return Contract(arrays, sizes, tuple(conditions), gradients, False, forward.not_empty)


def _letters_of_inputs(arrays, sizes):
    """The letters of the axes of arrays, and those of arguments that are sizes."""
    letters = {letter for size in sizes.values() for letter in size.letters}
    return letters.union(*(letters_of(*x.axes) for x in arrays.values()))


def check_contract(contract: Contract, function: Callable, flops: str = "") -> None:
    """Raise ``UserError`` unless a contract describes each array argument of a function, and
    nothing else.

    An array has the type hint of one, or neither a type hint nor a default value. The contract also
    has to tell each size that is needed to check another, and to have each letter of ``flops``.
    """
    parameters = inspect.signature(function).parameters
    described = [*contract.arrays, *(size.argument for size in contract.sizes.values())]
    unknown = [name for name in described if name not in parameters]
    if unknown:
        problem = f"the contract of {function.__name__} has {unknown[0]}"
        raise UserError(f"{problem}, expected some of {list(parameters)}")
    for name, parameter in parameters.items():
        if _is_array(parameter) and name not in described:
            raise UserError(
                f"the contract of {function.__name__} lacks {name}, expected '{name}: axes', or, "
                "if it is no array, a type hint; a backward pass has the names of the forward "
                "pass, as dy for the gradient of its result y"
            )
    _check_sizes(contract, function.__name__, parameters)
    _check_axes(contract, function.__name__, parameters)
    results = letters_of(*(axis for x in contract.results for axis in x.axes))
    letters = {"N"}.union(results, _letters_of_inputs(contract.arrays, contract.sizes))
    wrong = set(re.findall(r"[A-Za-z]\w*", flops)) - letters
    if wrong:
        problem = f"flops={flops!r} of {function.__name__} has {min(wrong)}"
        raise UserError(f"{problem}, expected some of {sorted(letters)}")


def _check_sizes(contract, operation, parameters):
    """Check that a size which may be None has a default that is known by then, and that conditions
    can be checked.
    """
    letters: set[str] = set()
    for name, size in contract.sizes.items():
        has_right_default = size.field or may_be_none(parameters[name]) == bool(size.default)
        if not has_right_default or not letters.issuperset(letters_of(size.default)):
            raise UserError(
                f"the contract of {operation} has {name} = {' '.join(size.letters)}, expected 'or' "
                "and the letter of an argument before it if, and only if, its type hint includes "
                "None, as in 'n_kv_heads = G or H'"
            )
        letters.update(size.letters)
    letters = _letters_of_inputs(contract.arrays, contract.sizes)
    for divisor, dividend, array in contract.conditions:
        unknown = [letter for letter in letters_of(divisor, dividend) if letter not in letters]
        if array and array not in contract.arrays:
            unknown.append(array)
        if unknown:
            condition = f"{divisor} divides {dividend}"
            named = f"the contract of {operation} has the condition {condition}"
            raise UserError(f"{named}, but no {unknown[0]}")


def _check_axes(contract, operation, parameters):
    """Check that sizes can be learned in the order in which ``match`` does so."""
    letters = {letter for size in contract.sizes.values() for letter in size.letters}
    for x in in_order(contract):
        learned = set(letters)
        for axis in x.axes:
            factors = factors_of(axis)
            unknown = [factor for factor in factors if not learned.issuperset(letters_of(factor))]
            is_letter = len(unknown) == 1 and not unknown[0].startswith("(")
            if unknown and (x.broadcasts or not is_letter):
                raise UserError(
                    f"the contract of {operation} does not tell {' and '.join(unknown)} of "
                    f"{x.name}: {axis}, expected an argument or an earlier array that does, as in "
                    "'n_heads = H'; only one letter of a product can be learned from a shape"
                )
            learned.update(letters_of(axis))
        if not may_be_none(parameters[x.name]):
            letters = learned


def in_order(contract: Contract) -> list[Argument]:
    """The arrays in the order in which sizes are learned from them: those that only broadcast come
    last.
    """
    return sorted(contract.arrays.values(), key=lambda argument: argument.broadcasts)


def _is_array(parameter):
    hint, empty = parameter.annotation, parameter.empty
    return (
        hint is np.ndarray
        or np.ndarray in get_args(hint)
        or (hint is empty and parameter.default is empty)
    )


def may_be_none(parameter: inspect.Parameter) -> bool:
    """Whether the type hint of a parameter includes None."""
    return type(None) in get_args(parameter.annotation)
