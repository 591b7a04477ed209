"""The machine on which a benchmark runs, and what distorts its figures there."""

import importlib.metadata
import os
import platform
import re
import time
from pathlib import Path

from npformer.config import read_config
from npformer.runtime.cores import cores

LIBRARIES = ("npformer", "numpy", "numba", "torch", "jax", "jaxlib")
SETTINGS = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
)
# Seconds between turns: OpenMP threads spin for a fifth of a second after their work.
PAUSE = 0.5
MOSTLY_IDLE = 0.2  # cores that other programs may use without a warning
WHEN_BUSY = "threads wait for each other, and even ratios mean little"


def machine(*libraries):
    """Processor, cores, versions, and the BLAS core in use: all on which the figures depend."""
    config = read_config()
    blas = config["blas"]  # core and threads are None if it is not OpenBLAS
    return {
        "processor": config["processor"]["name"],
        "cores": os.cpu_count(),
        "physical_cores": physical_cores(),
        "busy_cores": busy_cores(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in (*LIBRARIES, *libraries)},
        "blas": {
            "name": f"{blas['library']} {blas['version']}",
            "core": blas["core"],
            "threads": blas["threads"],
        },
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
    }


def print_machine(*libraries):
    """Print ``machine()``, with warnings about what distorts the figures. Returns it."""
    facts = machine(*libraries)
    print(f"{facts['processor']}, {facts['physical_cores']} cores; {versions_of(facts)}")
    blas = facts["blas"]
    print(f"NumPy's BLAS: {blas['name']}, core {blas['core']}, {blas['threads']} threads")
    for warning in warnings_about(facts["settings"], facts["busy_cores"]):
        print(f"WARNING: {warning}")
    print(flush=True)
    return facts


def versions_of(facts):
    """The versions of Python, and of the libraries that are installed."""
    versions = [f"{name} {number}" for name, number in facts["versions"].items() if number]
    return ", ".join([f"Python {facts['python']}", *versions])


def warnings_about(settings, busy):
    """What makes the figures differ from those of a user on this processor, one sentence for each
    cause.
    """
    sentences = []
    if busy > MOSTLY_IDLE:
        sentences.append(f"other programs use {busy:.1f} cores: {WHEN_BUSY}")
    if settings:
        assignments = ", ".join(f"{name}={value}" for name, value in settings.items())
        sentences.append(
            f"{assignments} in the environment: users do not set this, "
            "and products may be slower or faster"
        )
    return sentences


def busy_cores():
    """The number of cores that other programs use while this one sleeps; 0 if the system does not
    provide it.
    """
    start = time.perf_counter()
    before = busy_seconds()
    time.sleep(PAUSE)
    return (busy_seconds() - before) / (time.perf_counter() - start)


def busy_seconds():
    """Processor time of all programs since the machine was started; 0 if the system does not
    provide it.
    """
    try:
        user, nice, system, _, _, *rest = map(
            int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        )
    except OSError:
        return 0.0
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def physical_cores():
    """The number of physical cores that this process may use."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    physical = set(
        re.findall(r"^physical id\s*: (\d+)$.*?^core id\s*: (\d+)$", text, re.MULTILINE | re.DOTALL)
    )
    return min(cores(), len(physical) or cores())


def version(package):
    """The version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
