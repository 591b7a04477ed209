"""What the benchmarks share: contenders that take turns, the machine and its limits, statistics, tables.

Libraries that run in one process, or in two processes at the same time, compete for the cores. If one library is
measured completely before the next, the load of a shared machine may have changed. So each contender (a library that
is measured) has a process of its own, which sleeps unless it is its turn, and the contenders take turns: A B C, A B C,
...
"""

import argparse
import gc
import importlib
import importlib.metadata
import importlib.util
import math
import multiprocessing
import os
import platform
import resource
import signal
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scripts.arguments import above_zero, positive, some_of
from scripts.output import output_file

from npformer.config import instructions_of
from npformer.runtime.threads import cores

LIBRARIES = ("npformer", "numpy", "numba", "torch", "jax", "jaxlib")
SETTINGS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
MOSTLY_IDLE = 0.2  # cores that other programs may use without a warning
WHEN_BUSY = "threads wait for each other, and even ratios mean little"
FLAGS = {"AVX-512": "avx512f", "AVX2": "avx2"}  # of processors with these instructions, widest first


# -- contenders ---------------------------------------------------------------------------------------------------


class LeftOut(Exception):
    """A contender cannot take part; the message says why."""


class Built(NamedTuple):
    """What is known about a step before it is timed."""

    first_value: object  # the result of the first call
    build_seconds: float  # to build it and call it once, compilation included
    step_seconds: float  # per call after the warm-up, roughly


class Memory(NamedTuple):
    """Resident bytes of a contender's process."""

    libraries: int  # after its imports, before it builds anything
    built: int  # after building, before the first step
    peak: int  # the maximum since the imports
    running_peak: int  # the maximum since it was built


class Contender:
    """A library that is measured, in a process of its own, which sleeps unless it has a command to run.

    Parameters
    ----------
    name : str
    libraries : sequence of str
        Modules imported before anything is measured.
    build : function at the top of a module
        ``build(*case)`` runs in the process and returns ``step``, a function without arguments.
    """

    def __init__(self, name, libraries, build):
        self.name, self.built = name, None
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, libraries, build), name=name)
        self._process.start()
        theirs.close()

    def build(self, *case, warm_up=2):
        """Build the step for a case, which replaces the previous step, and call it ``warm_up`` times."""
        self.built = Built(*self._ask("build", case, warm_up))
        return self.built

    def run(self, n_steps):
        """(seconds per step, result of the last step)."""
        return self._ask("run", n_steps)

    def memory(self):
        """The ``Memory`` of the process so far."""
        return Memory(*self._ask("memory"))

    def steps_in(self, seconds):
        """The number of steps that take about this time."""
        return max(1, round(seconds / max(self.built.step_seconds, 1e-7)))

    def cpu_seconds(self):
        """Processor time of all threads of the process so far; 0 if the system does not provide it."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        """End the process."""
        self._pipe.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ask(self, *command):
        try:
            self._pipe.send(command)
            succeeded, answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            raise LeftOut(f"its process ended with exit code {self._process.exitcode}") from None
        if not succeeded:
            raise LeftOut(answer)
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def _serve(pipe, libraries, build):
    """The main loop of a contender's process: answer commands until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which closes the pipe
    worker = _Worker(libraries, build)
    while True:
        try:
            command, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = True, getattr(worker, command)(*arguments)
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            answer = False, f"{type(error).__name__}: {lines[0]}"
        pipe.send(answer)


class _Worker:
    """The commands of a contender's process."""

    def __init__(self, libraries, build):
        self._libraries, self._build, self._step = libraries, build, None

    def build(self, case, warm_up):
        self._step = None
        gc.collect()
        for library in self._libraries:
            importlib.import_module(library)
        reset_peak()
        self._after_imports = resident_bytes()
        start = time.perf_counter()
        self._step = self._build(*case)
        self._after_build, self._peak_of_build = resident_bytes(), peak_bytes()
        reset_peak()
        first_value = self._step()
        seconds = build_seconds = time.perf_counter() - start
        for _ in range(warm_up - 1):
            seconds, _ = self.run(1)
        return first_value, build_seconds, seconds

    def run(self, n_steps):
        start = time.perf_counter()
        for _ in range(n_steps):
            value = self._step()
        return (time.perf_counter() - start) / n_steps, value

    def memory(self):
        running = peak_bytes()
        return self._after_imports, self._after_build, max(running, self._peak_of_build), running


PAUSE = 0.5  # seconds between turns: OpenMP threads continue to spin for a fifth of a second after their work


