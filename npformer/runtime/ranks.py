"""The processes that MPI has started together: ranks, numbered from 0 to size - 1.

``mpiexec -n 4 python script.py`` starts four. Every rank runs the same script and has to call the
methods of its ``Ranks`` in the same order. MPI is imported only in a process that one of its
programs has started.
"""

import json
import os
import platform
import socket
import time
from collections import Counter
from fractions import Fraction
from functools import cache

import numpy as np

from npformer import tree
from npformer.arrays import digest
from npformer.errors import UserError
from npformer.extras import pip_install
from npformer.runtime import started
from npformer.runtime.blas_threads import limit_blas_threads
from npformer.runtime.cores import core_numbers
from npformer.runtime.endings import Endings, error_text
from npformer.runtime.interrupts import deferred_interrupts
from npformer.runtime.threads import even_slices

SHARE_CORES = "ranks share cores: start no more ranks on a host than it has cores"
SOON = 0.1  # seconds of waiting until a rank asks whether another has ended
OF_ERROR = -1  # in place of a digest, which is not negative
CALLS = ("gather", "agree")  # their numbers begin the messages: ranks that differ are told


class RankError(UserError):
    """The ranks do not fit together, or one of them has an error that the others do not have.

    ``rank`` is that of the error, if it is of one.
    """

    def __init__(self, message, rank=None):
        super().__init__(message)
        self.rank = rank


class Ranks:
    """The processes of a program. This class is for a program of one process, without MPI.

    Examples
    --------
    >>> ranks = Ranks()
    >>> ranks.rank, ranks.size, ranks.gather("mine")
    (0, 1, ['mine'])
    """

    rank = 0
    size = 1
    seconds_waited = 0.0

    @property
    def is_alone(self):
        """Whether this is the only process, which sends no messages."""
        return self.size == 1

    @property
    def is_first(self):
        """Whether this is rank 0, which writes files."""
        return self.rank == 0

    def gather(self, value, error=None):
        """Return the values of all ranks, in their order: whatever JSON can hold.

        An error of this rank is raised here, and a ``RankError`` with its message on the others.
        """
        if error is not None:
            raise error
        return [value]

    def results(self, work):
        """Return the results of ``work()`` on all ranks, in their order: whatever JSON can hold.

        An error of a rank is raised on all, as by ``gather``.
        """
        return [work()]

    def gather_arrays(self, x):
        """Return the arrays of all ranks, in their order; they have one axis and the same dtype."""
        return [x]

    def stack(self, x):
        """Return the arrays of all ranks, of one shape and dtype, as one with a new first axis."""
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
        """Raise an error on all ranks if one has other facts, ``facts()`` -> dict, than rank 0."""

    def agreed(self, work, facts):
        """Return the result of ``work()``, of which ``facts(result)`` -> dict agree on all ranks.

        An error of a rank is raised on all, as by ``gather``.
        """
        return work()

    def my_share(self, items):
        """Return this rank's part of a sequence: neighbours, about as many as other ranks have."""
        return share_of(items, self.rank, self.size)


def checked_ranks(ranks):
    """The given ranks, or this process alone if they are None."""
    if ranks is None:
        return Ranks()
    if not isinstance(ranks, Ranks):
        expected = "npformer.runtime.ranks.world(), or None"
        raise TypeError(f"ranks is a {type(ranks).__name__}, expected {expected}")
    return ranks


