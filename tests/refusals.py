"""What is refused, and what the error says."""

import pytest


def refuses(error, pattern, call, *arguments, **options):
    """A call raises this error, and its text contains this pattern."""
    with pytest.raises(error, match=pattern):
        call(*arguments, **options)


def refusing(call, *arguments, error=ValueError, **options):
    """A function of a pattern and of options that the call refuses beside these arguments."""

    def refused(pattern, error=error, **others):
        refuses(error, pattern, call, *arguments, **options | others)

    return refused
