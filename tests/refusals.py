"""What is refused, and what the error says."""

import pytest


def refuses(error, pattern, call, *arguments, **options):
    """A call raises this error, and its text contains this pattern."""
    with pytest.raises(error, match=pattern):
        call(*arguments, **options)
