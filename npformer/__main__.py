"""The command ``npformer``, also as ``python -m npformer``: it calls one of the commands of
`npformer.commands`.
"""

import importlib
import sys

from npformer.commands import COMMANDS, GROUPS, called, nearest
from npformer.commands.shared import command, new_parser

from npformer import __version__

HELP = """The Transformer from scratch in NumPy. \
%(prog)s COMMAND --help shows the options of a command.
"""


@command
def main(argv=None):
    """Call the command that the arguments name. Returns its exit code; without arguments, 0 after
    the help.
    """
    arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if arguments[0] == "help":
        arguments = asked_for(arguments[1:])
    name, *rest = arguments
    if name in COMMANDS:
        before = sys.argv
        sys.argv = [called(name), *rest]  # the program that it shows in its help and messages
        try:
            return importlib.import_module(f"npformer.commands.{name.replace('-', '_')}").main()
        finally:
            sys.argv = before
    parser = own_parser()
    if not name.startswith("-"):
        others = nearest(name, COMMANDS) or f"; {parser.prog} --help lists them"
        parser.error(f"unknown command {name!r:.40}{others}")
    return parser.parse_args([name, *rest])


def asked_for(names):
    """The arguments that show the help of a command, or of npformer, for the words after help."""
    if len(names) > 1:
        own_parser().error(f"unrecognized arguments: {' '.join(names[1:])}")
    return ["--help"] if names == ["help"] else [*names, "--help"]


def own_parser():
    """The parser of npformer without a command."""
    parser = new_parser(help_text(), prog=called("").strip(), usage="%(prog)s COMMAND [OPTION ...]")
    version = f"npformer {__version__}"
    parser.add_argument("--version", action="version", version=version, help="print it, and end")
    return parser


def help_text():
    """The commands, each with an example."""
    lines = [HELP]
    for title, group in GROUPS.items():
        lines.append(f"{title}:")
        for name, (meaning, example) in group.items():
            lines += [f"  {name:<19}{meaning}", f"{'':<21}npformer {name} {example}".rstrip()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
