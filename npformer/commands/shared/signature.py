"""A command whose arguments and options are the parameters of a function.

A parameter before the ``*`` is an argument of the command line, one after it an option. Its type
hint says how the text that is typed is read, and the section "Parameters" of the docstring what the
help says of it: ``name : METAVAR``, and the meaning below. A parameter that is a dataclass stands
for the fields of it, so that commands share options.
"""

import functools
import inspect
import re
import sys
from collections.abc import Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from npformer.commands.shared.arguments import (
    UsageError,
    backend,
    in_range,
    named_path,
    new_parser,
    positive,
    utf_8,
    with_default,
    words,
)
from npformer.commands.shared.ending import command
from npformer.commands.shared.output import output_file, output_folder, picture_file


class Reading:
    """The settings of ``add_argument`` that do not follow from a type alone, in ``Annotated``.

    ``flag`` is the option, if it is not the name of the parameter.
    """

    def __init__(self, **settings):
        self.settings = settings


Backend = Annotated[Any, Reading(type=backend, help="auto, cpu, gpu or reference")]
OutputFile = Annotated[Path, Reading(type=output_file, metavar="FILE")]
JsonFile = Annotated[OutputFile, Reading(help="write the figures to FILE")]
OutputFolder = Annotated[Path, Reading(type=output_folder, metavar="DIR")]
Picture = Annotated[Path, Reading(type=picture_file, metavar="PNG")]
Positive = Annotated[int, Reading(type=positive, metavar="N")]
Text = Annotated[str, Reading(type=utf_8, metavar="TEXT")]
Words = Annotated[str, Reading(type=words, metavar="TEXT")]

# An entry of the section of a docstring: names, what the help calls a value, or in the library its
# type, and the meaning.
ENTRY = re.compile(r"^(\w[\w, ]*?)(?: : (.+))?\n((?: .*(?:\n|$))+)", re.MULTILINE)
METAVARS = {int: "N", float: "X"}
NOT_GIVEN = inspect.Parameter.empty  # where a parameter has no default


class Single(NamedTuple):
    """A parameter that is one argument, or one option; without a default, it has to be typed."""

    name: str
    hint: Any
    default: Any
    is_option: bool

    def add_to(self, parser, meanings):
        """Add it to a parser, with its meaning."""
        details = {"help": ""} | details_of(self.name, self.hint) | meanings.get(self.name, {})
        flag = details.pop("flag", f"--{self.name.replace('_', '-')}")
        if details.get("action") == "store_true" and "metavar" in details:
            raise TypeError(
                f"{self.name} : {details['metavar']} in a docstring: a flag has no value, "
                f"expected {self.name} alone"
            )
        is_required = self.default is NOT_GIVEN
        if is_required and "nargs" in details:
            details["nargs"] = "+"
        if not is_required:
            # The parser reads the text of a default as if it were typed.
            is_path = isinstance(self.default, Path)
            details["default"] = str(self.default) if is_path else self.default
            if self.default not in (None, "", ()) and self.default is not False:
                details["help"] = with_default(details["help"], self.default)
        if self.is_option:
            flags = [f"-{self.name}", flag] if len(self.name) == 1 else [flag]
            parser.add_argument(*flags, dest=self.name, required=is_required, **details)
        else:
            parser.add_argument(self.name, **details)

    def value_in(self, options):
        """What was typed, or the default."""
        return getattr(options, self.name)


class Record:
    """A function or a dataclass whose parameters are arguments; its value is what it returns.

    ``defaults`` is an object that has other defaults than the dataclass.
    """

    def __init__(self, owner, defaults=None):
        self.owner = owner
        self.parts = {}
        for name, parameter in inspect.signature(owner).parameters.items():
            default = getattr(defaults, name, parameter.default)
            self.parts[name] = part_of(parameter, default)

    def add_to(self, parser, meanings):
        """Add the arguments; ``meanings`` are those that the docstring of a function has."""
        meanings = meanings_in(self.owner) | meanings
        for part in self.parts.values():
            part.add_to(parser, meanings)

    def value_in(self, options):
        """Call the function, or make the record."""
        return self.owner(**{name: part.value_in(options) for name, part in self.parts.items()})


