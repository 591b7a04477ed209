"""The options that scripts share, beside those of npformer's commands."""

import argparse

from npformer.commands.shared import above_zero, add_json, meant, new_parser, positive, with_default


def between_commas(kind):
    """The type of an argument that is several values of a type, between commas."""
    return lambda text: [kind(part) for part in text.split(",")]


positives = between_commas(positive)
above_zeros = between_commas(above_zero)


def some_of(names):
    """The type of an argument that is a comma-separated list of these names."""

    def parse(text):
        given = text.split(",")
        for name in given:
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r:.40}{meant(name, names, 'some')}")
        return given

    return parse


def add_some(parser, option, names, default=None, metavar="A,B", **details):
    """An option that is a comma-separated list of some of these names."""
    details |= {"type": some_of(list(names)), "default": default, "metavar": metavar}
    parser.add_argument(option, **details)


def parser_of(description, *, rounds, seconds, quick_seconds, quick):
    """A parser with the options --rounds, --seconds, --quick and --json, for ``parsed``."""
    parser = new_parser(description)
    add = parser.add_argument
    add("--rounds", type=positive, help=with_default("turns of each contender", rounds))
    per_turn = with_default("seconds per turn, at least one step", seconds)
    add("--seconds", type=above_zero, help=per_turn)
    add("--quick", action="store_true", help=quick)
    add_json(parser)
    parser.set_defaults(usual={False: (rounds, seconds), True: (3, quick_seconds)})
    return parser


def parsed(parser, argv):
    """The options, with the rounds, seconds and sizes of products that depend on --quick."""
    options = parser.parse_args(argv)
    rounds, seconds = options.usual[options.quick]
    options.rounds = options.rounds or rounds
    options.seconds = options.seconds or seconds
    options.sgemm_sizes = (1024, 2048) if options.quick else (1024, 2048, 3072, 4096)
    return options


def add_backends(parser, default):
    """Add the option --backends, for the backends of npformer."""
    text = "backends of npformer, cpu,reference; all are compared with the first"
    text = with_default(text, ",".join(default))
    add_some(parser, "--backends", ["cpu", "reference"], default, help=text)


def add_without(parser, names):
    """Add the option --without, for what is not measured."""
    add_some(parser, "--without", names, [], help=f"leave out some of {','.join(names)}")
