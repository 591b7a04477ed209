"""What the contract of a backward pass says about its arguments and results, written into its docstring."""

from collections.abc import Callable
from inspect import cleandoc
from typing import Literal, get_args, get_origin

from npformer.operations.contract import Argument, Contract, may_be_none

KINDS = {"mask": "bool ", "ids": "int ", "float": "", "wide": "", "written": ""}


def docstring_of_backward(function: Callable, contract: Contract, parameters, forward) -> str:
    """The docstring of a backward pass with sections for its parameters and results.

    Parameters
    ----------
    function : callable
        Its docstring says what the gradients are, and may have examples.
    contract : Contract
    parameters : mapping of inspect.Parameter
    forward : Record
        Of the forward pass.

    Examples
    --------
    >>> from npformer import reference
    >>> "rstd : (..., 1)" in reference.layer_norm_backward.__doc__
    True
    """
    text, heading, examples = cleandoc(function.__doc__ or "").partition("Examples\n--------\n")
    results = {result.name for result in forward.contract.results}
    lines = ["Parameters", "----------"]
    for name, parameter in parameters.items():
        optional = " or None" if may_be_none(parameter) else ""
        optional = ", optional" if parameter.default is not parameter.empty else optional
        lines.append(f"{name} : {_type_of(contract.arrays.get(name), parameter)}{optional}")
        if name in results:
            lines.append(f"    Result of ``{forward.name}``.")
        elif name.removeprefix("d") in results:
            lines.append(f"    Gradient with respect to {name.removeprefix('d')}.")
    lines += ["", "Returns", "-------", *(_result(x, forward) for x in contract.results), ""]
    lines += ["See Also", "--------", f"{forward.name} : the forward pass"]
    return "\n".join([text.rstrip(), "", *lines, "", heading + examples]).rstrip() + "\n"


def _result(gradient, forward) -> str:
    argument = forward.parameters.get(gradient.name.removeprefix("d"))
    return f"{gradient.name} : {gradient}" + (" or None" if argument and may_be_none(argument) else "")


def _type_of(argument: Argument | None, parameter) -> str:
    if argument is not None:
        return KINDS[argument.kind] + ("that broadcasts to " if argument.broadcasts else "") + str(argument)
    kind = get_args(parameter.annotation)[0] if may_be_none(parameter) else parameter.annotation
    if get_origin(kind) is Literal:
        return "{" + ", ".join(map(repr, get_args(kind))) + "}"
    return getattr(get_origin(kind) or kind, "__name__", str(kind)).lower()