def alternate(contenders, rounds, seconds):
    """Run rounds in which the contenders work one after another, each for about ``seconds`` seconds.

    Returns
    -------
    turns : dict
        name -> a (seconds per step, result of the last step) for each round; contenders that failed are left out.
    others : float
        The number of cores that other programs used meanwhile.
    """
    turns = {contender.name: [] for contender in contenders}
    start, busy, own = time.perf_counter(), busy_seconds(), sum(c.cpu_seconds() for c in contenders)
    for i in range(rounds):
        for contender in contenders:
            if contender.name not in turns:
                continue
            note(f"round {i + 1} of {rounds}: {contender.name}")
            time.sleep(PAUSE)
            try:
                turns[contender.name].append(contender.run(contender.steps_in(seconds)))
            except LeftOut as reason:
                print(f"left out: {contender.name}: {reason}", flush=True)
                del turns[contender.name]
    note("")
    others = busy_seconds() - busy - (sum(c.cpu_seconds() for c in contenders) - own)
    return turns, max(0.0, others / (time.perf_counter() - start))


def build_all(contenders, *case, warm_up=2):
    """Build a case in each contender, one after another. Returns those that succeed; prints why the others fail."""
    able = []
    for contender in contenders:
        note(f"building {contender.name}")
        try:
            contender.build(*case, warm_up=warm_up)
            able.append(contender)
        except LeftOut as reason:
            print(f"left out: {contender.name}: {reason}", flush=True)
    note("")
    return able


# -- memory -------------------------------------------------------------------------------------------------------


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


# -- the machine and its limits -----------------------------------------------------------------------------------


def machine():
    """Processor, cores, versions, and the BLAS core in use: everything on which the figures depend."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "physical_cores": physical_cores(),
        "busy_cores": busy_cores(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in LIBRARIES},
        "blas": blas_in_use(),
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
    }


def print_machine(facts):
    """Print ``machine()``, with warnings about what distorts the figures."""
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items() if number)
    print(f"{facts['processor']}, {facts['physical_cores']} cores; Python {facts['python']}, {versions}")
    print(f"NumPy's BLAS: {facts['blas']['name']}, core {facts['blas']['core']}, {facts['blas']['threads']} threads")
    for warning in warnings_about(facts["blas"]["core"], cpu_flags(), facts["settings"], facts["busy_cores"]):
        print(f"WARNING: {warning}")
    print(flush=True)


def warnings_about(core, flags, settings, busy):
    """What makes the figures differ from those of a user on this processor, one sentence for each cause."""
    found = []
    if busy > MOSTLY_IDLE:
        found.append(f"other programs use {busy:.1f} cores: {WHEN_BUSY}")
    if settings:
        given = ", ".join(f"{name}={value}" for name, value in settings.items())
        found.append(f"{given} in the environment: users do not set this, and products may be slower or faster")
    for instructions, flag in FLAGS.items():
        if instructions_of(core) == instructions:
            break
        if flag in flags and not core.startswith("unknown"):
            found.append(f"OpenBLAS uses its {core} core, below the processor's instruction set ({flag})")
            break
    return found


def busy_cores():
    """The number of cores that other programs use while this one sleeps; 0 if the system does not provide it."""
    start, before = time.perf_counter(), busy_seconds()
    time.sleep(PAUSE)
    return (busy_seconds() - before) / (time.perf_counter() - start)


def busy_seconds():
    """Processor time of all programs since the machine was started; 0 if the system does not provide it."""
    try:
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    except OSError:
        return 0.0
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def processor():
    """The processor's name."""
    return _cpuinfo("model name", [platform.processor() or platform.machine()])[0]


def cpu_flags():
    """The instruction sets of the processor (Linux only)."""
    return set(_cpuinfo("flags", [""])[0].split())


def physical_cores():
    """The number of physical cores that this process may use."""
    physical = set(zip(_cpuinfo("physical id", []), _cpuinfo("core id", []), strict=True))
    return min(cores(), len(physical)) if physical else cores()


def _cpuinfo(field, default):
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return default
    values = [line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == field]
    return values or default


def version(package):
    """The version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def blas_in_use():
    """Name, core and number of threads of NumPy's BLAS."""
    if importlib.util.find_spec("threadpoolctl") is None:
        return dict.fromkeys(("name", "core", "threads"), "unknown (threadpoolctl is not installed)")
    from threadpoolctl import threadpool_info

    for library in threadpool_info():
        if library["user_api"] == "blas":
            name = f"{library['internal_api']} {library['version']}"
            return {"name": name, "core": library.get("architecture", "unknown"), "threads": library["num_threads"]}
    return dict.fromkeys(("name", "core", "threads"), "unknown")


class Limits(NamedTuple):
    """The limits of the machine, which no step can exceed."""

    sgemm: float  # GFLOP/s of NumPy's float32 matrix product, all threads, at the best size
    copy: float  # GB/s read and written, one thread
    copy_threads: float  # the same with one thread per core


def limits_contender():
    """A contender whose step measures ``Limits`` once."""
    return Contender("limits", ("numpy",), build_limits)


