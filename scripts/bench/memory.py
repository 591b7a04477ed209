"""The memory of a process."""

import resource
import sys
from pathlib import Path


def resident_bytes():
    """Memory of this process now, or the maximum so far if the system does not provide it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return peak_bytes()


def peak_bytes():
    """The maximum memory of this process so far, or since ``reset_peak`` where that works."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_peak():
    """Reset the peak of the memory (Linux only)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return
