"""What the tests of commands of ``npformer exercises`` have in common."""

import shlex
import sys

import pytest

from npformer.commands.exercises import main

from npformer.exercises.child import ALL, check_file


@pytest.fixture
def exercises_folder(tmp_path, monkeypatch):
    """An empty folder, in which the command works."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["npformer exercises"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def exercises(capsys, monkeypatch):
    """The command; functions are checked in this process, as tests of the process are elsewhere."""
    in_process = lambda key, file, seconds: (check_file(ALL[key], str(file)), "")
    monkeypatch.setattr("npformer.commands.exercises.track.check_in_process", in_process)

    def run_command(text):
        code = main(shlex.split(text))
        said = capsys.readouterr()
        return code, said.out + said.err

    return run_command
