"""What ``show_config`` and ``npformer info`` say; their advice comes and goes with its reason."""

import importlib
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import types

import numpy as np
import pytest
from programs import python

from npformer.commands import info

import npformer
from npformer import config
from npformer.runtime import threads as threads_of_npformer
from npformer.runtime.blas_threads import blas_threads

VARIABLES = ("OPENBLAS_CORETYPE", "NUMBA_DISABLE_JIT", "NUMBA_CACHE_DIR", *config.THREAD_VARIABLES)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def machine(monkeypatch):
    """Sets what the processor and OpenBLAS are; all the rest is real."""

    def set_(core, threads=4, cores=4):
        settings = b"OpenBLAS 0.3.99 DYNAMIC_ARCH MAX_THREADS=64"
        answers = {
            "get_config": settings,
            "get_corename": core.encode(),
            "get_num_threads": threads,
        }
        monkeypatch.setattr(config, "_ask_openblas", lambda name, restype: answers[name])
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        for module in (config, threads_of_npformer):
            monkeypatch.setattr(module, "user_threads", lambda: threads)

    return set_


@pytest.fixture
def hide(monkeypatch):
    """Makes modules as if they were not installed."""

    def hide_(*names):
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hide_


def things_to_do(facts=None):
    return [step["do"] for step in (facts or config.read_config())["advice"]]


def test_a_core_chosen_by_the_environment_is_to_be_unset(machine, monkeypatch):
    machine("Haswell")
    assert things_to_do() == []
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert things_to_do() == ["unset OPENBLAS_CORETYPE"]


def test_where_all_is_well_it_says_so(machine, capsys):
    machine("SkylakeX", threads=1, cores=1)
    npformer.show_config()
    shown = capsys.readouterr().out
    assert "\nBLAS          OpenBLAS 0.3.99, core SkylakeX, 1 thread (in npformer 1)\n" in shown
    assert "\nthreads       npformer divides large work among 1\n" in shown
    assert ", 1 core, " in shown
    assert shown.endswith("\n\nNothing to change, as far as can be known.\n")


def test_of_another_library_only_the_name_is_told(monkeypatch, capsys):
    shown = {"Build Dependencies": {"blas": {"name": "mkl", "found": True, "version": "2024.2"}}}
    monkeypatch.setattr(config, "_ask_openblas", lambda name, restype: None)
    monkeypatch.setattr(np, "show_config", lambda mode: shown)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    npformer.show_config()
    shown = capsys.readouterr().out
    assert "\nBLAS          mkl 2024.2, which kernels it uses is not known\n" in shown
    assert shown.endswith("\nNothing to change, as far as can be known.\n")


# --- threads ---


def test_what_limits_the_threads_is_told(machine, monkeypatch):
    def limited_by(threads):
        machine("SkylakeX", threads=threads, cores=4)
        limits = config.read_config()["threads"]
        assert limits["most"] == threads
        return limits["limited_by"]

    assert limited_by(4) == []
    assert limited_by(2) == ["the threads of OpenBLAS"]
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert limited_by(2) == ["the threads of OpenBLAS, OPENBLAS_NUM_THREADS=2"]


def test_another_library_than_openblas_is_a_limit(machine, capsys):
    machine("SkylakeX", threads=None)
    npformer.show_config()
    limit = "limited by another BLAS than OpenBLAS, whose own threads it cannot limit"
    assert f"among 1, {limit}" in capsys.readouterr().out


# --- the real library ---


def test_the_core_and_threads_are_those_that_threadpoolctl_sees():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    seen = [pool for pool in threadpoolctl.threadpool_info() if pool["internal_api"] == "openblas"]
    if not seen:
        pytest.skip("NumPy is not linked to OpenBLAS")
    blas = config.read_config()["blas"]
    names = "architecture", "num_threads", "version"
    pools = [[pool[name] for name in names] for pool in seen]
    assert [blas["core"], blas["threads"], blas["version"]] in pools


def test_the_threads_are_those_of_this_moment():
    if config.read_config()["blas"]["threads"] in (None, 1):
        pytest.skip("one thread, or NumPy is not linked to OpenBLAS")
    with blas_threads(1):
        assert config.read_config()["blas"]["threads"] == 1
    assert config.read_config()["blas"]["threads"] > 1


# --- backends and kernels ---


def test_auto_is_what_get_backend_chooses():
    assert npformer.get_backend("auto").name == config.read_config()["backends"]["auto"]


def test_without_kernels(machine, hide, capsys):
    machine("SkylakeX")
    hide("numba")
    facts = config.read_config()
    assert facts["versions"]["numba"] == "not installed"
    assert facts["kernel_cache"] is None
    backends = facts["backends"]
    assert backends["auto"] == "reference"
    assert backends["cpu"] == "numba is not installed"
    assert backends["reference"] == "available"
    assert things_to_do(facts) == ["pip install --upgrade numba"]
    npformer.show_config()
    assert "\nauto          chooses reference\nkernel cache  none\n" in capsys.readouterr().out


