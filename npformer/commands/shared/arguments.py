"""Types and options that the command lines of several commands and scripts share."""

import argparse
import itertools
import math
import re
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path

from npformer.commands import COMMANDS, called, close_names, did_you_mean

from npformer.extras import BOOK

LARGEST = 2**31 - 1
LARGEST_SEED = 2**64 - 1
# Memory and time grow with most of these: a slip of the hand would take all of both.
AT_MOST = {
    "beam_size": 1000,
    "max_len": 2**16,
    "subwords": 10**6,
    "vocab_size": 10**6,
    "seed": LARGEST_SEED,
}
# What options of other programs are called here.
CALLED_HERE = {
    "--epoch": "--steps",
    "--epochs": "--steps",
    "--iterations": "--steps",
    "--learning-rate": "--lr",
    "--device": "--backend",
}
# As in "max_len=60". It is a heuristic on text: where it misses, a message stays as the library has
# it, with the name of the argument in place of the option.
NAME_AND_VALUE = re.compile(r"(?<![\w./(-])([a-z]\w*)=([^\s,;:)]*[^\s,;:.)])")
PARSER: ContextVar = ContextVar("PARSER", default=None)  # of the command that runs, if it has one


class UsageError(Exception):
    """What is wrong with the command line as a whole: the command ends as the parser does, with the
    usage and exit code 2.
    """


class Parser(argparse.ArgumentParser):
    """A parser that says first which option it does not know, and of a slip of the hand what was
    meant.

    Attributes
    ----------
    words : list of str
        What it parses.
    options : Namespace
        What it has parsed.
    typed_after : dict
        Words that are no choice, but are typed after one, and both together.
    """

    words: Sequence[str] = ()
    options = argparse.Namespace()
    typed_after: dict[str, str] = {}

    def add(self, name, meaning="", default=None, **details):
        """An argument, or an option, with what the help says of it, and its default."""
        if default is not None:
            meaning = with_default(meaning, default)
        self.add_argument(name, help=meaning, default=default, **details)

    def parse_known_args(self, args=None, namespace=None):
        """Parse what `sys.argv` or ``args`` has, as ``argparse`` does."""
        self.words = sys.argv[1:] if args is None else list(args)
        self._refuse_unknown_options()
        self.options, others = super().parse_known_args(self.words, namespace)
        for action in self._get_positional_actions():
            if others and action.type is utf_8 and action.nargs is None:
                word = f"{getattr(self.options, action.dest)!r:.40}"
                self.error(f"put the text in quotes, not only its first word, {word}")
        return self.options, others

    def _refuse_unknown_options(self):
        words = itertools.takewhile(lambda word: word != "--", self.words)
        if self._subparsers:  # what follows the subcommand is for another parser
            words = itertools.takewhile(lambda word: word.startswith("-"), words)
        for word in words:
            name = word.partition("=")[0]
            # A number below 0 is no option, and neither is a text with spaces.
            if re.match(r"-[^\d.]", name) and " " not in name and not self._is_option(name):
                names = self._option_string_actions
                called_here = CALLED_HERE.get(name)
                others = [called_here] if called_here in names else close_names(name, names)
                self.error(f"unknown option {name:.40}{did_you_mean(others)}")

    def values_of_types(self, *types):
        """The name and the value of each option whose type is one of these."""
        for action in self._actions:
            if action.type in types:
                yield action.option_strings[-1], getattr(self.options, action.dest)

    def _is_option(self, name):
        names = self._option_string_actions
        is_begun = self.allow_abbrev and any(option.startswith(name) for option in names)
        return name in names or is_begun

    def error(self, message):
        """Say what is wrong with the command line, and exit with 2."""
        super().error(self.as_typed(message, is_advice=True))

    def as_typed(self, message, is_advice=False):
        """A message of the library with the options of the command line: "max_len=60" becomes
        "--max-len 60" if it was typed, and "skip_empty=True", which is advice, "--skip-empty".

        A message about the command line itself may advise any value (``is_advice``). What is a
        word of the command line, such as the folder "lr=0.1", is no option.
        """
        options = {each.dest: each for each in self._actions if each.option_strings}

        def shown(match):
            text, name, value = match[0], match[1], match[2]
            option = options.get(name)
            if option is None or text in self.words:
                return text
            if option.nargs == 0:
                return option.option_strings[-1] if value == "True" else text
            now = getattr(self.options, name, option.default)
            is_typed = now != option.default and value in (str(now), repr(now))
            return f"{option.option_strings[-1]} {value}" if is_typed or is_advice else text

        return NAME_AND_VALUE.sub(shown, message)

    def _check_value(self, action, value):
        if action.choices is not None and value not in action.choices:
            close = close_names(value, [*action.choices, *self.typed_after])
            others = did_you_mean([self.typed_after.get(name, name) for name in close])
            others = others or one_of("one", action.choices)
            raise argparse.ArgumentError(action, f"{value!r:.40}{others}")


