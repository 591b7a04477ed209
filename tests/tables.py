"""Tables of cases, which stand in TOML files beside the tests."""

import tomllib
from pathlib import Path


def table(test, name):
    """What stands in the TOML file with this name beside a test."""
    path = Path(test).with_name(f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))
