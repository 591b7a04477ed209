"""Keep a forked process whole: it has the memory of its parent, but only the thread that forked."""

import os


def at_fork(**hooks):
    """``os.register_at_fork``, on systems that have it."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**hooks)


def in_forked_process(function):
    """Decorate a function that sets right, in a forked process, what belonged to threads that it does not have."""
    at_fork(after_in_child=function)
    return function
