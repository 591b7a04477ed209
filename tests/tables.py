"""Tables of cases, in a test or in TOML files beside it."""

import tomllib
from pathlib import Path

import pytest


def each_of(names, table):
    """Run a test for each row of a table, under the name of the row."""
    return pytest.mark.parametrize(names, table.values(), ids=list(table))


def table(test, name):
    """What stands in the TOML file with this name beside a test."""
    path = Path(test).with_name(f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))
