"""The docstring of an operation: what its contract and its signature say, and what its function says beyond them."""

import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from inspect import Parameter, cleandoc, getdoc
from typing import Literal, get_args, get_origin

from npformer.operations.contract import Argument, may_be_none

KINDS = {"mask": "bool", "ids": "int"}  # the others have floats
OPTIONAL = ", optional"
EXAMPLES = re.compile(r"\n(?:Examples\n-+\n|(?=>>> ))")
ENTRY = re.compile(r"^(\w.*)\n((?: +.*\n?)+)", re.MULTILINE)  # names, and the indented text below them


def insert_parameters(base: type, cls: type, mark: str) -> None:
    """Write the parameters that the docstring of a class tells into that of a subclass, in place of a mark."""
    if cls.__doc__:  # not with python -OO
        _, _, rest = (getdoc(base) or "").partition("Parameters\n----------\n")
        parameters, _, _ = rest.partition("\n\n")
        cls.__doc__ = (getdoc(cls) or "").replace(mark, parameters)


def docstring_of(record) -> str:
    """The docstring of an operation with sections for all its parameters and results.

    That of its function has sections only for names of which there is more to say than the contract does, without
    types, and its examples need no heading.

    >>> from npformer import reference
    >>> "rstd : (..., 1)" in reference.layer_norm_backward.__doc__
    True
    >>> reference.linear.__doc__.splitlines()[4:7]
    ['x : (..., D)', 'weight : (D, F)', 'bias : (F,), optional']
    """
    contract, parameters, forward = record.contract, record.parameters, record.forward and record.forward.record
    described, *examples = EXAMPLES.split(cleandoc(record.function.__doc__ or ""), maxsplit=1)
    text, *sections = re.split(r"\n(?:Parameters|Returns)\n-+\n", described)
    entries = [(names.split(", "), words.rstrip()) for section in sections for names, words in ENTRY.findall(section)]
    told = _told_of_forward(parameters, forward) if forward else {}
    told |= {name: (names, words) for names, words in entries for name in names}
    types = {name: _type_of(contract.arrays.get(name), parameter) for name, parameter in parameters.items()}
    lines = [text.rstrip(), "", "Parameters", "----------", *_section(types, told), ""]
    if contract.results:
        results = {x.name: _type_of_result(x, forward) for x in contract.results}
        lines += ["Returns", "-------", *_section(results, told), ""]
    if forward:
        lines += ["See Also", "--------", f"{forward.name} : the forward pass", ""]
    if examples:
        lines += ["Examples", "--------", *examples]
    return "\n".join(lines).rstrip() + "\n"


def _told_of_forward(parameters, forward) -> dict[str, tuple[list[str], str]]:
    """What is to be said of the results of the forward pass, and of their gradients."""
    results = {result.name for result in forward.contract.results}
    words = dict.fromkeys(results, f"    Result of ``{forward.name}``.")
    words |= {f"d{name}": f"    Gradient with respect to {name}." for name in results}
    return {name: ([name], words[name]) for name in parameters if name in words}


def _section(types, told) -> Iterator[str]:
    """The lines of a section: names with their types, and what there is to say of them, of some together."""
    for name in types:
        names, words = told.get(name, ([name], ""))
        if name == names[0]:
            kinds = dict.fromkeys(types[x].removesuffix(OPTIONAL) for x in names)
            yield f"{', '.join(names)} : {', '.join(kinds)}" + OPTIONAL * types[name].endswith(OPTIONAL)
            yield from filter(None, [words])


def _type_of_result(x: Argument, forward) -> str:
    argument = forward.parameters.get(x.name.removeprefix("d")) if forward else None
    return _type_of_array(x) + (" or None" if argument and may_be_none(argument) else "")


def _type_of_array(x: Argument) -> str:
    shape = str(x) if x.axes else "scalar"
    if x.broadcasts:
        return ", ".join(filter(None, [KINDS.get(x.kind), f"broadcasts to {shape}"]))
    return f"{KINDS.get(x.kind, '')} {shape}".lstrip()


def _type_of(argument: Argument | None, parameter: Parameter) -> str:
    optional = " or None" if may_be_none(parameter) else ""
    optional = OPTIONAL if parameter.default is not parameter.empty else optional
    if argument is not None:
        return _type_of_array(argument) + optional
    kind = get_args(parameter.annotation)[0] if may_be_none(parameter) else parameter.annotation
    if get_origin(kind) is Literal:
        return "{" + ", ".join(map(repr, get_args(kind))) + "}" + optional
    name = getattr(get_origin(kind) or kind, "__name__", str(kind))
    return (name if is_dataclass(kind) else name.lower()) + optional
