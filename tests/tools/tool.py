"""The command line of a tool: its options, and how it ends."""

import functools
import os
import random
import sys
import time
import traceback
from typing import Annotated

from npformer.commands.shared import Reading, command_line  # needs pip install -e .
from scripts.bench.options import Natural as Natural

Seed = Annotated[Natural, Reading(help="of what is random")]


def tool(work):
    """Decorate a function, which returns a list of what fails, as the command of a tool.

    Its parameters are the options. The exit code is 1 if anything fails.
    """

    @command_line
    @functools.wraps(work)
    def main(**options):
        begin = time.perf_counter()
        failures = work(**options)
        seconds = time.perf_counter() - begin
        print(f"{len(failures)} failures in {seconds:.0f} s", *failures, sep="\n")
        return int(bool(failures))

    return main


def sampled(items, n, seed):
    """So many of the items, drawn at random; all if there are no more, or n is None."""
    if n is None or n >= len(items):
        return items
    return random.Random(seed).sample(items, n)


def in_child(work):
    """Fork a process that does some work: its exit code is 0 if the work returns True. Returns its
    number.
    """
    sys.stdout.flush()  # or both processes would write what is in its buffer
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(not work())
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def drawn(rng, choices):
    """A random choice for each setting, as Python's own value."""
    return {name: values[rng.integers(len(values))] for name, values in choices.items()}
