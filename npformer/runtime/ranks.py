"""The processes that MPI has started together to compute one result: ranks, numbered from 0 to size - 1.

``mpiexec -n 4 python script.py`` starts four. Every rank runs the same script and has to call the methods of its
``Ranks`` in the same order. MPI is imported only in a process that one of its programs has started.
"""

import json
import os
import platform
import socket
import time
import zlib
from fractions import Fraction
from functools import cache

import numpy as np

from npformer import tree
from npformer.errors import UserError
from npformer.runtime.blas_threads import blas_threads
from npformer.runtime.cores import cores
from npformer.runtime.extras import pip_install

# What the programs that start MPI processes (mpiexec, mpirun, srun) set in the environment of each.
STARTED = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")  # of some of them


class RankError(UserError):
    """The ranks do not fit together, or rank 0 could not do what all ranks need."""


class OneProcess:
    """A program that is one process: what ``Ranks`` offers, without MPI.

    Examples
    --------
    >>> ranks = OneProcess()
    >>> ranks.rank, ranks.size, ranks.gather("mine")
    (0, 1, ['mine'])
    """

    rank, size, seconds_waited = 0, 1, 0.0

    @property
    def alone(self):
        """Whether this is the only process, which sends no messages."""
        return self.size == 1

    @property
    def is_first(self):
        """Whether this is rank 0, which writes files."""
        return self.rank == 0

    def gather(self, value):
        """Return the values of all ranks, in their order: whatever JSON can hold."""
        return [value]

    def gather_arrays(self, x):
        """Return the arrays of all ranks, in their order; they have one axis and the same dtype."""
        return [x]

    def stack(self, x):
        """Return the arrays of all ranks, which have the same shape and dtype, as one with a new first axis."""
        return x[np.newaxis]

    def any(self, wish):
        """Return whether ``wish`` is true on any rank."""
        return bool(self.stack(np.array(wish)).any())

    def gather_lists(self, mine):
        """Return the lists of all ranks as one list."""
        return [x for part in self.gather(mine) for x in part]

    def union(self, mine):
        """Return what is in the list of any rank, once."""
        return list(dict.fromkeys(self.gather_lists(mine)))

    def first(self, work):
        """Return the result of ``work()`` on rank 0, which JSON can hold; other ranks wait for it.

        Raises
        ------
        RankError
            On the other ranks, if rank 0 raises an error.
        """
        return work()

    def agree(self, facts):
        """Raise an error on all ranks if one of them has other facts, ``facts()`` -> dict, than rank 0."""

    def my_share(self, items):
        """Return this rank's part of a sequence: neighbouring items, about as many as on the other ranks."""
        return share_of(items, self.rank, self.size)


def checked_ranks(ranks):
    """The given ranks, or this process alone if they are None."""
    if ranks is None:
        return OneProcess()
    if not isinstance(ranks, OneProcess):
        raise TypeError(f"ranks is a {type(ranks).__name__}, expected npformer.runtime.ranks.world(), or None")
    return ranks


