"""The command ``npformer``.

Its help, its names for what the user called, and what it says about slips of the hand.
"""

import configparser
import importlib
import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from programs import python

from npformer.commands import COMMANDS, GROUPS, called
from npformer.commands.shared import signature
from npformer.commands.shared.arguments import new_parser

import npformer
from npformer.__main__ import main

ROOT = Path(__file__).parents[2]
INSTALLED = "/usr/bin/npformer"


@pytest.fixture
def run(monkeypatch, call):
    """A function that runs the command as an installed one: (exit code, output, errors)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", [INSTALLED, *arguments])
        return call(lambda _: main())

    return run


def test_help_imports_no_other_package_and_a_hook_of_a_program_stays():
    code = """
import sys
hook = sys.excepthook = lambda *error: None
from npformer.__main__ import main
for arguments in ([], ["--help"], ["--version"], ["trian"]):
    try:
        main(arguments)
    except SystemExit:
        pass
print(sorted({"numpy", "numba", "matplotlib", "sentencepiece"} & {*sys.modules}))
assert sys.excepthook is hook
"""
    assert python("-c", code, cwd=ROOT).stdout.endswith("[]\n")


def test_help_shows_every_command_with_an_example(run):
    code, shown, _ = run()
    for arguments in (["--help"], ["help"], ["help", "help"]):
        assert run(*arguments)[:2] == (code, shown)
    for name in COMMANDS:
        assert f"\n  {name} " in shown
        assert ["npformer", name] in [line.split()[:2] for line in shown.splitlines()]
    assert shown.isascii()


@pytest.mark.parametrize("name", ["copy", "help"])
def test_help_is_of_one_command(name, run):
    code, _, message = run("help", name, "nonsense", "more")
    assert code == 2
    assert message.endswith("npformer: error: unrecognized arguments: nonsense more\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_a_module_that_shows_its_own_name(name, run):
    code, shown, _ = run(name, "--help")
    assert code == 0
    assert shown.startswith(f"usage: npformer {name} ")
    assert f"\nnpformer {name}" in shown
    assert "python " not in shown
    assert run("help", name)[:2] == (code, shown)


@pytest.mark.parametrize("name", [name for group in GROUPS.values() for name in group])
def test_the_examples_of_the_help_have_options_that_are_there(name, run):
    example = next(group[name][1] for group in GROUPS.values() if name in group)
    shown = run(name, "--help")[1]
    assert set(re.findall(r"--[\w-]+", example)) <= set(re.findall(r"--[\w-]+", shown))


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "exercises"])
def test_the_docstring_of_a_command_says_what_each_parameter_means_and_no_other(name):
    module = importlib.import_module(f"npformer.commands.{name.replace('-', '_')}")
    function = inspect.unwrap(module.main)
    parser = new_parser("")
    signature.Record(function).add_to(parser, {})
    names = {action.dest for action in parser._actions}
    assert [action.dest for action in parser._actions if not action.help] == []
    assert set(signature.meanings_in(function)) - names == set()


def test_a_flag_whose_docstring_has_a_value_is_named():
    def colours(*, colour: bool = False):
        """Colours.

        Parameters
        ----------
        colour : bool
            show colours
        """

    message = "colour : bool in a docstring: a flag has no value, expected colour alone"
    with pytest.raises(TypeError, match=message):
        signature.Record(colours).add_to(new_parser(""), {})


@dataclass
class Base:
    """Settings.

    Parameters
    ----------
    rate, least : float
        Rate of ``x``, or a factor. It is above 0.
    """

    rate: float = 0.1
    least: float = 0.0


@dataclass
class Derived(Base):
    """More settings.

    Parameters
    ----------
    rate : float
        As of ``Base``.
    least : float
        Smallest rate.
    """


def test_the_help_of_a_setting_is_the_first_sentence_of_its_class_or_of_the_base():
    parser = new_parser("")
    signature.Fields(Derived, "rate least").add_to(parser, {"least": {"help": "the least"}})
    helps = {action.dest: action.help for action in parser._actions}
    assert helps["rate"] == "rate of x, or a factor (default: 0.1)"
    assert helps["least"] == "the least (default: 0)"


def test_the_version(run):
    assert run("--version") == (0, f"npformer {npformer.__version__}\n", "")


def test_a_misspelt_name_of_the_library_is_named():
    errors = python("-c", "import npformer as nf; nf.atention", code=1).stderr
    assert "no attribute 'atention'. Did you mean: 'attention'?" in errors


def test_what_looks_like_an_option_may_be_text():
    from npformer.commands.shared import new_parser

    parser = new_parser("")
    parser.add_argument("--long-name", action="store_true")
    parser.add_argument("words", nargs="*")
    assert parser.parse_args(["--long", "--", "--no-option"]).words == ["--no-option"]
    assert parser.parse_args(["--no option"]).words == ["--no option"]


PROGRAMS = {
    INSTALLED: "npformer copy",
    str(ROOT / "npformer" / "__main__.py"): "python -m npformer copy",
    "npformer translate": "npformer copy",
    "python -m npformer translate": "python -m npformer copy",
    "scripts/translate.py": "python scripts/train_copy.py",
}


def test_a_message_names_a_command_as_the_user_calls_it(monkeypatch):
    for program, expected in PROGRAMS.items():
        monkeypatch.setattr(sys, "argv", [program])
        assert called("copy") == expected


def test_a_script_shows_its_own_name():
    shown = python("scripts/get_multi30k.py", "--help", cwd=ROOT).stdout
    assert shown.startswith("usage: get_multi30k.py ")
    assert "\npython scripts/get_multi30k.py --from" in shown
    assert "npformer get" not in shown


def test_the_entry_point_is_the_command():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    name, _, place = settings["options.entry_points"]["console_scripts"].strip().partition(" = ")
    module, _, function = place.partition(":")
    assert name == "npformer"
    assert getattr(importlib.import_module(module), function) is main
