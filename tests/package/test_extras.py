"""Where npformer says how to install what is missing."""

import configparser
import re
from pathlib import Path, PurePosixPath

from programs import python

from npformer.commands import exercises
from npformer.commands.shared import arguments

from npformer import extras


def test_an_extra_is_installed_in_a_clone_or_from_a_wheel(monkeypatch):
    monkeypatch.setattr(extras, "IS_CLONE", True)
    monkeypatch.setattr(extras, "ROOT", PurePosixPath("/home/me/npformer"))
    assert extras.pip_install("plot") == "pip install -e '/home/me/npformer[plot]'"
    assert extras.pip_install() == "pip install -e /home/me/npformer"
    monkeypatch.setattr(extras, "IS_CLONE", False)
    assert extras.pip_install("plot") == "pip install 'npformer[plot]'"
    assert extras.pip_install() == "pip install npformer"


def test_no_text_tells_of_an_extra_what_is_wrong_in_a_clone_or_in_a_shell():
    """``pip install npformer[plot]`` installs another copy beside a clone,
    and zsh takes the brackets for a pattern.
    """
    commands = []
    for path in Path(extras.__file__).parent.rglob("*.py"):
        commands += re.findall(r"pip install .*npformer\[.*", path.read_text(encoding="utf-8"))
    assert commands
    for line in commands:
        assert line.startswith("pip install 'npformer[") and "in a clone" in line


def test_without_a_clone_pages_of_the_book_are_addresses(monkeypatch, capsys, tmp_path):
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[2] / "setup.cfg", encoding="utf-8")
    assert setup["metadata"]["url"] == extras.ADDRESS
    for module in (arguments, exercises):
        monkeypatch.setattr(module, "BOOK", "https://x/docs")
    parser = arguments.new_parser("see docs/guides/scale.md")
    assert parser.description == "see https://x/docs/guides/scale.md"
    monkeypatch.chdir(tmp_path)
    exercises.main([])
    assert "\nhttps://x/docs/attention/" in capsys.readouterr().out


def test_without_matplotlib_the_error_says_what_to_install():
    code = """
import sys
sys.modules["matplotlib"] = sys.modules["matplotlib.figure"] = None
from npformer.plots import plot_positional_encoding
try:
    plot_positional_encoding("x.png")
except ImportError as error:
    print(error)
"""
    shown = python("-c", code).stdout
    assert shown == f"pictures need matplotlib: {extras.pip_install('plot')}\n"