class MpiRanks(Ranks):
    """The ranks of an MPI communicator, an ``mpi4py.MPI.Comm``.

    Ranks on the same host divide its cores. Each rank uses as many threads as the one with the
    fewest cores: it would wait for that one otherwise. A rank that waits for one which has ended
    raises ``RankError``.
    """

    def __init__(self, comm):
        from mpi4py import MPI

        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            expected = "MPI_THREAD_SERIALIZED or more"
            raise RankError(f"this MPI takes calls from the main thread alone, expected {expected}")
        self.mpi = MPI
        self.comm = comm.Dup()
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()
        self.endings = Endings(MPI, comm)
        self.unfinished: list = []  # messages for which nobody waits any more
        self.table = with_cores(self.gather(this_process()))
        limit_blas_threads(max(1, int(self.fewest_cores)))
        self.agree(versions)

    @property
    def fewest_cores(self):
        """The cores of the rank that has the fewest, a fraction."""
        return min(row["cores"] for row in self.table)

    def gather(self, value, error=None):
        """Exchange the values and the messages of errors, as JSON."""
        message = None if error is None else error_text(error)
        mine = np.frombuffer(json_text([value, message]).encode(), np.uint8)
        texts = self._joined(mine, self.numbers("gather", mine.size, error))
        if error is not None:
            raise error
        of_ranks = [json.loads(x.tobytes()) for x in texts]
        for rank, (_, message) in enumerate(of_ranks):
            if message is not None:
                raise RankError(f"rank {rank}: {message}", rank)
        return [value for value, _ in of_ranks]

    def results(self, work):
        """Exchange the results, or the message of an error."""
        result, error = attempted(work)
        with deferred_interrupts():
            return self.gather(result, error)

    def gather_arrays(self, x):
        """Exchange the sizes of the arrays, and then the arrays."""
        return self._joined(x, self.numbers("gather", x.size))

    def _joined(self, x, sizes):
        """The arrays of all ranks, which have these sizes."""
        joined = np.empty(sizes.sum(), x.dtype)
        self.wait(self.comm.Iallgatherv(np.ascontiguousarray(x), [joined, sizes]))
        return np.split(joined, np.cumsum(sizes)[:-1])

    def numbers(self, call, number, error=None):
        """Return the numbers of all ranks, in their order, if all make the same call.

        If they do not, raise the error of this rank, which is the reason, or a ``RankError``.
        """
        calls, numbers = self.stack(np.array([CALLS.index(call), number])).T
        for rank, other in enumerate(calls):
            if other != calls[0]:
                differ = f"rank {rank} calls {CALLS[other]}, rank 0 {CALLS[calls[0]]}"
                raise error or RankError(f"{differ}: all ranks have to make the same calls")
        return numbers

    def stack(self, x):
        """Exchange the arrays, whose sizes all ranks know."""
        stacked = np.empty((self.size, *x.shape), x.dtype)
        self.wait(self.comm.Iallgather(np.ascontiguousarray(x), stacked))
        return stacked

    def first(self, work):
        """Call ``work()`` on rank 0, and send its result, or its error, to the others."""
        result = error = None
        if self.is_first:
            result, error = attempted(lambda: json_text(work()))
        self.wait(self.comm.Ibarrier(), pause=0.001)  # the work may take long
        return json.loads(self.gather(result, error)[0])

    def agree(self, facts):
        """Exchange a digest of the facts."""
        self.agreed(facts, dict)

    def agreed(self, work, facts):
        """Exchange a digest of the facts, and the facts themselves if the digests differ."""

        def work_and_digest():
            result = work()
            return result, digest([json_text(facts(result))])

        done, error = attempted(work_and_digest)
        result, own_digest = done or (None, OF_ERROR)
        with deferred_interrupts():
            digests = set(self.numbers("agree", own_digest, error))
            if OF_ERROR in digests:
                self.gather(None, error)  # raises it
            if len(digests) > 1:
                self.refuse_what_differs(facts(result))
        return result

    def refuse_what_differs(self, facts):
        """Raise an error on all ranks, which says in what a rank differs from rank 0."""
        first, *others = (dict(tree.leaves(of_rank)) for of_rank in self.gather(facts))
        rank, other = next((i, other) for i, other in enumerate(others, start=1) if other != first)
        name = next(name for name in first | other if other.get(name) != first.get(name))
        raise RankError(
            f"rank {rank} has {name}={other.get(name)!r:.200}, "
            f"rank 0 has {first.get(name)!r:.200}: "
            "all ranks need the same versions, settings and data, and make the same calls"
        )

    def wait(self, *requests, pause=0):
        """Wait until messages have arrived; other processes have the core, and signals are handled.

        After each look there is a pause, in seconds.
        """
        start = time.perf_counter()
        while not self.mpi.Request.Testall(requests):
            if time.perf_counter() - start > SOON and (why := self.endings.why_in_vain()):
                self.unfinished += requests  # MPI may still use their memory
                raise RankError(why)
            time.sleep(pause)
        self.seconds_waited += time.perf_counter() - start

    def __str__(self):
        lines = ["rank   host                      pid   cores"]
        for rank, row in enumerate(self.table):
            lines.append(f"{rank:>4}   {row['host']:<20} {row['pid']:>8}   {row['cores']}")
        if self.fewest_cores < 1:
            lines.append(SHARE_CORES)
        return "\n".join(lines)


@cache
def world():
    """The ranks that were started with this process: ``MpiRanks``, or ``Ranks`` if it is alone.

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
    if started.is_alone():
        return Ranks()
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(f"several ranks need mpi4py: {pip_install('mpi')} ({error})") from error
    if MPI.COMM_WORLD.Get_size() > 1:
        return MpiRanks(MPI.COMM_WORLD)
    sizes = started.sizes()
    if sizes:
        library = MPI.Get_library_version().partition("\n")[0].strip()
        advice = "start them with the mpiexec of this MPI, or install mpi4py for the other one"
        raise RankError(
            f"{sizes[0]} processes were started, but each is alone for mpi4py, "
            f"which uses {library}: {advice}"
        )
    return Ranks()


def attempted(work):
    """The result of ``work()``, or None, and its error, or None: the other ranks wait for it."""
    try:
        return work(), None
    except BaseException as error:  # an interrupt too
        return None, error


def json_text(value):
    """A value as a text of JSON, in which numbers may be NumPy's."""
    return json.dumps(value, default=np.generic.item)


def this_process():
    """The row of this process in the table of ranks."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "may use": core_numbers()}


def versions():
    """What has to be the same on all ranks before they compute."""
    from npformer import __version__

    return {
        "npformer": __version__,
        "NumPy": np.__version__,
        "Python": platform.python_version(),
    }


def with_cores(table):
    """The rows of a table of ranks, each with its number of cores.

    Ranks of one host that may use the same core share it evenly.

    Examples
    --------
    >>> table = [{"host": "a", "may use": [0, 1, 2, 3]}, {"host": "a", "may use": [2, 3]}]
    >>> [row["cores"] for row in with_cores(table)]
    [Fraction(3, 1), Fraction(1, 1)]
    """
    n_ranks = Counter((row["host"], core) for row in table for core in row["may use"])
    return [
        row | {"cores": sum(Fraction(1, n_ranks[row["host"], core]) for core in row["may use"])}
        for row in table
    ]


def share_of(items, rank, size):
    """A rank's part of a sequence: of "abcde" on three ranks, "a", "bc" and "de"."""
    return items[even_slices(len(items), size)[rank]]
