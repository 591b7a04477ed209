"""Contenders that take turns.

Libraries that run in one process, or in two at the same time, compete for the cores, and the load
of a shared machine changes from one hour to the next. So each contender (a library that is
measured) has a process of its own, which sleeps unless it is its turn, and the contenders take
turns: A B C, A B C, ...
"""

import contextlib
import gc
import importlib
import multiprocessing
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scripts.bench.machine import PAUSE, busy_seconds
from scripts.bench.memory import peak_bytes, reset_peak, resident_bytes
from scripts.bench.report import note


class LeftOut(Exception):
    """A contender cannot take part; the message says why."""


class Built(NamedTuple):
    """What is known about a step before it is timed."""

    first_value: object  # the result of the first call
    build_seconds: float  # to build it and call it once, compilation included
    step_seconds: float  # per call after the warm-up, roughly


class Contender:
    """A library that is measured, in a process of its own, which sleeps unless it has a command to
    run.

    The process imports the ``libraries`` before anything is measured. ``build``, a function at the
    top of a module, is called there as ``build(*case)`` and returns ``step``, a function without
    arguments.
    """

    def __init__(self, name, libraries, build):
        self.name = name
        self.built = None
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, libraries, build), name=name)
        self._process.start()
        theirs.close()

    def build(self, *case, warm_up=2):
        """Build the step for a case, which replaces the previous step, and call it ``warm_up``
        times.
        """
        self.built = self._ask("build", case, warm_up)

    def run(self, n_steps):
        """(seconds per step, result of the last step)."""
        return self._ask("run", n_steps)

    def run_for(self, seconds):
        """``run`` for about so many seconds, at least one step."""
        return self.run(max(1, round(seconds / max(self.built.step_seconds, 1e-7))))

    def memory(self):
        """The memory of the process so far, in bytes, by what a benchmark calls it."""
        return self._ask("memory")

    def cpu_seconds(self):
        """Processor time of all threads so far; 0 if the system does not provide it."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        if not stat.exists():
            return 0.0
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
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


def _serve(pipe, libraries, build):
    """The main loop of a contender's process: answer commands until the other end of the pipe is
    closed.
    """
    # Ctrl-C is handled by the parent, which closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = _Worker(libraries, build)
    while True:
        try:
            command, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = True, getattr(worker, command)(*arguments)
        except Exception as error:
            answer = False, f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
        pipe.send(answer)


class _Worker:
    """The commands of a contender's process."""

    def __init__(self, libraries, build):
        self._libraries = libraries
        self._build = build
        self._step = None

    def build(self, case, warm_up):
        self._step = None
        gc.collect()
        for library in self._libraries:
            importlib.import_module(library)
        reset_peak()
        self._after_imports = resident_bytes()
        start = time.perf_counter()
        self._step = self._build(*case)
        self._after_build = resident_bytes()
        self._peak_of_build = peak_bytes()
        reset_peak()
        first_value = self._step()
        seconds = build_seconds = time.perf_counter() - start
        for _ in range(warm_up - 1):
            seconds, _ = self.run(1)
        return Built(first_value, build_seconds, seconds)

    def run(self, n_steps):
        start = time.perf_counter()
        for _ in range(n_steps):
            value = self._step()
        return (time.perf_counter() - start) / n_steps, value

    def memory(self):
        running = peak_bytes()
        return {
            "libraries_bytes": self._after_imports,
            "training_bytes": max(running, self._peak_of_build) - self._after_imports,
            "running_bytes": running - self._after_imports,
            "step_bytes": running - self._after_build,
        }


def alternate(contenders, turns):
    """Run the rounds of ``Turns``, in which the contenders work one after another.

    Returns {name: a (seconds per step, result of the last step) for each round}, without contenders
    that failed, and the number of cores that other programs used meanwhile.
    """
    times = {contender.name: [] for contender in contenders}
    start = time.perf_counter()
    busy = busy_seconds()
    own = sum(c.cpu_seconds() for c in contenders)
    for i in range(turns.rounds):
        for contender in [contender for contender in contenders if contender.name in times]:
            note(f"round {i + 1} of {turns.rounds}: {contender.name}")
            time.sleep(PAUSE)
            try:
                times[contender.name].append(contender.run_for(turns.seconds))
            except LeftOut as reason:
                print(f"left out: {contender.name}: {reason}", flush=True)
                del times[contender.name]
    note("")
    others = busy_seconds() - busy - (sum(c.cpu_seconds() for c in contenders) - own)
    return times, max(0.0, others / (time.perf_counter() - start))


@contextlib.contextmanager
def started(entries):
    """Context manager with a contender for each (name, libraries, build)."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Contender(*each)) for each in entries]


def of_backends(backends, build):
    """(name, libraries, build) of a contender for each backend: ``build(*case, backend=...)``."""
    entries = []
    for backend in backends:
        name = "npformer" if backend == "cpu" else f"npformer, {backend}"
        entries.append((name, (f"npformer.{backend}",), partial(build, backend=backend)))
    return entries


def build_all(contenders, *case, warm_up=2):
    """Build a case in each contender, one after another. Returns those that succeed; prints why the
    others fail.
    """
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


def agreeing(contenders, differs, inexact=()):
    """The contenders whose first value is that of the first one: ``differs(theirs, ours)``; prints
    the others.

    Those named in ``inexact`` only need a value of the same shape.
    """
    able = []
    first = contenders[0] if contenders else None
    for contender in contenders:
        theirs = contender.built.first_value
        ours = first.built.first_value
        agrees = np.shape(theirs) == np.shape(ours)
        if agrees and contender.name not in inexact:
            agrees = not differs(theirs, ours)
        if agrees:
            able.append(contender)
        else:
            why = f"begins with {theirs}, {first.name} with {ours}"
            print(f"left out: {contender.name}: {why}", flush=True)
    return able