class Fields:
    """A dict of the fields of settings that were typed, in ``Annotated``: each is an option.

    Parameters
    ----------
    settings : type
        A dataclass, whose docstring says of a field what the help does, in the first sentence,
        unless the function does.
    names : str
        Which of its fields.
    defaults : dict
        What the help shows, where it is not the default of the field; "" is not shown.
    title : str, optional
        Of a group of the help.
    """

    def __init__(self, settings, names, defaults=None, title=None):
        self.settings = settings
        self.title = title
        self.parts = {}
        for name in names.split():
            parameter = inspect.signature(settings).parameters[name]
            default = (defaults or {}).get(name, parameter.default)
            if default is NOT_GIVEN:
                default = ""
            elif default is None:
                default = "none"
            self.parts[name] = Single(name, parameter.annotation, default, is_option=True)

    def add_to(self, parser, meanings):
        """Add the options. The parser has no default for them, so that it tells what was typed."""
        group = parser.add_argument_group(self.title) if self.title else parser
        of_settings = {
            name: {"help": as_help(meaning["help"])}
            for name, meaning in meanings_in(self.settings).items()
        }
        for part in self.parts.values():
            part.add_to(group, of_settings | meanings)
        parser.set_defaults(**dict.fromkeys(self.parts))

    def value_in(self, options):
        """The fields that were typed."""
        values = {name: getattr(options, name) for name in self.parts}
        return {name: value for name, value in values.items() if value is not None}


def command_line(function):
    """Decorate a function, so that it is ``main(argv)``, which parses the arguments, and ends as
    ``command`` does.

    The help begins with the docstring of the module.
    """
    module = sys.modules[function.__module__]
    arguments = Record(function)

    @command
    @functools.wraps(function)
    def main(argv=None):
        parser = new_parser(module.__doc__, allow_abbrev=False)
        arguments.add_to(parser, {})
        options = parser.parse_args(argv)
        try:
            return arguments.value_in(options)
        except UsageError as error:
            parser.error(str(error))

    return main


def part_of(parameter, default):
    """The part of a command line that is a parameter of a function, or a field of a record."""
    hint = parameter.annotation
    for each in get_args(hint):
        if isinstance(each, Fields):
            return each
    if is_dataclass(hint):
        return Record(hint, default)
    return Single(parameter.name, hint, default, parameter.kind is parameter.KEYWORD_ONLY)


def details_of(name, hint):
    """The settings of ``add_argument`` that follow from the name and the type hint of a
    parameter.
    """
    from npformer.operations.options import Option, option_of  # here, as it needs NumPy

    kinds = get_args(hint)
    origin = get_origin(hint)
    if origin in (Union, UnionType):  # X | None; of several types, the first is typed
        return details_of(name, kinds[0])
    if origin is Annotated:
        details = details_of(name, kinds[0])
        for each in hint.__metadata__:
            details |= of_number(each, name) if isinstance(each, Option) else each.settings
        return details
    if origin is Sequence:
        return details_of(name, kinds[0]) | {"nargs": "*"}
    if origin is Literal:
        return {"choices": kinds}
    if hint is bool:
        return {"action": "store_true"}
    if hint is Path:
        return {"type": named_path}
    option = option_of(name, hint)
    return of_number(option, name) if option else {"type": hint}


def of_number(option, name):
    """The settings of ``add_argument`` for a number in the range of an ``Option``."""
    return {"type": in_range(option, name), "metavar": METAVARS[option.kind]}


def meanings_in(owner):
    """What the docstring of a function, or of a class and its bases, says of each parameter, as
    settings of ``add_argument``. With -OO there are no docstrings, and the help has no meanings.
    """
    meanings = {}
    for each in reversed(inspect.getmro(owner) if inspect.isclass(owner) else [owner]):
        _, _, section = inspect.cleandoc(each.__doc__ or "").partition("Parameters\n----------\n")
        for names, metavar, text in ENTRY.findall(section):
            meaning = {"help": " ".join(text.split())}
            if metavar:
                meaning["metavar"] = metavar
            if not meaning["help"].startswith("As of"):  # what the base says stands
                meanings |= dict.fromkeys(names.split(", "), meaning)
    return meanings


def as_help(text):
    """The first sentence of what a docstring of the library says, as the help says it.

    >>> as_help("Width D of ``x``. It is 8 or more.")
    'width D of x'
    """
    sentence, _, _ = text.replace("``", "").rstrip(".").partition(". ")
    return sentence[0].lower() + sentence[1:]
