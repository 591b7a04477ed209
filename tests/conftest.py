"""What several test files share."""

import on_gpu
import pytest

import npformer
from npformer import cpu, reference
from npformer.threads import n_threads


@pytest.fixture(autouse=True)
def threads_are_left_as_they_were():
    before = n_threads()
    yield
    assert n_threads() == before


@pytest.fixture(params=[reference, cpu], ids=["reference", "cpu"])
def every_backend(request, monkeypatch):
    """Runs a test once for each backend, whose operations are then those of ``npformer``."""
    for name in reference.__all__:
        monkeypatch.setattr(npformer, name, getattr(request.param, name))
    return request.param


def pytest_terminal_summary(terminalreporter):
    if on_gpu.NO_GPU:
        where = "skipped" if on_gpu.MISSING else "run on the processor"
        terminalreporter.write_line(f"no GPU was tested, its kernels were {where}: {on_gpu.NO_GPU}")
