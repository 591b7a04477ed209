"""The cores that this process may use.

Affinity, quotas of control groups, and ``PYTHON_CPU_COUNT``.
"""

import os
import subprocess
import sys

import pytest

from npformer.runtime import cores

ALLOWED = 8


@pytest.fixture
def cores_of(monkeypatch, tmp_path):
    """``cores_of(line, files)`` writes the files of control groups of a process that has this line
    in /proc/self/cgroup, and returns how many cores it may use.
    """
    monkeypatch.setattr(cores, "allowed", lambda: ALLOWED)
    monkeypatch.setattr(cores, "CGROUPS", tmp_path)
    monkeypatch.setattr(cores, "OWN_CGROUPS", tmp_path / "own")

    def cores_of(line, files):
        for path in tmp_path.rglob("c*.*"):
            path.unlink()
        for name, text in {"own": line, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        cores.quota.cache_clear()
        return cores.cores()

    yield cores_of
    cores.quota.cache_clear()


def test_the_numbers_of_the_cores_are_those_of_the_affinity(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 3}, raising=False)
    assert cores.core_numbers() == [3, 5]


def test_a_quota_limits_the_cores(cores_of):
    def with_quota(text):
        return cores_of("0::/", {"cpu.max": text})

    assert with_quota("100000 100000") == 1
    assert with_quota("max 100000") == ALLOWED
    assert with_quota("250000 100000") == 2
    assert with_quota("50000 100000") == 1
    assert with_quota("1600000 100000") == ALLOWED
    assert with_quota("what is this") == ALLOWED
    assert cores_of("0::/", {}) == ALLOWED


def test_a_quota_of_a_group_limits_those_in_it(cores_of):
    outer = {"a/cpu.max": "300000 100000"}
    assert cores_of("0::/a/b", {**outer, "a/b/cpu.max": "max 100000"}) == 3
    assert cores_of("0::/a/b", {**outer, "a/b/cpu.max": "200000 100000"}) == 2
    assert cores_of("0::/../a", {"cpu.max": "200000 100000"}) == 2


def test_a_quota_of_the_first_version_of_control_groups(cores_of):
    def with_quota(line, folder, quota):
        files = {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": "100000"}
        return cores_of(line, files)

    assert with_quota("4:cpu,cpuacct:/a", "cpu,cpuacct/a", "200000") == 2
    assert with_quota("4:cpu,cpuacct:/a", "cpu,cpuacct/a", "-1") == ALLOWED
    assert with_quota("4:cpu,cpuacct:/docker/x", "cpu,cpuacct", "100000") == 1
    assert with_quota("4:memory:/a", "memory/a", "100000") == ALLOWED


def test_without_control_groups_there_is_no_quota(monkeypatch, tmp_path):
    monkeypatch.setattr(cores, "OWN_CGROUPS", tmp_path / "none")
    cores.quota.cache_clear()
    assert cores.quota() is None
    cores.quota.cache_clear()


CODE = "from npformer.runtime.threads import n_threads; print(n_threads())"


def n_threads_of(command, **environ):
    unlimited = {name: x for name, x in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [*command, sys.executable, "-c", CODE]
    return subprocess.check_output(command, env=unlimited | environ, text=True).strip()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="there is no affinity here")
def test_one_thread_on_one_core():
    one = str(min(os.sched_getaffinity(0)))
    assert n_threads_of(["taskset", "-c", one]) == "1"


def test_python_s_own_number_of_cores_is_a_limit():
    assert n_threads_of([], PYTHON_CPU_COUNT="1") == "1"
