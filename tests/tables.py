"""Tables of cases."""

import pytest


def each_of(names, table):
    """Run a test for each row of a table, under the name of the row."""
    return pytest.mark.parametrize(names, table.values(), ids=list(table))
