"""The command ``npformer chat``, and ``npformer generate`` with a model that exists."""

import builtins
import io
import json
import re
import sys

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")
from tiny import saved, tiny_encoder, tiny_language_model

from npformer.commands import chat, generate

SHORT = ["--n-tokens", "20", "--temperature", "9"]


@pytest.fixture
def folder(tmp_path):
    return saved(tmp_path / "model", tiny_language_model(max_len=200))


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


def test_long_readings_are_announced_and_only_new_tokens_are_read(folder, capsys, monkeypatch):
    monkeypatch.setattr(chat, "LONG", 0)
    monkeypatch.setattr(sys, "stdin", io.StringIO("how?\nwhy?\n"))
    assert chat.main(["--model", folder, "--context", "150", *SHORT]) == 0
    errors = capsys.readouterr().err
    (first, all_first), (second, all_second) = re.findall(r"tokens/s; (\d+) of (\d+) tokens read in \d", errors)
    assert first == all_first and int(second) <= int(all_second) - int(first)
    assert [line for line in errors.splitlines() if "…" in line] == [f"reading {n} tokens …" for n in (first, second)]


def test_a_context_that_the_model_does_not_have_is_an_error_in_one_line(folder, capsys):
    assert chat.main(["--model", folder, "--prompt", "x", "--context", "999"]) == 1
    assert capsys.readouterr().err == "error: context=999, expected at most 200, the tokens that the model reads\n"


def test_the_operations_of_an_answer_are_listed(folder, capsys):
    assert chat.main(["--model", folder, "--prompt", "how?", "--explain", *SHORT]) == 0
    errors = capsys.readouterr().err
    assert "rms_norm float32" in errors and "cpu kernel   stack_step float32: x 1×16, at 1×" in errors


def test_each_line_of_standard_input_is_answered_until_the_context_is_full(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("how?\n\n  why? \nwho?\n"))
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

    def answered(talk, question, options, answer=chat.answered):
        said.append(question)
        if question == "one?":
            raise KeyboardInterrupt
        return answer(talk, question, options)

    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(builtins, "input", read)
    monkeypatch.setattr(chat, "answered", answered)
    assert chat.main(["--model", folder, *SHORT]) == 0
    assert said == ["one?", "two?", 300 * "long", "three?"]
    errors = capsys.readouterr().err
    assert errors.startswith("model: Ctrl-C ends an answer, Ctrl-D the chat\n")
    assert "error: this turn has 12" in errors
    assert errors.count("tokens/s") == 2


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
