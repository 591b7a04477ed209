"""The command of a benchmark."""

import functools

from npformer.commands.shared import command_line, write_json  # needs pip install -e .
from scripts.bench.machine import print_machine


def benchmark(*libraries):
    """Decorate ``work(turns, …)``, which returns figures: its parameters are the options of a
    command, which prints the machine, with the versions of more libraries, and writes the figures
    to the file of --json.
    """

    def decorate(work):
        @command_line
        @functools.wraps(work)
        def main(turns, **options):
            facts = print_machine(*libraries)
            figures = work(turns, **options)
            write_json(turns.json, {"machine": facts} | figures)

        return main

    return decorate
