"""``ending.py``, ``output.py`` and ``arguments.py`` of ``npformer/commands/shared``.

What all do about mistakes.
"""

import argparse
import errno
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import PIPES_CLOSE, WITH_SIGNALS, nobody_reads, python
from refusals import refuses

from npformer.commands import detect_anomalies, get_model, get_multi30k
from npformer.commands.copy import trained
from npformer.commands.shared import arguments, command, output, signature
from scripts.bench.options import above_zero, natural, some_of

import npformer
from npformer.errors import UserError
from npformer.extras import pip_install
from npformer.training import CheckpointError

ROOT = Path(__file__).parents[2]


def main_that(act):
    return command(lambda argv=None: act())


def that_raises(error):
    def act():
        raise error

    return main_that(act)


# -- ending.py -------------------------------------------------------------------------------------


MISTAKES = {
    FileNotFoundError(errno.ENOENT, "No such file or directory", "x.en"): (
        "x.en: No such file or directory"
    ),
    FileNotFoundError("there is no checkpoint x"): "there is no checkpoint x",
    OSError(errno.ENOSPC, "No space left on device"): (
        "reading or writing failed: No space left on device"
    ),
    CheckpointError("x cannot be read"): "x cannot be read",
    UserError("two\nlines"): "two lines",
    ImportError("scores need x: pip install x"): "scores need x: pip install x",
    MemoryError("1 TiB"): "there is not enough memory: 1 TiB; smaller sizes need less",
    UnicodeEncodeError("ascii", "é", 0, 1, ""): (
        "standard output cannot show 'é': set PYTHONIOENCODING=utf-8"
    ),
}


@pytest.mark.parametrize("error", MISTAKES, ids=repr)
def test_a_mistake_is_one_line_and_exit_code_1(error, capsys):
    assert that_raises(error)() == 1
    assert capsys.readouterr().err == f"error: {MISTAKES[error]}\n"


def test_a_value_that_npformer_refuses_is_a_mistake(capsys):
    assert main_that(lambda: npformer.CopyTask(vocab=2))() == 1
    assert capsys.readouterr().err.startswith("error: vocab=2")


BUGS = [
    lambda: np.zeros(2) + np.zeros(3),  # a ValueError that nobody wrote for the user
    lambda: int("x"),
    lambda: trained.sequence_of("x"),  # the same, called by npformer
    lambda: {}["x"],
    lambda: __import__("a_package_that_is_not_there"),
]


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_keeps_its_traceback(bug):
    with pytest.raises((ValueError, KeyError, ImportError)):
        main_that(bug)()


def test_ctrl_c_is_quiet(capsys):
    assert that_raises(KeyboardInterrupt())() == 130
    assert capsys.readouterr() == ("", "")


@WITH_SIGNALS
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_command_as_an_exit(name):
    number = getattr(signal, name)
    # nohup lets programs ignore SIGHUP, and those that they start
    before = signal.signal(number, signal.SIG_DFL)
    with pytest.raises(SystemExit) as stop:
        main_that(lambda: signal.raise_signal(number))()
    assert signal.signal(number, before) is signal.SIG_DFL
    assert stop.value.code == 128 + number


def test_an_exit_code_is_passed_on():
    assert main_that(lambda: 143)() == 143
    assert main_that(lambda: None)() == 0


