"""How a script ends that MPI has started on several ranks: rank 0 alone prints, and if a rank
fails, all end at once.

This module needs only the standard library, as ``ending.py`` does.
"""

import contextlib
import io
import os
import sys
import time

from npformer.runtime import started

PATIENCE = 1.0  # seconds that another rank waits for rank 0 to tell the same error


def rank():
    """The number of this process; None if MPI has not started it, or if the script has not imported
    the ranks of npformer, and so uses none.
    """
    return started.rank() if "npformer.runtime.ranks" in sys.modules else None


class Quiet:
    """A context manager in which ranks other than 0 print nothing.

    If a rank fails, it ends all others, which may wait for it. Ranks other than 0 first give rank 0
    the time to tell the same error and end them; if it does not, they tell theirs. All join MPI
    here, so that each can end the others.
    """

    def __enter__(self):
        if rank() is not None and not started.is_alone():
            with contextlib.suppress(ImportError):  # ``runtime.ranks.world`` says what is missing
                import mpi4py.MPI  # noqa: F401
        self.outputs = sys.stdout, sys.stderr
        self.errors = None
        if rank():
            self.errors = io.StringIO()
            self.nowhere = open(os.devnull, "w")  # noqa: SIM115, closed by __exit__
            sys.stdout, sys.stderr = self.nowhere, self.errors
        return self

    def __exit__(self, *exception):
        sys.stdout, sys.stderr = self.outputs
        if self.errors is not None:
            self.nowhere.close()

    @property
    def several(self):
        """Whether MPI has started several processes, and this one has joined them."""
        mpi = sys.modules.get("mpi4py.MPI")
        return mpi is not None and mpi.COMM_WORLD.Get_size() > 1

    def wait_for_teller(self, error):
        """Give the rank whose error this is, if it is another one, the time to tell it and end
        all.
        """
        if self.several and getattr(error, "rank", None) not in (None, rank()):
            time.sleep(2 * PATIENCE)

    def failed(self, code):
        """End all ranks with this exit code, if there are several."""
        if not self.several:
            return
        if self.errors is not None:
            time.sleep(PATIENCE)
            os.write(2, f"rank {rank()}: {self.errors.getvalue()}".encode())
        time.sleep(started.FOR_OUTPUT)
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(code)
