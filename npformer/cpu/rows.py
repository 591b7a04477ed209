"""Loops over a row. For ``out[:] = x``, numba would compile the text of an error of shapes, for seconds."""

from npformer.cpu.jit import inlined


@inlined
def copy_row(x, out):
    """``out[:] = x``."""
    for j in range(len(out)):
        out[j] = x[j]


@inlined
def add_row(x, out):
    """``out += x``."""
    for j in range(len(out)):
        out[j] += x[j]