def run(text, **options):
    """Run a script that prints this text."""
    imports = "import sys\nfrom npformer.commands.shared import command\n"
    script = f"{imports}@command\ndef main(argv=None):\n    print('{text}')\nsys.exit(main())"
    return python("-E", "-c", script, cwd=ROOT, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_on_a_full_disk_is_an_error():
    with open("/dev/full", "w") as full:
        done = run("figures", stdout=full, code=1)
    assert done.stderr == "error: standard output: No space left on device\n"


@PIPES_CLOSE
def test_a_reader_that_is_gone_is_quiet():
    with nobody_reads() as pipe:
        assert run("figures", stdout=pipe).stderr == ""


def test_names_that_are_not_utf_8_are_printed_as_they_were_given():
    assert run(r"\udce9", errors="surrogateescape").stdout == "\udce9\n"


def test_the_line_at_which_an_import_fails_says_what_to_install():
    for path in (ROOT / "scripts").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "main())" in text:
            first = re.search("^from (npformer|scripts).*", text, re.MULTILINE)[0]
            assert first.endswith("  # needs pip install -e ."), path


AS_TYPED = {
    "max_len=60, expected at most max_tokens=30": "--max-len 60, expected at most --max-tokens 30",
    "max_len=60.": "--max-len 60.",
    "lr=0.001: try nf.Adam(lr=0.001)": "--lr 0.001: try nf.Adam(lr=0.001)",
    "max_len=60, expected at most max_len=256 of the model": (
        "--max-len 60, expected at most max_len=256 of the model"
    ),
    # a default, which nobody typed
    "d_model=10 is not divisible": "d_model=10 is not divisible",
    "expected a sentence, or skip_empty=True": "expected a sentence, or --skip-empty",
    "steps=0, expected at least 1": "--steps 0, expected at least 1",  # typed as --steps=0
    "runs/max_len=60/x is missing; form='gnmt', d=3": (
        "runs/max_len=60/x is missing; --form 'gnmt', d=3"
    ),
    # the name of the folder that was typed
    "seed=1 holds a training": "seed=1 holds a training",
}


@pytest.mark.parametrize("message", AS_TYPED)
def test_messages_name_options_as_they_are_typed(message, capsys):
    @command
    def main(argv):
        parser = arguments.new_parser("")
        for name in ("--max-len", "--max-tokens", "--seed", "--out", "--steps", "--form"):
            parser.add_argument(name)
        parser.add_argument("--lr", type=float)
        parser.add_argument("--d-model", type=int, default=10)
        parser.add_argument("--skip-empty", action="store_true")
        parser.parse_args(argv)
        raise UserError(message)

    typed = "--out seed=1 --seed 1 --max-len 60 --max-tokens 30 --lr 1e-3 --steps=0 --form gnmt"
    assert main(typed.split()) == 1
    assert capsys.readouterr().err == f"error: {AS_TYPED[message]}\n"


def test_the_options_of_one_command_are_not_those_of_the_next(capsys):
    @command
    def main(argv):
        parser = arguments.new_parser("")
        parser.add_argument("--seed")
        parser.parse_args(argv)

    assert main(["--seed", "1"]) == 0
    assert that_raises(UserError("seed=1, expected 2"))() == 1
    assert capsys.readouterr().err == "error: seed=1, expected 2\n"


# -- output.py -------------------------------------------------------------------------------------


def not_taken(message, kind, text):
    """A text is no value of an option, for a short reason that contains this message."""
    with pytest.raises(argparse.ArgumentTypeError, match=message) as refused:
        kind(str(text))
    assert len(str(refused.value)) < 300


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    return path


def test_what_cannot_be_written_is_refused_at_once(file, tmp_path):
    below_a_file = "cannot be written.*Not a directory"
    not_taken("expected a file", output.output_file, tmp_path)
    not_taken(below_a_file, output.output_file, file / "x.json")
    not_taken(below_a_file, output.output_file, file / "a" / "b.json")
    not_taken(below_a_file, output.output_folder, file)
    not_taken(below_a_file, output.output_folder, file / "runs")
    of_path = signature.details_of("model", Path)["type"]
    for kind in (output.output_folder, output.output_file, of_path):
        not_taken("'' is no name, expected one", kind, "")


def test_what_can_be_written_is_left_alone(file, tmp_path):
    assert output.output_file(str(file)) == file
    assert output.output_file(str(tmp_path / "a" / "b.json")) == tmp_path / "a" / "b.json"
    assert output.output_folder(str(tmp_path / "runs")) == tmp_path / "runs"
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_permissions_are_checked(file, tmp_path):
    file.chmod(0o400)
    not_taken("Permission denied", output.output_file, file)


def test_a_picture_needs_matplotlib_and_a_format(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    assert output.picture_file(str(tmp_path / "x.PNG"))
    for name in ("x.doc", "x"):
        not_taken("expected a name that ends with", output.picture_file, tmp_path / name)


def test_without_matplotlib_a_script_says_at_its_start_that_it_will_not_draw(
    monkeypatch, capsys, tmp_path
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    install = "pictures need matplotlib: pip install"
    not_taken(install, output.picture_file, tmp_path / "x.png")
    assert output.Pictures().folder(tmp_path) is None
    needed = "no pictures will be drawn: they need matplotlib: "
    assert capsys.readouterr().out == f"{needed}{pip_install('plot')}\n"


def test_a_matplotlib_that_cannot_be_imported_is_no_reason_to_fail_later(
    monkeypatch, capsys, tmp_path
):
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    why = "need matplotlib, which cannot be imported: import of matplotlib.figure halted; "
    assert output.Pictures().folder(tmp_path) is None
    assert capsys.readouterr().out.startswith(f"no pictures will be drawn: they {why}")
    not_taken(f"^pictures {why}", output.picture_file, tmp_path / "x.png")


def test_a_write_that_fails_names_the_file_and_leaves_the_old_one(file, monkeypatch):
    def full(path, data):
        path.write_text("ha")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    message = f"No space left on device: '{file}'"
    refuses(OSError, message, output.write_json, file, {"a": 1})
    assert file.read_text() == "old"
    assert list(file.parent.iterdir()) == [file]


def test_a_link_stays_a_link(file, tmp_path):
    (tmp_path / "link").symlink_to(file)
    output.write_json(tmp_path / "link", 1)
    assert (tmp_path / "link").is_symlink()
    assert file.read_text() == "1\n"


@pytest.mark.parametrize("mode", ["w", "a"])
def test_a_device_is_written_to(mode, tmp_path):
    code = """
from npformer.commands.shared import output
print("before")
for path in ("/dev/stdout", "/dev/fd/1"):
    output.write_json(output.output_file(path), 1)
print("after")
"""
    with open(tmp_path / "shown", mode) as shown:
        python("-c", code, cwd=ROOT, stdout=shown)
    assert (tmp_path / "shown").read_text() == "before\n1\n1\nafter\n"


# -- arguments.py ----------------------------------------------------------------------------------


def test_values_that_make_no_sense():
    not_taken("expected", arguments.positive, 0)
    not_taken("expected", arguments.positive, "1" * 20)
    not_taken("expected", natural, -1)
    not_taken("expected", natural, "9" * 5000)
    for name, value in (("beam_size", 10**11), ("max_len", 10**12)):
        not_taken("expected at most", arguments.in_range("AT_LEAST_1", name), value)
    not_taken("expected", arguments.in_range("NOT_NEGATIVE"), "nan")
    not_taken("expected", above_zero, "one")
    not_taken("expected", arguments.utf_8, "for\udceat")


def test_a_slip_of_the_hand_between_commas():
    kind = some_of(["full", "causal"])
    assert kind("causal,full") == ["causal", "full"]
    not_taken(r"^'causl', did you mean causal\?$", kind, "full,causl")
    not_taken("^'x', expected some of full,causal$", kind, "x")


def test_values_that_make_sense():
    assert natural(str(2**64 - 1)) == 2**64 - 1  # a seed
    assert arguments.positive("16000") == 16000
    assert arguments.utf_8("forêt") == "forêt"


# -- what the help says of numbers and names that the code has -------------------------------------


def test_the_help_says_what_the_code_has(call):
    def says(module, words):
        assert words in " ".join(call(module.main, "--help").shown.split())

    full, quick = detect_anomalies.FULL["steps"], detect_anomalies.QUICK["steps"]
    says(detect_anomalies, f"{full}, with --quick {quick}")
    says(get_model, f"one of {', '.join(get_model.PACKAGES)}")
    says(get_multi30k, f"two or three of {get_multi30k.LANGUAGES}")