def build_limits(sizes):
    """``step`` that measures the limits, with matrix products of these sizes, and returns them as a tuple."""
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((2, n, n), dtype=np.float32) for n in sizes]
    products = [np.empty((n, n), np.float32) for n in sizes]
    source = np.ones(2**26, np.float32)  # 256 MB
    target = np.zeros_like(source)
    n_threads = physical_cores()
    parts = list(zip(np.array_split(target, n_threads), np.array_split(source, n_threads), strict=True))
    pool = ThreadPoolExecutor(n_threads)

    def step():
        sgemm = max(
            2 * n**3 / seconds_of(np.matmul, a, b, out=out) / 1e9
            for n, (a, b), out in zip(sizes, factors, products, strict=True)
        )
        moved = 2 * source.nbytes / 1e9
        copy = moved / seconds_of(np.copyto, target, source)
        copy_threads = moved / seconds_of(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))
        return sgemm, copy, copy_threads

    return step


def seconds_of(function, *arguments, **options):
    """The seconds that one call takes."""
    start = time.perf_counter()
    function(*arguments, **options)
    return time.perf_counter() - start


def best_limits(turns):
    """The best of each limit over the rounds."""
    return Limits(*(max(column) for column in zip(*(value for _, value in turns), strict=True)))


def print_limits(limits, others):
    """Print the limits in one line, for comparison with the figures, and a warning if other programs were running."""
    print(
        f"best of this run: sgemm {short(limits.sgemm)} GFLOP/s, copy {short(limits.copy)} GB/s with one thread, "
        f"{short(limits.copy_threads)} GB/s with {physical_cores()} (bytes read and bytes written)"
    )
    if others > MOSTLY_IDLE:
        print(f"WARNING: other programs used {others:.1f} cores meanwhile: {WHEN_BUSY}")


# -- statistics ---------------------------------------------------------------------------------------------------


def summary(values):
    """Median, min, max and spread, which is (max - min) / median."""
    median = statistics.median(values)
    return {"median": median, "min": min(values), "max": max(values), "spread": (max(values) - min(values)) / median}


def times_as_long(theirs, ours):
    """Median over the rounds of their time divided by ours: whatever slows down a round affects both."""
    return statistics.median(their / our for their, our in zip(theirs, ours, strict=True))


def timing(turns, name, first=None):
    """The times of one contender: a summary of its seconds, their ratio to those of the first, and all rounds.

    ``first`` is the contender to compare with, by default the first in ``turns``. If it has failed, the ratio is None.
    """
    seconds = [second for second, _ in turns[name]]
    ours = [second for second, _ in turns.get(first or next(iter(turns)), ())]
    ratio = times_as_long(seconds, ours) if ours else None
    return {"seconds": summary(seconds), "times_as_long": ratio, "rounds": seconds}


def fit_power(x, y):
    """(p, c) of the power law c xᵖ that fits the upper half of the points (a straight line on logarithmic axes)."""
    points = upper_half(sorted(zip(x, y, strict=True)))
    if len(points) < 2 or min(y for _, y in points) <= 0:
        return math.nan, math.nan
    p, log_c = np.polyfit(*np.log(np.array(points)).T, deg=1)
    return float(p), float(np.exp(log_c))


def upper_half(points):
    """The upper half of sorted points, where constant costs no longer count; all points if there are up to three."""
    return points[len(points) // 2 :] if len(points) > 3 else points


# -- what is shown and written ------------------------------------------------------------------------------------


def short(number):
    """A number with three significant digits: 0.0123, 12.3, 1,234; "–" for None and NaN."""
    if number is None or math.isnan(number):
        return "–"
    decimals = 2 - math.floor(math.log10(abs(number))) if number else 0
    return f"{number:,.{min(max(decimals, 0), 6)}f}"


def note(text):
    """Show the progress in a terminal, in a line that the next call overwrites."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def print_table(header, rows):
    """Print an aligned Markdown table: the first column to the left, the others to the right."""
    cells = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(_aligned(row, widths)) + " |" for row in cells]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    print("\n".join([lines[0], "| " + " | ".join(rule) + " |", *lines[1:]]), flush=True)


def _aligned(row, widths):
    return [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]


def new_figure(width, height):
    """A matplotlib figure that needs no screen."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


# -- arguments ----------------------------------------------------------------------------------------------------


def new_parser(description, **defaults):
    """Options that most benchmarks share: --rounds, --seconds, --quick, --json."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, help=f"turns of each contender (default: {defaults['rounds']})")
    parser.add_argument(
        "--seconds", type=above_zero, help=f"seconds per turn, at least one step (default: {defaults['seconds']})"
    )
    parser.add_argument("--quick", action="store_true", help=defaults["quick"])
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write the figures to FILE")
    return parser


def add_backends(parser, default):
    """Add the option --backends, for the backends of npformer."""
    parser.add_argument(
        "--backends",
        type=some_of(["cpu", "reference"]),
        default=default,
        metavar="A,B",
        help=f"backends of npformer, cpu,reference; all are compared with the first (default: {','.join(default)})",
    )


def backend_name(backend):
    """The name of a backend of npformer in tables."""
    return "npformer" if backend == "cpu" else f"npformer, {backend}"
