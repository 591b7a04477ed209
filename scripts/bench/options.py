"""The options that most benchmarks share."""

from npformer.commands.arguments import above_zero, add_some, new_parser, positive
from npformer.commands.output import add_json


def parser_of(description, *, rounds, seconds, quick_seconds, quick):
    """A parser with the options --rounds, --seconds, --quick and --json, for ``parsed``."""
    parser = new_parser(description)
    add = parser.add_argument
    add("--rounds", type=positive, help=f"turns of each contender (default: {rounds})")
    add("--seconds", type=above_zero, help=f"seconds per turn, at least one step (default: {seconds})")
    add("--quick", action="store_true", help=quick)
    add_json(parser)
    parser.set_defaults(usual={False: (rounds, seconds), True: (3, quick_seconds)})
    return parser


def parsed(parser, argv):
    """The options, with the rounds, the seconds and the sizes of products that depend on --quick."""
    options = parser.parse_args(argv)
    rounds, seconds = options.usual[options.quick]
    options.rounds, options.seconds = options.rounds or rounds, options.seconds or seconds
    options.sgemm_sizes = (1024, 2048) if options.quick else (1024, 2048, 3072, 4096)
    return options


def add_backends(parser, default):
    """Add the option --backends, for the backends of npformer."""
    text = f"backends of npformer, cpu,reference; all are compared with the first (default: {','.join(default)})"
    add_some(parser, "--backends", ["cpu", "reference"], default, help=text)


def add_without(parser, names):
    """Add the option --without, for what is not measured."""
    add_some(parser, "--without", names, [], help=f"leave out some of {','.join(names)}")
