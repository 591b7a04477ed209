"""A fixture of all tests of this folder."""

import pytest
from on_gpu import small_blocks


@pytest.fixture(autouse=True)
def blocks_are_small():
    with small_blocks():
        yield
