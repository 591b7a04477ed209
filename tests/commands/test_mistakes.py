"""The mistakes of ``tests/tools/mistakes.toml``.

``tests/tools/mistakes.py`` also makes the others that need a shell.
"""

import re
import sys

import pytest

from npformer.commands import copy, detect_anomalies

from tests.tools import mistakes

for name in ("sentencepiece", "safetensors", "sacrebleu", "sacremoses", "matplotlib"):
    pytest.importorskip(name)

DRAWING = [copy, detect_anomalies]


IN_A_SHELL = [each for each in mistakes.first_of_each_script() if mistakes.needs_a_shell(each)]
HERE = [each for each in mistakes.MISTAKES if not mistakes.needs_a_shell(each)]


@pytest.mark.skipif(sys.platform != "linux", reason="some commands and messages are those of Linux")
def test_mistakes_that_need_a_shell():
    assert mistakes.run(IN_A_SHELL, jobs=1) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the commands of mistakes read."""
    folder = tmp_path_factory.mktemp("mistakes")
    mistakes.make_files(folder, " ".join(mistake.command for mistake in HERE))
    last = folder / "run" / "last.safetensors"
    before = last.read_bytes()
    yield folder
    assert last.read_bytes() == before


@pytest.mark.parametrize("mistake", HERE, ids=lambda each: f"{each.script} {each.command}")
def test_a_mistake_is_one_line(mistake, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [])
    assert mistakes.make_here(mistake) is None


def test_every_script_and_command_has_a_help_and_names_the_nearest_option():
    assert mistakes.run_with_every(mistakes.command_lines()) == []


def test_what_is_named_like_a_script_is_one():
    """The other files are imported by scripts, and do nothing if they are run."""
    for path in mistakes.SCRIPTS.rglob("*.py"):
        is_named = re.match(r"(bench|compare|diagnose|draw|measure)_", path.name)
        is_named = is_named or (path.parent == mistakes.SCRIPTS and path.name != "__init__.py")
        assert (mistakes.IS_SCRIPT in path.read_text(encoding="utf-8")) == bool(is_named), path


def test_the_tool_notices_what_is_unexpected(tmp_path):
    def make(command, code, line):
        mistake = mistakes.Mistake("get_multi30k.py", "", command, code, line)
        return str(mistakes.make(mistake, tmp_path)[-1])

    assert make("--langs it", 2, "argument --langs: 'it', …") == "None"
    assert make("--langs it", 1, "argument --langs: 'it', …").startswith("expected 1")
    assert make("--langs it", 2, "argument --langs: 'de', …").startswith("expected 2")
    command = "echo Traceback >&2; echo error: x >&2; exit 1; SCRIPT"
    assert make(command, 1, "x").startswith("more than one line")


def test_the_tool_notices_a_help_that_does_more(tmp_path):
    writes = f"open({str(mistakes.ROOT / 'x')!r}, 'w')"
    codes = {"a": "print('usage: x')", "b": "import sys; sys.exit(0)", "c": "1 / 0", "d": writes}
    for name, code in codes.items():
        (tmp_path / f"{name}.py").write_text(code)
    unexpected = mistakes.run_with_every([str(tmp_path / f"{name}.py") for name in "abcd"])
    assert len(unexpected) == 8
    assert not (mistakes.ROOT / "x").exists()


def test_the_document_has_the_table():
    page = mistakes.ROOT / "docs" / "guides" / "bad-input.md"
    advice = "python tests/tools/mistakes.py --table prints the present one"
    assert "\n".join(mistakes.table_of_expected()) in page.read_text(encoding="utf-8"), advice
