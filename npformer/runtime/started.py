"""What the programs that start processes of MPI (mpiexec, mpirun, srun) tell each of them.

It stands in the environment. This module needs the standard library alone, as commands import it
before NumPy.
"""

import os

RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")  # each program sets one of them
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")  # only some programs set one
FOR_OUTPUT = 0.3  # seconds after which such a program has read what a process has written


def rank():
    """The number of this process; None if no such program has started it."""
    numbers = _values(RANKS)
    return int(numbers[0]) if numbers else None


def sizes():
    """How many processes were started, each as a text; empty if this is not said."""
    return _values(SIZES)


def is_alone():
    """Whether this process is the only one: no such program has started it, or it and no other."""
    return rank() is None or "1" in sizes()


def _values(names):
    return [os.environ[name] for name in names if name in os.environ]
