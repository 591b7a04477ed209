"""Compiled kernels are kept on disk, and compiled again when any file they may depend on has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import npformer

RUN = """
import numpy as np
from npformer.cpu import dropout
from npformer.cpu.dropout import _dropout
print(dropout(np.ones(4, np.float32), 0.5, 1).tolist(), sum(_dropout.stats.cache_misses.values()))
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package, and a function that runs code with it and returns what it prints."""
    ignored = shutil.ignore_patterns("__pycache__")
    copy = shutil.copytree(Path(npformer.__file__).parent, tmp_path / "npformer", ignore=ignored)

    def run(**environment):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), **environment}
        environment.pop("NUMBA_DISABLE_JIT", None)
        return subprocess.check_output([sys.executable, "-c", RUN], text=True, cwd=tmp_path, env=environment).strip()

    return copy, run


def test_compiled_once_and_again_when_another_file_changes(package):
    copy, run = package
    first = run()
    assert first.endswith(" 1")
    assert run() == first.removesuffix("1") + "0"
    path = copy / "cpu" / "scalar.py"
    path.write_text(path.read_text("utf-8").replace("return mix32(np.uint32", "return ~mix32(np.uint32"), "utf-8")
    changed = run()
    assert changed.endswith(" 1")
    assert changed != first


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_where_nothing_can_be_written_kernels_compile_all_the_same(package):
    copy, run = package
    for folder in (copy / "cpu", copy):
        folder.chmod(0o500)
    assert run(HOME="/nonexistent", XDG_CACHE_HOME="/nonexistent") == run(HOME="/nonexistent")


def test_a_process_that_compiles_computes_the_same_bits_as_one_that_finds_kernels_on_disk(tmp_path):
    """Otherwise a resumed training would not reproduce, bit for bit, the training that compiled the kernels."""
    code = f"""
import hashlib, sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from npformer import cpu
from results import arguments_of, run
for name in ("self_attention_backward", "linear_activation_dropout", "layer_norm", "cross_entropy"):
    print(name, [hashlib.md5(x.tobytes()).hexdigest() for x in run(cpu, name, arguments_of(name, "float32"))])
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    environment.pop("NUMBA_DISABLE_JIT", None)
    first, second = (
        subprocess.check_output([sys.executable, "-c", code], text=True, env=environment) for _ in range(2)
    )
    assert first == second


def test_without_a_place_to_write_the_decorator_falls_back(monkeypatch):
    import numba

    from npformer.cpu import jit

    njit = numba.njit

    def refuse(*args, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available for file")
        return njit(*args, **options)

    monkeypatch.setattr(numba, "njit", refuse)
    assert jit.kernel(lambda x: x + 1)(np.float32(1)) == 2
