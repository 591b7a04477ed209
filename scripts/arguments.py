"""Types of command-line arguments that several scripts have."""

import argparse


def positive(text):
    """A whole number above zero."""
    return natural(text, at_least=1)


def natural(text, at_least=0):
    """A whole number, zero included."""
    if not text.isdecimal() or int(text) < at_least:
        raise argparse.ArgumentTypeError(f"{text}, expected {at_least} or more")
    return int(text)
