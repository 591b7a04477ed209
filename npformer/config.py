"""The configuration of npformer: versions, processor, BLAS and backends, and what would make it
faster.
"""

import ctypes
import importlib
import importlib.util
import os
import platform
import re
import sys
import textwrap
from pathlib import Path

import numpy as np

from npformer.backends import why_no_gpu
from npformer.runtime.blas_threads import openblas_function, user_threads
from npformer.runtime.cores import allowed, cores, quota
from npformer.runtime.threads import n_threads

AVAILABLE = "available"
CPU = Path(__file__).parent / "cpu" / "__init__.py"

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")


def show_config() -> None:
    """Print the versions, processor, BLAS and backends npformer runs on, and what would make it
    faster.

    ``npformer info`` prints the same.

    Examples
    --------
    >>> show_config()  # doctest: +ELLIPSIS
    versions      npformer ...
    processor     ...
    """
    print(as_text(read_config()))


def read_config():
    """The configuration that `show_config` prints, as a dict that can be written as JSON;
    None = unknown.

    Its keys are "versions", "processor", "threads", "blas", "backends", "kernel_cache" and
    "advice". The last is a list of {"do": a shell command to run before Python starts, or None,
    "why": the reason}.

    Examples
    --------
    >>> read_config()["backends"]["reference"]
    'available'
    """
    config = {
        "versions": _versions(),
        "processor": _processor(),
        "threads": _threads(),
        "blas": _blas(),
        "backends": _backends(),
        "kernel_cache": _kernel_cache(),
    }
    advice = [*_advise_blas(config, os.environ), *_advise_numba(config, os.environ)]
    return {**config, "advice": advice}


def as_text(config):
    """The text that `show_config` prints, from the dict that `read_config` returned."""
    processor = config["processor"]
    threads = config["threads"]
    blas = config["blas"]
    backends = config["backends"]
    rows = {
        "versions": _listed(*(f"{name} {version}" for name, version in config["versions"].items())),
        "processor": _listed(
            processor["name"],
            _count(processor["cores"], "core"),
            processor["system"],
        ),
        "threads": _listed(
            f"npformer divides large work among {threads['most']}",
            *(f"limited by {name}" for name in threads["limited_by"]),
        ),
        "BLAS": _listed(
            f"{blas['library']} {blas['version'] or ''}".rstrip(),
            f"core {blas['core']}" if blas["core"] else "which kernels it uses is not known",
            blas["threads"] and f"{_count(blas['threads'], 'thread')} (in npformer 1)",
        ),
        **backends,
        "auto": f"chooses {backends['auto']}",
        "kernel cache": config["kernel_cache"] or "none",
    }
    lines = [f"{name:<13} {text}" for name, text in rows.items()]
    return "\n".join([*lines, "", *_advice_lines(config)])


def _versions():
    from npformer import __version__

    modules = {name: _try_import(name.lower()) for name in ("numba", "CuPy")}
    ours = {"npformer": __version__, "Python": platform.python_version(), "NumPy": np.__version__}
    for name, (module, problem) in modules.items():
        ours[name] = module.__version__ if module else problem
    return ours


def _processor():
    system = f"{platform.system()} {platform.machine()}"
    return {"name": _processor_name(), "cores": cores(), "system": system}


def _threads():
    """How many threads npformer divides large work among, and what limits them, if not the cores of
    the machine.
    """
    of_blas = user_threads()
    variables = [f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if name in os.environ]
    limits = {
        "the affinity of the process, or PYTHON_CPU_COUNT": allowed(),
        "the quota of the container": quota(),
        _listed("the threads of OpenBLAS", *variables): of_blas,
    }
    if of_blas is None:
        limits["another BLAS than OpenBLAS, whose own threads it cannot limit"] = 1
    most, on_machine = n_threads(), os.cpu_count() or 1
    limited_by = [name for name, limit in limits.items() if limit == most < on_machine]
    return {"most": most, "limited_by": limited_by}


def _processor_name():
    """The vendor's name of the processor, if the operating system provides it."""
    if sys.platform == "darwin":
        import subprocess

        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        name = re.search(r"^model name\s*: (.+)", cpuinfo.read_text(), re.MULTILINE)
        if name:
            return name[1]
    return platform.processor()


