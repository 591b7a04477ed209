"""Types and options that the command lines of several commands and scripts share."""

import argparse
import itertools
import re
import sys
from contextvars import ContextVar
from dataclasses import replace

from npformer.commands import COMMANDS, called, nearest

from npformer.runtime.extras import BOOK

LARGEST = 2**31 - 1
LARGEST_SEED = 2**64 - 1
# Memory and time grow with these: a slip of the hand would take all of both.
LARGEST_BEAM = 1000
LONGEST = 2**16
LARGEST_VOCABULARY = 10**6


NAME_AND_VALUE = re.compile(r"(?<![\w./(-])[a-z]\w*=[^\s,;:)]*[^\s,;:.)]")  # such as "max_len=60", in a message
# The parsers that the command that runs has made; ``command`` begins a list for each.
PARSERS: ContextVar[list] = ContextVar("PARSERS")


class Parser(argparse.ArgumentParser):
    """A parser that says first which option it does not know, and of a slip of the hand what was meant.

    Attributes
    ----------
    words : list of str
        What it parses.
    typed : list of (argparse.Action, value)
        The options that are among the words, with their values.
    """

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.words, self.typed = [], []

    def parse_known_args(self, args=None, namespace=None):
        """Parse what `sys.argv` or ``args`` has, as ``argparse`` does."""
        given, known = sys.argv[1:] if args is None else list(args), self._option_string_actions
        self.words, self.typed = given, []
        words = given[: given.index("--")] if "--" in given else given
        if self._subparsers:  # what follows the subcommand is for another parser
            words = itertools.takewhile(lambda word: word.startswith("-"), words)
        for word in words:
            name = word.partition("=")[0]
            is_known = name in known or (self.allow_abbrev and any(option.startswith(name) for option in known))
            if re.match(r"-[^\d.]", name) and " " not in name and not is_known:
                self.error(f"unknown option {name:.40}{nearest(name, known)}")
        return super().parse_known_args(given, namespace)

    def error(self, message):
        """Say what is wrong with the command line, and exit with 2."""
        super().error(as_typed(message, self.names_typed() | self.names_advised(message)))

    def names_typed(self):
        """What messages of the library call each option that was typed, with its value, and how it is typed.

        As a message may recommend a flag, all flags are among them. What is itself a word of the command line, such as
        the folder "lr=0.1", is not.
        """
        names = {f"{each.dest}=True": each.option_strings[-1] for each in self._actions if each.nargs == 0}
        for action, value in self.typed:
            for text in (str(value), repr(value)):
                names[f"{action.dest}={text}"] = f"{action.option_strings[-1]} {text}"
        return {name: option for name, option in names.items() if name not in self.words}

    def names_advised(self, message):
        """The same of the options that a message about the command line itself names: it may advise --top-k 1."""
        options = {
            each.dest: each.option_strings[-1] for each in self._actions if each.option_strings and each.nargs != 0
        }
        found = (text.partition("=") for text in NAME_AND_VALUE.findall(message) if text not in self.words)
        return {f"{name}={value}": f"{options[name]} {value}" for name, _, value in found if name in options}

    def _get_values(self, action, arg_strings):
        value = super()._get_values(action, arg_strings)
        if action.option_strings and action.nargs != 0:
            self.typed.append((action, value))
        return value

    def _check_value(self, action, value):
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"{value!r:.40}{meant(value, action.choices, 'one')}")


def as_typed(message, options):
    """A message of the library with the options of the command line: "max_len=60" becomes "--max-len 60".

    ``options`` are those of ``Parser.names_typed``. The arguments of a call, as in "nf.Adam(lr=0.01)", are no options.
    """
    return NAME_AND_VALUE.sub(lambda found: options.get(found[0], found[0]), message)


def names_typed():
    """``Parser.names_typed`` of the command that runs; empty if it has no parser yet."""
    parsers = PARSERS.get([])
    return parsers[-1].names_typed() if parsers else {}


def new_parser(description, **settings):
    """A parser that shows a docstring as it is written, with "npformer COMMAND" as it is called, pages as addresses."""
    names = "|".join(COMMANDS)
    text = re.sub(rf"\bnpformer ({names})(?![\w-])", lambda found: called(found[1]), description or "")  # not with -OO
    text = re.sub(r"\bdocs/(?=\S+\.md)", f"{BOOK}/", text)
    parser = Parser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
    PARSERS.get([]).append(parser)
    return parser


def option(name, at_most=None):
    """The type of an argument that is an option of npformer: what it may be is what npformer takes."""
    return in_range(lambda options: options.OPTIONS[name], name, at_most)


def in_range(choose, name="", at_most=None):
    """The type of an argument with the range of the ``Option`` that ``choose`` takes from ``operations.options``."""

    def parse(text):
        from npformer.operations import options  # here, as it needs NumPy

        kind, fits, expected = choose(options)
        try:
            value = kind(text)
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text:.40}, expected {wanted}") from None
        if not fits(value):
            raise argparse.ArgumentTypeError(f"{text:.40}, expected {expected.format(name=name)}")
        most = LARGEST if at_most is None and kind is int else at_most
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f"{text:.40}, expected at most {most}")
        return value

    return parse


positive = in_range(lambda options: options.AT_LEAST_1)
natural = in_range(lambda options: options.AT_LEAST_0, at_most=LARGEST_SEED)  # such as a seed
above_zero = in_range(lambda options: options.ABOVE_0)


def utf_8(text):
    """Text that is UTF-8. (In the text of arguments, Python replaces other bytes by surrogates.)"""
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


def meant(word, names, how_many):
    """The end of a message about a word that is none of these names."""
    return nearest(word, names) or f", expected {how_many} of {','.join(names)}"


def backend(name):
    """The backend with this name."""
    from npformer.backends import get_backend  # here, as it needs NumPy

    try:
        return get_backend(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("backend=")) from error


def add_backend(parser, int8=False):
    """The option --backend and, for decoding, --int8."""
    add = parser.add_argument
    if int8:
        add("--int8", action="store_true", help="decode with weights of 8 bits, a quarter of what is read for a token")
    add("--backend", type=backend, default="auto", help="auto, cpu, gpu or reference (default: auto)")


def quantized(loaded, options):
    """A translator or writer, with weights of 8-bit integers after --int8."""
    from npformer.quantized import quantize  # here, as it needs NumPy

    return replace(loaded, params=quantize(loaded.params)) if options.int8 else loaded


def add_search(parser):
    """The options of beam search, which ``search_of`` reads."""
    add = parser.add_argument
    beam, penalty = option("beam_size", LARGEST_BEAM), option("length_penalty")
    add("--beam", type=beam, default=5, metavar="N", help="number of hypotheses; 1 is greedy search (default: 5)")
    add("--length-penalty", type=penalty, default=1.0, metavar="A", help="larger: longer translations (default: 1)")
    add("--penalty-form", choices=["power", "gnmt"], default="power", help="length^A or ((5 + length)/6)^A")


def search_of(options):
    """The keywords of ``beam_search``."""
    return {"beam_size": options.beam, "length_penalty": options.length_penalty, "penalty_form": options.penalty_form}
