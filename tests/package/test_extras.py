"""Where npformer says how to install what is missing."""

import configparser
from pathlib import Path

from npformer.commands import arguments, exercises

from npformer.runtime import extras


def test_an_extra_is_installed_in_a_clone_or_from_a_wheel(monkeypatch):
    monkeypatch.setattr(extras, "IS_CLONE", True)
    assert extras.pip_install("plot") == "pip install -e '.[plot]'"
    assert extras.pip_install() == "pip install -e ."
    monkeypatch.setattr(extras, "IS_CLONE", False)
    assert extras.pip_install("plot") == "pip install 'npformer[plot]'"
    assert extras.pip_install() == "pip install npformer"


def test_without_a_clone_pages_of_the_book_are_addresses(monkeypatch, capsys, tmp_path):
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[2] / "setup.cfg", encoding="utf-8")
    assert setup["metadata"]["url"] == extras.ADDRESS
    for module in (arguments, exercises):
        monkeypatch.setattr(module, "BOOK", "https://x/docs")
    assert arguments.new_parser("see docs/guides/scale.md").description == "see https://x/docs/guides/scale.md"
    monkeypatch.chdir(tmp_path)
    exercises.main([])
    assert "\nhttps://x/docs/attention/" in capsys.readouterr().out
