"""Fixtures and hooks that several test files share."""

import gc
import io
import json
import sys

import on_gpu
import pytest
from in_browser import chromium, look, path, site  # noqa: F401
from programs import Ended, exit_code
from tested import npf

from npformer import cpu, get_backend, reference
from npformer.runtime.threads import n_threads

FIRST = ["tests/operations/test_parity.py", "tests/gpu/", "tests/commands/", "tests/scripts/"]


def pytest_collection_modifyitems(items):
    """Run the tests that compile most first:
    numba in the first and g++ in the second of two processes.
    """
    items.sort(key=lambda item: [item.nodeid.startswith(name) for name in [*FIRST, ""]].index(True))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is imported and collected lives to the end.

    Let the collector of garbage look at none of it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def threads_are_left_as_they_were():
    before = n_threads()
    yield
    assert n_threads() == before


@pytest.fixture(params=[reference.ops, cpu.ops], ids=["reference", "cpu"])
def every_backend(request):
    """Run a test once for each backend, with its operations as those of ``tested.npf``."""
    before = vars(npf).copy()
    vars(npf).update({name: getattr(request.param, name) for name in request.param.names()})
    yield request.param
    vars(npf).update(before)


@pytest.fixture(params=["reference", "cpu"])
def default_backend(request, monkeypatch):
    """Run a test once for each backend, which is the one that "auto" chooses."""
    monkeypatch.setattr("npformer.backends._best_on_cpu", lambda: get_backend(request.param))
    return get_backend(request.param)


@pytest.fixture
def call(capsys):
    """``call(main, *arguments)`` runs a command in this process,
    which is faster than in one of its own.
    """

    def call(main, *arguments):
        return Ended(exit_code(main, arguments), *capsys.readouterr())

    return call


@pytest.fixture
def failure(call):
    """``failure(main, *arguments)`` runs a command that cannot do what it should: what it says."""

    def failure(main, *arguments):
        code, _, errors = call(main, *arguments)
        assert code == 1, errors
        return errors

    return failure


@pytest.fixture
def measure(call, tmp_path):
    """``measure(main, *arguments)`` runs a command that writes its figures to a file.

    Returns how it ended, and the figures, which are {} if it has written none.
    """

    def measure(main, *arguments):
        file = tmp_path / "figures" / "of this run.json"  # in a folder that is made
        file.unlink(missing_ok=True)
        ended = call(main, *arguments, "--json", file)
        return *ended, json.loads(file.read_text("utf-8")) if file.exists() else {}

    return measure


@pytest.fixture
def standard_input(monkeypatch):
    """``standard_input(data)`` lets a command read these bytes; None closes it."""

    def standard_input(data):
        stream = None if data is None else io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", stream)

    return standard_input


def pytest_terminal_summary(terminalreporter):
    if on_gpu.NO_GPU:
        where = "skipped" if on_gpu.MISSING else "run on the processor"
        terminalreporter.write_line(f"no GPU was tested, its kernels were {where}: {on_gpu.NO_GPU}")
