"""The command ``npformer chat``, and ``npformer generate`` with a model that exists."""

import builtins
import io
import json
import os
import re
import signal
import subprocess
import sys

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")
from tiny import saved, tiny_encoder, tiny_language_model

from npformer.commands import chat, generate

from npformer.pretrained.chat import Answer

SHORT = ["--n-tokens", "20", "--temperature", "9"]


@pytest.fixture
def folder(tmp_path):
    return saved(tmp_path / "model", tiny_language_model(max_len=200))


@pytest.fixture
def pipe(monkeypatch):
    """A function that makes bytes the standard input."""

    def pipe(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    return pipe


def test_an_answer_to_a_prompt_is_on_standard_output_and_its_speed_on_standard_error(folder, tmp_path, capsys):
    arguments = ["--model", folder, "--prompt", "how?", "--system", "be", "--json", str(tmp_path / "x.json"), *SHORT]
    assert chat.main(arguments) == 0
    shown, errors = capsys.readouterr()
    figures = json.loads((tmp_path / "x.json").read_text())
    [answer] = figures["answers"]
    assert figures["model"] == folder and answer["question"] == "how?"
    assert shown.rstrip("\n") == answer["text"].rstrip("\ufffd\n")
    speed = f"{answer['n_said']} tokens, {answer['tokens_per_second']:.1f} tokens/s; "
    assert errors.splitlines()[-1].startswith(speed)  # kernels may be compiled before
    assert chat.main(arguments) == 0
    assert capsys.readouterr().out == shown
    assert chat.main([*arguments, "--seed", "1"]) == 0
    assert capsys.readouterr().out != shown


def test_long_readings_are_announced_and_only_new_tokens_are_read(folder, capsys, monkeypatch, pipe):
    monkeypatch.setattr(chat, "LONG", 0)
    pipe(b"how?\nwhy?\n")
    assert chat.main(["--model", folder, "--context", "150", *SHORT]) == 0
    errors = capsys.readouterr().err
    (first, all_first), (second, all_second) = re.findall(r"tokens/s; (\d+) of (\d+) tokens read in \d", errors)
    assert first == all_first and int(second) <= int(all_second) - int(first)
    assert [line for line in errors.splitlines() if "…" in line] == [f"reading {n} tokens …" for n in (first, second)]


def test_a_context_that_the_model_does_not_have_is_an_error_in_one_line(folder, capsys):
    assert chat.main(["--model", folder, "--prompt", "x", "--context", "999"]) == 1
    assert capsys.readouterr().err == "error: --context 999, expected at most 200, the tokens that the model reads\n"


def test_the_operations_of_an_answer_are_listed(folder, capsys):
    assert chat.main(["--model", folder, "--prompt", "how?", "--explain", *SHORT]) == 0
    errors = capsys.readouterr().err
    assert "rms_norm float32" in errors and "cpu kernel   stack_step float32: x 1×16, at 1×" in errors


def test_each_line_of_standard_input_is_answered_until_the_context_is_full(folder, tmp_path, capsys, pipe):
    pipe(b"how?\n\n  why? \nwho?\n")
    assert chat.main(["--model", folder, "--json", str(tmp_path / "x.json"), "--n-tokens", "99"]) == 0
    figures = json.loads((tmp_path / "x.json").read_text())
    assert [answer["question"] for answer in figures["answers"]] == ["how?", "why?", "who?"]
    assert "the context is full: the 2 oldest turns are forgotten" in capsys.readouterr().err


def test_ctrl_c_ends_an_answer_and_ctrl_d_the_chat(folder, capsys, monkeypatch):
    typed = iter(["one?", KeyboardInterrupt, "", "two?", 300 * "long", "three?", EOFError])
    said = []

    def read(prompt):
        assert prompt == "> "
        given = next(typed)
        if isinstance(given, str):
            return given
        raise given

    def answered(talk, question, answers, options, answer=chat.answer):
        said.append(question)
        if question == "one?":
            raise KeyboardInterrupt
        answer(talk, question, answers, options)

    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(builtins, "input", read)
    monkeypatch.setattr(chat, "answer", answered)
    assert chat.main(["--model", folder, *SHORT]) == 0
    assert said == ["one?", "two?", 300 * "long", "three?"]
    errors = capsys.readouterr().err
    assert errors.startswith("model: Ctrl-C ends an answer, Ctrl-D the chat\n")
    assert "error: this turn has 12" in errors
    assert errors.count("tokens/s") == 2


def test_a_line_that_cannot_be_answered_costs_no_other(folder, tmp_path, capsys, pipe):
    pipe(b"how?\nfor\xeat\n" + 300 * b"long" + b"\nwhy?\n")
    assert chat.main(["--model", folder, "--json", str(tmp_path / "x.json"), *SHORT]) == 1
    first, not_utf_8, too_long, last = json.loads((tmp_path / "x.json").read_text())["answers"]
    shown, errors = capsys.readouterr()
    assert shown == f"{first['text']}\n{last['text']}\n".replace("\ufffd\n", "\n")
    assert (first["question"], last["question"]) == ("how?", "why?")
    assert not_utf_8["question"] is None and too_long["question"] == 300 * "long"
    named = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert named[0] == f"error: {not_utf_8['error']}"
    assert named[0].startswith("error: standard input, line 2: 'utf-8' codec can't decode byte 0xea")
    assert named[1] == f"error: standard input, line 3: {too_long['error']}"
    assert too_long["error"].startswith("this turn has 12")


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (MemoryError("1 TiB"), 1), (ValueError("a bug"), None)], ids=repr
)
def test_whatever_ends_a_chat_its_answers_are_written(folder, tmp_path, monkeypatch, pipe, error, code):
    def said(talk, question, *, show, **options):
        if question == "two?":
            show("as far as ")
            raise error
        return Answer("yes", *range(1, 7))

    monkeypatch.setattr(chat.Chat, "answer", said)
    pipe(b"one?\ntwo?\nthree?\n")
    arguments = ["--model", folder, "--json", str(tmp_path / "x.json")]
    if code is None:
        with pytest.raises(ValueError, match="a bug"):  # which is not raised by npformer, and keeps its traceback
            chat.main(arguments)
    else:
        assert chat.main(arguments) == code
    first, second = json.loads((tmp_path / "x.json").read_text())["answers"]
    assert (first["question"], first["text"], first["n_said"]) == ("one?", "yes", 3)
    assert second == {"question": "two?", "text": "as far as ", "error": str(error) or "KeyboardInterrupt"}