def _blas():
    """The library of NumPy's matrix products; OpenBLAS also reports the core and the threads it
    uses.
    """
    settings = _ask_openblas("get_config", ctypes.c_char_p)
    if settings is None:
        built_with = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
        library, version = built_with.get("name", "not known"), built_with.get("version")
        return {"library": library, "version": version, "core": None, "threads": None}
    number = re.search(r"\d+(\.\d+)+", settings.decode())
    return {
        "library": "OpenBLAS",
        "version": number and number[0],
        "core": _ask_openblas("get_corename", ctypes.c_char_p).decode(),
        "threads": user_threads(),
    }


def _ask_openblas(name, restype):
    function = openblas_function(name, restype)
    return function and function()


def _backends():
    """``AVAILABLE`` or the reason why not, for each backend, and the one that "auto" chooses."""
    cpu = _status("numba", "npformer.cpu")
    gpu = _shortened(missing) if (missing := why_no_gpu()) else _status("npformer.gpu")
    auto = "cpu" if cpu == AVAILABLE else "reference"
    return {"reference": AVAILABLE, "cpu": cpu, "gpu": gpu, "auto": auto}


def _status(*modules):
    problems = (f"{name} is {problem}" for name in modules if (problem := _try_import(name)[1]))
    return next(problems, AVAILABLE)


def _try_import(name):
    """(module, None), or (None, the reason why the import failed)."""
    if importlib.util.find_spec(name) is None:
        return None, "not installed"
    try:
        return importlib.import_module(name), None
    except Exception as error:  # an incompatible library may raise any exception
        return None, f"installed, but cannot be imported ({_shortened(error)})"


def _kernel_cache():
    """The folder in which numba stores the compiled kernels; None if it does not store them."""
    numba, _ = _try_import("numba")
    if numba is None:
        return None

    def kernel():
        """Stand-in for a kernel of the cpu backend: numba chooses the folder by the file that
        defines a function.
        """

    kernel.__code__ = kernel.__code__.replace(co_filename=str(CPU))
    try:
        return numba.njit(cache=True)(kernel).stats.cache_path
    except (AttributeError, RuntimeError):  # compilation is disabled; no folder may be written to
        return None


def _advise_blas(config, environ):
    if config["blas"]["threads"] is None or not environ.get("OPENBLAS_CORETYPE"):
        return []
    why = "OpenBLAS chooses the fastest kernels itself: those of another core can be half as fast"
    return [{"do": "unset OPENBLAS_CORETYPE", "why": why}]


def _advise_numba(config, environ):
    advice = []
    cpu = config["backends"]["cpu"]
    disabled = environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
    if cpu.startswith("numba"):
        names = []
        if "cannot be imported" in cpu:
            names = [name for name in environ if name.startswith("NUMBA_")]
        do = f"unset {' '.join(names)}" if names else "pip install --upgrade numba"
        advice.append({"do": do, "why": "the cpu backend needs it"})
    if disabled:
        why = "numba compiles nothing while it is set"
        advice.append({"do": "unset NUMBA_DISABLE_JIT", "why": why})
    elif cpu == AVAILABLE and config["kernel_cache"] is None:
        problem = "numba finds no folder to keep compiled kernels in"
        why = f"{problem}: every start of Python compiles them again"
        advice.append({"do": "export NUMBA_CACHE_DIR=/a/folder/you/may/write", "why": why})
    return advice


def _advice_lines(config):
    if config["advice"]:
        steps = [(step["do"] or "", step["why"]) for step in config["advice"]]
        width = max(len(do) for do, _ in steps)
        lines = [f"  {do:<{width}}  # {why}" for do, why in steps]
        return ["To make it faster, in the shell, before Python starts:", *lines]
    return ["Nothing to change, as far as can be known."]


def _shortened(error):
    """The message of an error, at most 200 characters: messages of CuPy may be very long."""
    return textwrap.shorten(str(error), 200, placeholder=" ...")


def _listed(*parts):
    return ", ".join(filter(None, parts))


def _count(n, noun):
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