def with_default(meaning, default):
    """The meaning of an option with its default, a number without zeros behind it, unless the
    meaning has it.
    """
    if "(default" in meaning:
        return meaning
    text = f"{default:g}" if isinstance(default, float) else default
    return f"{meaning} (default: {text})".lstrip()


def in_words_of_the_command_line(message):
    """``Parser.as_typed`` of the command that runs; the message as it is if there is no parser."""
    parser = PARSER.get()
    return parser.as_typed(message) if parser else message


def new_parser(docstring, **settings):
    """The parser of a command, whose help begins with the docstring of its module."""
    parser = Parser(**shown_as_written(docstring), **settings)
    PARSER.set(parser)
    return parser


def shown_as_written(docstring):
    """The settings of a parser that show a docstring line by line, with "npformer COMMAND" as the
    user calls it, and pages of the book as addresses.
    """
    names = "|".join(COMMANDS)
    text = docstring or ""  # there is none with -OO
    text = re.sub(rf"\bnpformer ({names})(?![\w-])", lambda match: called(match[1]), text)
    text = re.sub(r"\bdocs/(?=\S+\.md)", f"{BOOK}/", text)
    return {"description": text, "formatter_class": argparse.RawDescriptionHelpFormatter}


def in_range(option, name="", at_most=None):
    """The type of an argument that is a number in the range of an ``Option`` of npformer, which may
    be given by its name in ``operations.options``, such as AT_LEAST_1.
    """

    def parse(text):
        from npformer.operations import options  # here, as it needs NumPy

        range_of = getattr(options, option) if isinstance(option, str) else option
        kind, fits, expected = range_of
        try:
            value = kind(text)
        except ValueError:
            number = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text:.40}, expected {number}") from None
        if not fits(value):
            expected = expected.format(name=name)
            raise argparse.ArgumentTypeError(f"{text:.40}, expected {expected}")
        most = at_most or AT_MOST.get(name) or (LARGEST if kind is int else math.inf)
        if value > most:
            raise argparse.ArgumentTypeError(f"{text:.40}, expected at most {most}")
        return value

    return parse


positive = in_range("AT_LEAST_1")


def named_path(text):
    """The type of an argument that is a path."""
    if text == "":  # of which ``Path`` would make the current folder
        raise argparse.ArgumentTypeError("'' is no name, expected one; . is the current folder")
    return Path(text)


def utf_8(text):
    """Text that is UTF-8. (In arguments, Python replaces other bytes by surrogates.)"""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r:.40}, expected UTF-8") from error
    return text


def words(text):
    """Text that is not empty."""
    if not utf_8(text).strip():
        raise argparse.ArgumentTypeError("it is empty, expected one or more words")
    return text


def one_of(how_many, names):
    """The end of a message that lists names."""
    return f", expected {how_many} of {','.join(names)}"


def backend(name):
    """The backend with this name."""
    from npformer.backends import get_backend  # here, as it needs NumPy

    try:
        return get_backend(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("backend=")) from error