@pytest.mark.skipif(sys.platform == "win32", reason="on Windows a pipe that is closed is another error")
def test_answers_are_written_if_nobody_reads_them(folder, tmp_path):
    command = [sys.executable, "-m", "npformer", "chat", "--model", folder, "--json", str(tmp_path / "x.json"), *SHORT]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, input=b"how?\nwhy?\n", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert done.returncode == 0, done.stderr
    [answer] = json.loads((tmp_path / "x.json").read_text())["answers"]
    assert answer["question"] == "how?" and answer["text"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_answers_are_written_if_the_program_is_asked_to_end(folder, tmp_path, name):
    command = [sys.executable, "-m", "npformer", "chat", "--model", folder, "--json", str(tmp_path / "x.json"), *SHORT]
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)  # nohup lets programs ignore SIGHUP, and those that they start
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        signal.signal(number, before)
        process.stdin.write(b"how?\n")
        process.stdin.flush()
        assert process.stdout.readline()  # the answer
        process.send_signal(number)
        assert process.wait(60) == 128 + getattr(signal, name)
    [answer] = json.loads((tmp_path / "x.json").read_text())["answers"]
    assert answer["question"] == "how?" and answer["text"]


def test_a_dash_stands_for_all_of_standard_input(folder, tmp_path, capsys, pipe, monkeypatch):
    pipe("how?\nwhy, é?\n".encode())
    assert chat.main(["--model", folder, "--prompt", "-", "--json", str(tmp_path / "x.json"), *SHORT]) == 0
    [answer] = json.loads((tmp_path / "x.json").read_text())["answers"]
    assert answer["question"] == "how?\nwhy, é?"
    capsys.readouterr()
    pipe(b"a man\nis\n")
    assert generate.main(["--model", folder, "-", "--n-tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("a man\nis")
    for command in (["--prompt", "-"], ["-"]):
        main = chat.main if "--prompt" in command else generate.main
        for data, line in (
            (b"\n", "standard input is empty"),
            (b"\xea", "standard input, line 1: 'utf-8' codec can't"),
        ):
            pipe(data)
            assert main(["--model", folder, *command]) == 1
            assert capsys.readouterr().err.startswith(f"error: {line}")
        monkeypatch.setattr(sys, "stdin", None)
        assert main(["--model", folder, *command]) == 1
        assert capsys.readouterr().err.startswith("error: there is no standard input: expected a text, or")
    assert chat.main(["--model", folder]) == 1
    assert capsys.readouterr().err.startswith("error: there is no standard input: expected a text, or")
    monkeypatch.undo()
    pipe(b"a\0b")
    assert generate.main(["--model", folder, "-"]) == 1
    assert capsys.readouterr().err.startswith("error: standard input has ")


def test_a_model_of_another_kind_is_an_error_in_one_line(tmp_path, capsys):
    folder = saved(tmp_path / "encoder", tiny_encoder())
    for main, more in ((chat.main, ["--prompt"]), (generate.main, [])):
        assert main(["--model", folder, *more, "x"]) == 1
        errors = capsys.readouterr().err
        assert errors.count("\n") == 1 and "expected a tokenizer and a language model" in errors


def test_a_text_is_continued_by_a_model_that_exists(folder, capsys):
    assert generate.main(["--model", folder, "a man", "--n-tokens", "30", "--n", "2"]) == 0
    first, second = capsys.readouterr().out.split("\n\na man")
    assert first.startswith("a man") and len(first) > 6
    assert second != first[5:]
