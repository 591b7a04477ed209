"""The command line of a tool: its options, and how it ends."""

import functools
import random
import time

from npformer.commands.shared import command, natural, new_parser  # needs pip install -e .


def tool(docstring, add=None, **numbers):
    """Decorate ``work(options)``, which returns a list of what fails, as the command of a tool.

    Every tool has the option ``--seed``; ``numbers`` are others, each with its default and meaning,
    and ``add(parser)`` may add more. The exit code is 1 if anything fails.
    """

    def decorate(work):
        @command
        @functools.wraps(work)
        def main(argv=None):
            parser = new_parser(docstring)
            for name, (default, meaning) in numbers.items():
                parser.add(f"--{name}", meaning, default, type=natural, metavar="N")
            parser.add("--seed", "of what is random", 0, type=natural)
            if add is not None:
                add(parser)
            options = parser.parse_args(argv)
            begin = time.perf_counter()
            failures = work(options)
            seconds = time.perf_counter() - begin
            print(f"{len(failures)} failures in {seconds:.0f} s", *failures, sep="\n")
            return int(bool(failures))

        return main

    return decorate


def add_only(parser):
    """The options of a tool that tries one thing after another, all or some of them."""
    parser.add("--only", "only those whose names begin with this", default="")
    parser.add("--sample", "so many of them, drawn at random", type=natural, metavar="N")


def sampled(items, options):
    """All items, or as many as the options say."""
    if options.sample is None or options.sample >= len(items):
        return items
    return random.Random(options.seed).sample(items, options.sample)


def drawn(rng, choices):
    """A random choice for each setting, as Python's own value."""
    return {name: values[rng.integers(len(values))] for name, values in choices.items()}
