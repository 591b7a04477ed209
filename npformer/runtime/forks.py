"""Keep a forked process whole: it has the memory of its parent, but only the thread that forked."""

import functools
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

Result = TypeVar("Result")


def at_fork(**hooks):
    """``os.register_at_fork``, on systems that have it."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**hooks)


def in_forked_process(function):
    """Decorate a function that sets right, in a fork, what belonged to threads it does not have."""
    at_fork(after_in_child=function)
    return function


class cached_property(functools.cached_property[Result]):
    """``functools.cached_property`` without the lock of Python 3.11.

    Another thread may hold that lock during a fork.
    """

    def __init__(self, function: Callable[[Any], Result]):
        super().__init__(function)
        self.lock = nullcontext()  # two threads that compute the value at once write the same
