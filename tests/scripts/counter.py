"""A step for contenders, in a module that takes no time to import."""

import os


def build_counter(start):
    """``step`` that counts its calls."""
    if start < 0:
        raise ValueError("start is negative\nand more that nobody wants to read")
    calls = start

    def step():
        nonlocal calls
        calls += 1
        if calls == 1000:
            os._exit(3)
        return calls

    return step
