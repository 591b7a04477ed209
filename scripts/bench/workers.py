"""Processes that a script starts: ranks, and workers that compute a part of its figures."""

import json
import os
import subprocess
import sys
from pathlib import Path

MPIEXEC = Path(sys.executable).with_name("mpiexec")  # the one that mpich of the extra mpi installs


def mpiexec(n):
    """The beginning of a command that runs on n ranks; empty for one process."""
    return [str(MPIEXEC), "-n", str(n)] if n > 1 else []


def print_found(figures):
    """Print what a worker has measured, for ``found_by_worker``; on ranks, rank 0 alone prints."""
    print(json.dumps(figures))


def found_by_worker(command, settings, **environment):
    """What the worker of a script prints: ``command``, started with these settings as its option
    --worker.
    """
    command = [*command, "--worker", json.dumps(settings)]
    run = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)
