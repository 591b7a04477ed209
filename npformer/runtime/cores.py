"""The cores that this process may use.

They are those of the machine, less what its affinity or its container takes away.
"""

import os
from functools import cache
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def cores():
    """Number of cores that this process may use.

    It is the smallest of the process's affinity (``taskset``), the quota of its container (``docker
    run --cpus``), and ``PYTHON_CPU_COUNT``. A quota of 2.5 cores counts as 2, as a third thread
    would be stopped again and again.

    Examples
    --------
    >>> cores() >= 1
    True
    """
    return min(allowed(), quota() or allowed())


def allowed():
    """Number of cores that the affinity of this process, and ``PYTHON_CPU_COUNT``, leave to it."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13, which reads PYTHON_CPU_COUNT
        return os.process_cpu_count() or 1
    limit = os.environ.get("PYTHON_CPU_COUNT", "")
    if limit.isdecimal() and int(limit) > 0:
        return int(limit)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def core_numbers():
    """The numbers of the cores that this process may use: all, if the system does not say which."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(cores()))


@cache
def quota():
    """The whole number of cores that control groups grant, at least 1; None without a limit."""
    shares = [share for folder in _folders() if (share := _share(folder)) is not None]
    return max(1, int(min(shares))) if shares else None


def _folders():
    """The folders of the control groups that limit this process: its own, and all above."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = CGROUPS / controllers  # version 1 has a folder for each kind of limit
        folder = root / path.lstrip("/")
        yield folder
        yield from (above for above in folder.parents if above == root or root in above.parents)


def _share(folder):
    """The number of cores that a folder grants, or None."""
    limit = folder / "cpu.max"
    try:
        if limit.exists():
            granted, period = limit.read_text().split()
        else:
            granted = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        return int(granted) / int(period) if int(granted) > 0 else None
    except (OSError, ValueError):  # there is no such file, or it says "max"
        return None
