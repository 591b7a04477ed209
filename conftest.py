"""Examples in docstrings and in the README are run where the packages they need are installed."""

import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

NEEDS = {
    "sentencepiece": [
        "npformer/tokens/subwords.py",
        "npformer/text/parallel_text.py",
        "npformer/tokens/tokenizers.py",
        "npformer/text/translator.py",
    ],
    "sacrebleu": ["npformer/text/scores.py"],
    "sacremoses": ["npformer/text/scores.py"],
    "safetensors": ["npformer/files/checkpoint.py"]
    + [
        f"docs/guides/{name}.md"
        for name in ("fine-tuning", "library", "loop-by-hand", "pretrained")
    ],
}
collect_ignore = [
    path for package, paths in NEEDS.items() if find_spec(package) is None for path in paths
]
collect_ignore += [] if Path("models/smollm2").is_dir() else ["docs/descendants/by-hand.md"]
collect_ignore_glob = ["tests/cuda_on_cpu/*"]  # whose cupy would be taken for CuPy
collect_ignore_glob += ["tests/tools/*"]  # which are imported as tests.tools, or run as scripts
# which hold no doctests, and would be several modules of one name
collect_ignore_glob += ["tests/*/conftest.py"]
# these need Sphinx
collect_ignore_glob += ["docs/conf.py", "docs/_extensions/*", "docs/_build/*", "docs/api/*"]
collect_ignore_glob += [] if "cupy_without_gpu" in sys.modules else ["tests/cupy_without_gpu/*"]
collect_ignore_glob += [] if find_spec("cupy") else ["npformer/gpu/*"]


@pytest.fixture
def signals_of_the_foreground():
    """SIGINT and SIGHUP act: a process that nohup or a shell starts in the background ignores them.

    Not for the whole session: that would end with the terminal, which nohup is to prevent.
    """
    acting = {signal.SIGINT: signal.default_int_handler}
    if hasattr(signal, "SIGHUP"):  # not on Windows
        acting[signal.SIGHUP] = signal.SIG_DFL
    before = {number: signal.signal(number, handler) for number, handler in acting.items()}
    yield
    after = {number: signal.signal(number, handler) for number, handler in before.items()}
    assert after == acting, "the test left a signal changed"


def pytest_runtest_teardown():
    """Close the figures that a plot without a path leaves open,
    of which pyplot holds only so many.
    """
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def pytest_itemcollected(item):
    """As numpydoc has it, an example of a docstring need not import NumPy; that of a page has to.

    It runs in the foreground, but cannot ask for a fixture.
    """
    if isinstance(item, pytest.DoctestItem):
        if item.path.suffix == ".py":
            item.dtest.globs["np"] = np
        item.fixturenames.append("signals_of_the_foreground")
