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
def cgroup(monkeypatch, tmp_path):
    """A function that writes the files of control groups,
    of which the process has this line in /proc/self/cgroup.
    """
    monkeypatch.setattr(cores, "allowed", lambda: ALLOWED)
    monkeypatch.setattr(cores, "CGROUPS", tmp_path)
    monkeypatch.setattr(cores, "OWN_CGROUPS", tmp_path / "own")

    def write(line, files):
        (tmp_path / "own").write_text(line + "\n")
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")

    cores.quota.cache_clear()
    yield write
    cores.quota.cache_clear()


V1 = {"quota": "cpu.cfs_quota_us", "period": "cpu.cfs_period_us"}


@pytest.mark.parametrize(
    ("line", "files", "expected"),
    [
        ("0::/", {"cpu.max": "100000 100000"}, 1),
        ("0::/", {"cpu.max": "max 100000"}, ALLOWED),
        ("0::/", {"cpu.max": "250000 100000"}, 2),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", {"cpu.max": "1600000 100000"}, ALLOWED),
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "200000 100000"}, 2),
        ("0::/../a", {"cpu.max": "200000 100000"}, 2),
        (
            "4:cpu,cpuacct:/a",
            {f"cpu,cpuacct/a/{V1['quota']}": "200000", f"cpu,cpuacct/a/{V1['period']}": "100000"},
            2,
        ),
        (
            "4:cpu,cpuacct:/a",
            {f"cpu,cpuacct/a/{V1['quota']}": "-1", f"cpu,cpuacct/a/{V1['period']}": "100000"},
            ALLOWED,
        ),
        (
            "4:cpu,cpuacct:/docker/x",
            {f"cpu,cpuacct/{V1['quota']}": "100000", f"cpu,cpuacct/{V1['period']}": "100000"},
            1,
        ),
        ("4:memory:/a", {f"memory/a/{V1['quota']}": "100000"}, ALLOWED),
        ("0::/", {}, ALLOWED),
        ("0::/", {"cpu.max": "what is this"}, ALLOWED),
    ],
)
def test_a_quota_limits_the_cores(cgroup, line, files, expected):
    cgroup(line, files)
    assert cores.cores() == expected


def test_without_control_groups_there_is_no_quota(cgroup):
    assert cores.quota() is None


CODE = "from npformer.runtime.threads import n_threads; print(n_threads())"


def n_threads_of(command, **environ):
    unlimited = {name: x for name, x in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [*command, sys.executable, "-c", CODE],
        env=unlimited | environ,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="there is no affinity here")
def test_one_thread_on_one_core():
    one = str(min(os.sched_getaffinity(0)))
    assert n_threads_of(["taskset", "-c", one]) == "1"


def test_python_s_own_number_of_cores_is_a_limit():
    assert n_threads_of([], PYTHON_CPU_COUNT="1") == "1"
