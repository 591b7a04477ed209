"""What is refused, and what the error says."""

import pytest

from npformer.errors import UserError


def refuses(error, pattern, call, *arguments, **options):
    """A call raises this error, and its text contains this pattern.

    A ``ValueError`` has to be a ``UserError``: of any other, a command shows a traceback.
    """
    if error is ValueError:
        error = UserError
    with pytest.raises(error, match=pattern):
        call(*arguments, **options)


def refusing(call, *arguments, error=ValueError, **options):
    """A function of a pattern and of options that the call refuses beside these arguments."""

    def refused(pattern, error=error, **others):
        refuses(error, pattern, call, *arguments, **options | others)

    return refused
