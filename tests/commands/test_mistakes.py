"""Mistakes with every script; ``tests/tools/mistakes.py`` makes many more of them."""

import re
import sys
from pathlib import Path

import pytest

from npformer.commands import copy, detect_anomalies

from tests.tools import mistakes

for name in ("sentencepiece", "safetensors", "sacrebleu", "sacremoses", "matplotlib"):
    pytest.importorskip(name)

DRAWING = [copy, detect_anomalies]


@pytest.mark.skipif(sys.platform != "linux", reason="some commands and messages are those of Linux")
def test_one_mistake_with_each_script(capsys):
    assert mistakes.run(mistakes.first_of_each_script(), jobs=1) == []
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(
        {each.script for each in mistakes.MISTAKES}
    )


def test_every_script_and_command_has_a_help_and_names_the_nearest_option():
    assert mistakes.run_with_every(mistakes.command_lines()) == []


def test_what_is_named_like_a_script_is_one():
    """The other files are imported by scripts, and do nothing if they are run."""
    for path in mistakes.SCRIPTS.rglob("*.py"):
        is_named = re.match(r"(bench|compare|diagnose|draw|measure)_", path.name)
        is_named = is_named or (path.parent == mistakes.SCRIPTS and path.name != "__init__.py")
        assert (mistakes.IS_SCRIPT in path.read_text(encoding="utf-8")) == bool(is_named), path


@pytest.mark.parametrize("script", DRAWING, ids=lambda script: script.__name__)
def test_what_cannot_be_written_is_noticed_before_the_training(script, tmp_path, call):
    (tmp_path / "file").write_text("")
    code, _, errors = call(script.main, "--out", tmp_path / "file" / "x")
    assert code == 2 and f"argument --out: {tmp_path / 'file' / 'x'} cannot be written" in errors


def test_the_tool_notices_what_is_unexpected(tmp_path):
    def make(command, code, line):
        return mistakes.make(
            mistakes.Mistake("get_multi30k.py", "", command, code, line), tmp_path
        )[-1]

    assert make("--langs it", 2, "argument --langs: 'it', …") is None
    assert make("--langs it", 1, "argument --langs: 'it', …").startswith("expected 1")
    assert make("--langs it", 2, "argument --langs: 'de', …").startswith("expected 2")
    assert make("echo Traceback >&2; echo error: x >&2; exit 1; SCRIPT", 1, "x").startswith(
        "more than one line"
    )


def test_the_tool_notices_a_help_that_does_more(tmp_path):
    writes = f"open({str(mistakes.ROOT / 'x')!r}, 'w')"
    for name, code in {
        "a": "print('usage: x')",
        "b": "import sys; sys.exit(0)",
        "c": "1 / 0",
        "d": writes,
    }.items():
        (tmp_path / f"{name}.py").write_text(code)
    unexpected = mistakes.run_with_every([str(tmp_path / f"{name}.py") for name in "abcd"])
    assert len(unexpected) == 8
    assert not (mistakes.ROOT / "x").exists()


def test_the_document_has_the_table():
    text = (Path(__file__).parents[2] / "docs" / "guides" / "bad-input.md").read_text(
        encoding="utf-8"
    )
    assert "\n".join(mistakes.table()) in text, (
        "python tests/tools/mistakes.py --table prints the present one"
    )
