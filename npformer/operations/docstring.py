"""The docstring of an operation: what its contract and its signature say, and what its function
says beyond them.
"""

import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from inspect import Parameter, cleandoc, getdoc
from typing import Literal, NamedTuple, get_args, get_origin

from npformer.operations.contract import Argument, may_be_none

KINDS = {"mask": "bool", "ids": "int"}  # the others have floats
OPTIONAL = ", optional"
EXAMPLES = re.compile(r"\n(?:Examples\n-+\n|(?=>>> ))")
ENTRY = re.compile(
    r"^(\w.*)\n((?: +.*\n?)+)", re.MULTILINE
)  # names, and the indented text below them


def insert_parameters(base: type, cls: type, mark: str) -> None:
    """Write the parameters that the docstring of a class tells into that of a subclass, in place of
    a mark.
    """
    if cls.__doc__:  # not with python -OO
        _, _, rest = (getdoc(base) or "").partition("Parameters\n----------\n")
        parameters, _, _ = rest.partition("\n\n")
        cls.__doc__ = (getdoc(cls) or "").replace(mark, parameters)


def docstring_of(record) -> str:
    """The docstring of an operation with sections for all its parameters and results.

    That of its function has sections only for names of which there is more to say than the contract
    does, without types, and its examples need no heading.

    >>> from npformer import reference
    >>> "rstd : (..., 1)" in reference.layer_norm_backward.__doc__
    True
    >>> reference.linear.__doc__.splitlines()[4:7]
    ['x : (..., D)', 'weight : (D, F)', 'bias : (F,), optional']
    """
    contract = record.contract
    parameters = record.parameters
    forward = record.forward and record.forward.record
    described, *examples = EXAMPLES.split(cleandoc(record.function.__doc__ or ""), maxsplit=1)
    text, *sections = re.split(r"\n(?:Parameters|Returns)\n-+\n", described)
    entries = _entries_of_forward(forward) if forward else {}
    for section in sections:
        for names, words in ENTRY.findall(section):
            entry = Entry(names.split(", "), words.rstrip())
            entries |= dict.fromkeys(entry.names, entry)
    types = {
        name: _type_of(contract.arrays.get(name), parameter)
        for name, parameter in parameters.items()
    }
    lines = [text.rstrip(), "", "Parameters", "----------", *_section(types, entries), ""]
    if contract.results:
        results = {x.name: _type_of_result(x, forward) for x in contract.results}
        lines += ["Returns", "-------", *_section(results, entries), ""]
    if forward:
        lines += ["See Also", "--------", f"{forward.name} : the forward pass", ""]
    if examples:
        lines += ["Examples", "--------", *examples]
    return "\n".join(lines).rstrip() + "\n"


class Entry(NamedTuple):
    """What a docstring says of some names together."""

    names: list[str]
    words: str  # indented lines, "" for none


def _entries_of_forward(forward) -> dict[str, Entry]:
    """What is to be said, by name, of the results of the forward pass, and of their gradients."""
    entries = {}
    for result in forward.contract.results:
        name = result.name
        entries[name] = Entry([name], f"    Result of ``{forward.name}``.")
        entries[f"d{name}"] = Entry([f"d{name}"], f"    Gradient with respect to {name}.")
    return entries


def _section(types, entries) -> Iterator[str]:
    """The lines of a section: names with their types, and what there is to say of them, of some
    together.
    """
    for name in types:
        names, words = entries.get(name, Entry([name], ""))
        if name != names[0]:
            continue
        kinds = dict.fromkeys(types[x].removesuffix(OPTIONAL) for x in names)
        optional = OPTIONAL if types[name].endswith(OPTIONAL) else ""
        yield f"{', '.join(names)} : {', '.join(kinds)}{optional}"
        if words:
            yield words


def _type_of_result(x: Argument, forward) -> str:
    """The type of a result; a gradient is None where the argument is."""
    argument = forward.parameters.get(x.name.removeprefix("d")) if forward else None
    optional = " or None" if argument and may_be_none(argument) else ""
    return _type_of_array(x) + optional


def _type_of_array(x: Argument) -> str:
    kind = KINDS.get(x.kind, "")
    shape = str(x) if x.axes else "scalar"
    if x.broadcasts:
        return f"{kind}, broadcasts to {shape}" if kind else f"broadcasts to {shape}"
    return f"{kind} {shape}".lstrip()


def _type_of(argument: Argument | None, parameter: Parameter) -> str:
    """The type of an argument, which may be no array."""
    hint = parameter.annotation
    optional = ""
    if parameter.default is not parameter.empty:
        optional = OPTIONAL
    elif may_be_none(parameter):
        optional = " or None"
    if argument is not None:
        return _type_of_array(argument) + optional
    kind = get_args(hint)[0] if may_be_none(parameter) else hint
    if get_origin(kind) is Literal:
        return "{" + ", ".join(map(repr, get_args(kind))) + "}" + optional
    name = getattr(get_origin(kind) or kind, "__name__", str(kind))
    return (name if is_dataclass(kind) else name.lower()) + optional