class Ranks(OneProcess):
    """The ranks of an MPI communicator, an ``mpi4py.MPI.Comm``.

    Ranks on the same host divide its cores. Each rank uses as many threads as the one with the fewest cores: it would
    wait for that one otherwise.
    """

    def __init__(self, comm):
        from mpi4py import MPI

        from npformer import __version__

        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise RankError("this MPI takes calls from the main thread alone, expected MPI_THREAD_SERIALIZED or more")
        self.mpi, self.comm = MPI, comm.Dup()
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(cores()))
        own = {"host": socket.gethostname(), "pid": os.getpid(), "may use": allowed}
        self.table = self.gather(own)
        there = [row["may use"] for row in self.table if row["host"] == own["host"]]
        for row, text in zip(self.table, self.gather(str(part_of_cores(allowed, there))), strict=True):
            row["cores"] = Fraction(text)
        fewest = min(row["cores"] for row in self.table)
        blas_threads(max(1, int(fewest))).__enter__()  # until the process ends
        versions = {"npformer": __version__, "NumPy": np.__version__, "Python": platform.python_version()}
        self.agree(lambda: versions)

    def gather(self, value):
        """Return the values of all ranks, in their order: whatever JSON can hold."""
        mine = np.frombuffer(json_text(value).encode(), np.uint8)
        return [json.loads(x.tobytes()) for x in self.gather_arrays(mine)]

    def gather_arrays(self, x):
        """Return the arrays of all ranks, in their order; they have one axis and the same dtype."""
        sizes = self.stack(np.array(x.size))
        joined = np.empty(sizes.sum(), x.dtype)
        self.wait(self.comm.Iallgatherv(np.ascontiguousarray(x), [joined, sizes]))
        return np.split(joined, np.cumsum(sizes)[:-1])

    def stack(self, x):
        """Return the arrays of all ranks, which have the same shape and dtype, as one with a new first axis."""
        stacked = np.empty((self.size, *x.shape), x.dtype)
        self.wait(self.comm.Iallgather(np.ascontiguousarray(x), stacked))
        return stacked

    def first(self, work):
        """Return the result of ``work()`` on rank 0; its error is raised on all ranks."""
        result, error = "null", None
        if self.is_first:
            try:
                result = json_text(work())
            except BaseException as raised:  # an interrupt too: the others wait
                error = raised
        self.wait(self.comm.Ibarrier(), pause=0.001)  # the work may take long
        result, message = self.gather([result, error and (str(error) or type(error).__name__)])[0]
        if error:
            raise error
        if message is not None:
            raise RankError(f"rank 0: {message}")
        return json.loads(result)

    def agree(self, facts):
        """Raise an error on all ranks if one of them has other facts, ``facts()`` -> dict, than rank 0."""
        facts = facts()
        if len(set(self.stack(np.array(zlib.crc32(json_text(facts).encode()))))) == 1:
            return
        wanted, *others = (dict(tree.leaves(of_rank)) for of_rank in self.gather(facts))
        rank, given = next((i, given) for i, given in enumerate(others, start=1) if given != wanted)
        name = next(name for name in wanted | given if given.get(name) != wanted.get(name))
        raise RankError(
            f"rank {rank} has {name}={given.get(name)!r:.200}, rank 0 has {wanted.get(name)!r:.200}: "
            "start all ranks with the same versions, settings and data"
        )

    def wait(self, *requests, pause=0):
        """Wait until messages have arrived. Meanwhile other processes may use the core, and signals are handled.

        After each look there is a pause, in seconds.
        """
        start = time.perf_counter()
        while not self.mpi.Request.Testall(requests):
            time.sleep(pause)
        self.seconds_waited += time.perf_counter() - start

    def __str__(self):
        rows = [
            f"{rank:>4}   {row['host']:<20} {row['pid']:>8}   {row['cores']}" for rank, row in enumerate(self.table)
        ]
        shared = min(row["cores"] for row in self.table) < 1
        hint = "\nranks share cores: start no more ranks on a host than it has cores" if shared else ""
        return "\n".join(["rank   host                      pid   cores", *rows]) + hint


@cache
def world():
    """Return the ranks that were started together with this process: ``Ranks``, or ``OneProcess`` if it is alone.

    Raises
    ------
    ImportError
        If MPI has started the process, and mpi4py is missing.
    RankError
        If mpi4py uses another MPI than that which has started the process.

    Examples
    --------
    >>> world().size
    1
    """
    sizes = [os.environ[name] for name in SIZES if name in os.environ]
    if "1" in sizes or not any(name in os.environ for name in STARTED):
        return OneProcess()
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(f"several ranks need mpi4py: {pip_install('mpi')} ({error})") from error
    if MPI.COMM_WORLD.Get_size() > 1:
        return Ranks(MPI.COMM_WORLD)
    if sizes:
        library = MPI.Get_library_version().partition("\n")[0].strip()
        raise RankError(
            f"{sizes[0]} processes were started, but each is alone for mpi4py, which uses {library}: "
            "start them with the mpiexec of this MPI, or install mpi4py for the other one"
        )
    return OneProcess()


def json_text(value):
    """A value as a text of JSON, in which numbers may be NumPy's."""
    return json.dumps(value, default=np.generic.item)


def checksum(values):
    """A checksum of NumPy arrays and texts; what is neither is left out."""
    crc = 0
    for x in values:
        if isinstance(x, np.ndarray):
            crc = zlib.crc32(np.ascontiguousarray(x), crc)
        elif isinstance(x, str):
            crc = zlib.crc32(x.encode("utf-8", "surrogatepass"), crc)
    return crc


def part_of_cores(mine, there):
    """How many cores a rank has that may use those of ``mine``, if ranks which may use the same core share it evenly.

    ``there`` has the cores that each rank on its host may use, itself included.

    Examples
    --------
    >>> part_of_cores([0, 1, 2, 3], [[0, 1, 2, 3], [2, 3]])
    Fraction(3, 1)
    """
    return sum(Fraction(1, sum(core in others for others in there)) for core in mine)


def share_of(items, rank, size):
    """A rank's part of a sequence: of "abcde" on three ranks, the first has "a", then "bc" and "de"."""
    n = len(items)
    return items[n * rank // size : n * (rank + 1) // size]