@pytest.mark.parametrize("broken", ["numba", "npformer.cpu"])
def test_what_is_installed_but_broken_is_told_with_the_error(machine, monkeypatch, broken):
    real = importlib.import_module

    def import_module(name):
        if name == broken:
            raise ImportError("needs NumPy\n2.3 or less")
        return real(name)

    machine("SkylakeX")
    monkeypatch.setattr(importlib, "import_module", import_module)
    facts = config.read_config()
    message = f"{broken} is installed, but cannot be imported (needs NumPy 2.3 or less)"
    assert facts["backends"]["cpu"] == message
    assert facts["backends"]["auto"] == "reference"
    assert things_to_do(facts) == (["pip install --upgrade numba"] if broken == "numba" else [])


def test_a_page_of_an_error_becomes_a_line():
    page = "\n=====\nFailed to import.\n\n" + "Perhaps this. " * 100
    shown = config._shortened(ImportError(page))
    assert shown.startswith("===== Failed to import. Perhaps this.")
    assert shown.endswith("...")
    assert len(shown) <= 200
    assert "\n" not in shown


def fake(monkeypatch, name, **contents):
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__dict__.update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def no_devices():
    raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")


def test_the_gpu_backend(monkeypatch, hide):
    fake(monkeypatch, "npformer.gpu")

    def assert_told(version, line):
        facts = config.read_config()
        assert facts["versions"]["CuPy"] == version
        assert re.fullmatch(line, facts["backends"]["gpu"])

    hide("cupy")
    missing = r"CuPy is not installed: pip install .*\[cuda13x\]', or cuda12x.*"
    assert_told("not installed", missing)
    runtime = types.SimpleNamespace(getDeviceCount=no_devices)
    cuda = types.SimpleNamespace(runtime=runtime)
    fake(monkeypatch, "cupy", __version__="14.0.0", cuda=cuda)
    no_gpu = r".*CuPy finds no GPU \(does nvidia-smi.*no CUDA-capable device is detected"
    assert_told("14.0.0", no_gpu)
    runtime.getDeviceCount = lambda: 1
    assert_told("14.0.0", "available")


@pytest.mark.parametrize(("value", "told"), [("1", True), ("0", False), ("", False)])
def test_a_numba_that_does_not_compile_is_told(machine, monkeypatch, value, told):
    machine("SkylakeX")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", value)
    assert things_to_do() == ["unset NUMBA_DISABLE_JIT"] * told


def test_kernels_are_kept_where_the_environment_says(tmp_path):
    pytest.importorskip("numba")
    variables = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    variables["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")
    command = ["-W", "error", "-m", "npformer", "info", "--json", tmp_path / "config.json"]
    shown = python(*command, env=variables).stdout
    folder = json.loads((tmp_path / "config.json").read_text())["kernel_cache"]
    assert folder.startswith(variables["NUMBA_CACHE_DIR"])
    assert f"\nkernel cache  {folder}\n" in shown


def test_a_numba_that_may_write_nowhere_is_told(machine, monkeypatch):
    numba = pytest.importorskip("numba")

    def njit(**options):
        assert options == {"cache": True}
        raise RuntimeError("cannot cache function 'kernel': no locator available")

    machine("SkylakeX")
    monkeypatch.setattr(numba, "njit", njit)
    facts = config.read_config()
    assert facts["kernel_cache"] is None
    assert things_to_do(facts) == ["export NUMBA_CACHE_DIR=/a/folder/you/may/write"]


# --- the processor, on systems that tell less ---


def test_a_system_that_tells_neither_the_processor_nor_the_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(config, "Path", lambda path: types.SimpleNamespace(exists=lambda: False))
    monkeypatch.setattr(config.platform, "processor", lambda: "")
    processor = config._processor()
    assert processor["name"] == ""
    assert processor["cores"] == 7


# --- the command ---


def test_the_command_prints_and_writes_the_same_facts(tmp_path, call):
    shown = call(info.main, "--json", tmp_path / "config.json").shown
    facts = json.loads((tmp_path / "config.json").read_text())
    assert shown.strip() == config.as_text(facts)
    assert facts["versions"]["npformer"] == npformer.__version__
    assert facts["versions"]["NumPy"] == np.__version__
    assert facts.keys() == config.read_config().keys()


def test_every_line_is_aligned(capsys):
    npformer.show_config()
    table = capsys.readouterr().out.split("\n\n")[0].splitlines()
    names = ["versions", "processor", "threads", "BLAS"]
    names += ["reference", "cpu", "gpu", "auto", "kernel"]
    assert [line.split()[0] for line in table] == names
    assert all(line[13] == " " and line[14] != " " for line in table)
