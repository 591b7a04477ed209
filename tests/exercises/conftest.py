"""What the tests of commands of ``npformer exercises`` have in common."""

import shlex
import sys

import pytest

from npformer.commands.exercises import main

from npformer.exercises.child import check_file
from npformer.exercises.courses import ALL


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which the command works."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["npformer exercises"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def run_in_processes(folder, capsys):
    """``run_in_processes(text, status)`` runs a command. Returns what it says.

    If an exit status is given, the command has to end with it.
    """

    def run(text, status=None):
        code = main(shlex.split(text))
        said = "".join(capsys.readouterr())
        assert status in (None, code), said
        return said

    return run


@pytest.fixture
def run(run_in_processes, monkeypatch):
    """The same, where functions are checked in this process: that is faster."""
    in_process = lambda key, file, seconds: (check_file(ALL[key], str(file)), "")
    for module in ("npformer.commands.exercises", "npformer.commands.exercises.course"):
        monkeypatch.setattr(f"{module}.check_in_process", in_process)
    return run_in_processes
