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
from programs import WITH_SIGNALS
from tiny import saved, tiny_language_model

from npformer.commands import chat, generate

from npformer import tree
from npformer.models import LowRank
from npformer.pretrained.chat import Answer

SHORT = ["--n-tokens", "20", "--temperature", "9"]
NO_INPUT = "error: there is no standard input: expected a text, or"


@pytest.fixture
def folder(tmp_path):
    return saved(tmp_path / "model", tiny_language_model(max_len=200))


@pytest.fixture
def use(call, folder, tmp_path):
    """``use(main, *arguments)`` runs a command with the model.

    A chat writes its answers to x.json.
    """

    def use(main, *arguments):
        figures = ["--json", tmp_path / "x.json"] if main is chat.main else []
        return call(main, "--model", folder, *figures, *arguments)

    return use


@pytest.fixture
def answers(tmp_path):
    return lambda: json.loads((tmp_path / "x.json").read_text())["answers"]


def test_an_answer_to_a_prompt_is_on_standard_output_and_its_speed_on_standard_error(
    folder, tmp_path, use
):
    arguments = ["--prompt", "how?", "--system", "be", *SHORT]
    code, shown, errors = use(chat.main, *arguments)
    figures = json.loads((tmp_path / "x.json").read_text())
    [answer] = figures["answers"]
    assert (code, figures["model"], answer["question"]) == (0, folder, "how?")
    assert shown.rstrip("\n") == answer["text"].rstrip("\ufffd\n")
    speed = f"{answer['n_said']} tokens, {answer['tokens_per_second']:.1f} tokens/s; "
    assert errors.splitlines()[-1].startswith(speed)  # kernels may be compiled before
    assert use(chat.main, *arguments)[:2] == (0, shown)
    code, other, _ = use(chat.main, *arguments, "--seed", "1")
    assert code == 0 and other != shown


def test_long_readings_are_announced_and_only_new_tokens_are_read(use, monkeypatch, standard_input):
    monkeypatch.setattr(chat, "LONG", 0)
    standard_input(b"how?\nwhy?\n")
    code, _, errors = use(chat.main, "--context", "150", *SHORT)
    assert code == 0
    (first, all_first), (second, all_second) = re.findall(
        r"tokens/s; (\d+) of (\d+) tokens read in \d", errors
    )
    assert first == all_first and int(second) <= int(all_second) - int(first)
    assert [line for line in errors.splitlines() if "…" in line] == [
        f"reading {n} tokens …" for n in (first, second)
    ]


def test_a_context_that_the_model_does_not_have_is_an_error_in_one_line(use):
    error = "error: --context 999, expected at most 200, the tokens that the model reads\n"
    assert use(chat.main, "--prompt", "x", "--context", "999") == (1, "", error)


def test_the_operations_of_an_answer_are_listed(use):
    code, _, errors = use(chat.main, "--prompt", "how?", "--explain", *SHORT)
    assert code == 0
    assert (
        "rms_norm float32" in errors and "cpu kernel   stack_step float32: x 1×16, at 1×" in errors
    )


def test_each_line_of_standard_input_is_answered_until_the_context_is_full(
    use, answers, standard_input
):
    standard_input(b"how?\n\n  why? \nwho?\n")
    code, _, errors = use(chat.main, "--n-tokens", "99")
    assert [answer["question"] for answer in answers()] == ["how?", "why?", "who?"]
    assert code == 0 and "the context is full: the 2 oldest turns are forgotten" in errors


def test_ctrl_c_ends_an_answer_and_ctrl_d_the_chat(use, monkeypatch):
    typed = iter(["one?", KeyboardInterrupt, "", "two?", 300 * "long", "three?", EOFError])
    said = []

    def read(prompt):
        assert prompt == "> "
        given = next(typed)
        if isinstance(given, str):
            return given
        raise given

    def answered(talk, question, answer=chat.Talk.answer):
        said.append(question)
        if question == "one?":
            raise KeyboardInterrupt
        answer(talk, question)

    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(builtins, "input", read)
    monkeypatch.setattr(chat.Talk, "answer", answered)
    code, _, errors = use(chat.main, *SHORT)
    assert (code, said) == (0, ["one?", "two?", 300 * "long", "three?"])
    assert errors.startswith("model: Ctrl-C ends an answer, Ctrl-D the chat\n")
    assert "error: this turn has 12" in errors
    assert errors.count("tokens/s") == 2


def test_a_line_that_cannot_be_answered_costs_no_other(use, answers, standard_input):
    standard_input(b"how?\nfor\xeat\n" + 300 * b"long" + b"\nwhy?\n")
    code, shown, errors = use(chat.main, *SHORT)
    first, not_utf_8, too_long, last = answers()
    assert (code, shown) == (1, f"{first['text']}\n{last['text']}\n".replace("\ufffd\n", "\n"))
    assert (first["question"], last["question"]) == ("how?", "why?")
    assert not_utf_8["question"] is None and too_long["question"] == 300 * "long"
    named = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert named[0] == f"error: {not_utf_8['error']}"
    assert named[0].startswith(
        "error: standard input, line 2: 'utf-8' codec can't decode byte 0xea"
    )
    assert named[1] == f"error: standard input, line 3: {too_long['error']}"
    assert too_long["error"].startswith("this turn has 12")


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), 130), (MemoryError("1 TiB"), 1), (ValueError("a bug"), None)],
    ids=repr,
)
def test_whatever_ends_a_chat_its_answers_are_written(
    use, answers, monkeypatch, standard_input, error, code
):
    def said(talk, question, *, show, **options):
        if question == "two?":
            show("as far as ")
            raise error
        return Answer("yes", *range(1, 7))

    monkeypatch.setattr(chat.Chat, "answer", said)
    standard_input(b"one?\ntwo?\nthree?\n")
    if code is None:
        # this error is not raised by npformer, and keeps its traceback
        with pytest.raises(ValueError, match="a bug"):
            use(chat.main)
    else:
        assert use(chat.main).code == code
    first, second = answers()
    assert (first["question"], first["text"], first["n_said"]) == ("one?", "yes", 3)
    assert second == {
        "question": "two?",
        "text": "as far as ",
        "error": str(error) or "KeyboardInterrupt",
    }


def command(folder, tmp_path):
    """A chat in a process of its own."""
    program = [sys.executable, "-m", "npformer", "chat"]
    return [*program, "--model", folder, "--json", str(tmp_path / "x.json"), *SHORT]


@pytest.mark.skipif(
    sys.platform == "win32", reason="on Windows a pipe that is closed is another error"
)
def test_answers_are_written_if_nobody_reads_them(folder, tmp_path, answers):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(folder, tmp_path), input=b"how?\nwhy?\n", stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    assert done.returncode == 0, done.stderr
    [answer] = answers()
    assert answer["question"] == "how?" and answer["text"]


@WITH_SIGNALS
def test_answers_are_written_if_the_program_is_asked_to_end(folder, tmp_path, answers):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command(folder, tmp_path), **pipes) as process:
        process.stdin.write(b"how?\n")
        process.stdin.flush()
        assert process.stdout.readline()  # the answer
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    [answer] = answers()
    assert answer["question"] == "how?" and answer["text"]


def test_a_dash_stands_for_all_of_standard_input(use, answers, standard_input):
    standard_input("how?\nwhy, é?\n".encode())
    assert use(chat.main, "--prompt", "-", *SHORT).code == 0
    [answer] = answers()
    assert answer["question"] == "how?\nwhy, é?"
    standard_input(b"a man\nis\n")
    code, shown, _ = use(generate.main, "-", "--n-tokens", "5")
    assert code == 0 and shown.startswith("a man\nis")


@pytest.mark.parametrize(
    ("main", "arguments", "data", "line"),
    [
        *(
            (main, arguments, data, line)
            for main, arguments in ((chat.main, ["--prompt", "-"]), (generate.main, ["-"]))
            for data, line in (
                (b"\n", "error: standard input is empty"),
                (b"\xea", "error: standard input, line 1: 'utf-8' codec can't"),
                (None, NO_INPUT),
            )
        ),
        (chat.main, [], None, NO_INPUT),
        (generate.main, ["-"], b"a\0b", "error: standard input has "),
    ],
)
def test_a_standard_input_that_is_no_text_is_named(
    use, standard_input, main, arguments, data, line
):
    standard_input(data)
    code, _, errors = use(main, *arguments)
    assert code == 1 and errors.startswith(line)


def test_a_text_is_continued_by_a_model_that_exists(use):
    code, shown, _ = use(generate.main, "a man", "--n-tokens", "30", "--n", "2")
    first, second = shown.split("\n\na man")
    assert code == 0 and first.startswith("a man") and len(first) > 6
    assert second != first[5:]


@pytest.mark.filterwarnings("ignore:npformer alone reads a model with adapters")
@pytest.mark.parametrize("command", [chat, generate])
def test_adapters_are_merged(call, tmp_path, command):
    model, params, tokenizer = tiny_language_model(max_len=200)
    adapted = LowRank(model, params, rank=2)
    own = tree.map_leaves(lambda x: x + 0.5, adapted.init(1))
    ways = {
        "adapters": (adapted, own, tokenizer),
        "merged": (model, adapted.merged(own), tokenizer),
    }
    prompt = ["how?"] if command is generate else ["--prompt", "how?"]
    shown = []
    for name, made in ways.items():
        code, text, errors = call(
            command.main, "--model", saved(tmp_path / name, made), *prompt, *SHORT
        )
        assert code == 0, errors
        shown.append(text)
    assert shown[0] == shown[1]


def test_a_model_that_is_missing_is_answered_with_where_models_come_from(call, tmp_path):
    code, _, errors = call(generate.main, "--model", tmp_path / "gpt2", "a")
    assert (
        code == 1
        and "nothing is downloaded" in errors
        and "git clone https://huggingface.co/NAME" in errors
    )


def test_the_gguf_files_of_a_folder_are_named_if_there_are_several(call, tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    for command, prompt in ((chat, ["--prompt", "a"]), (generate, ["a"])):
        code, _, errors = call(command.main, "--model", tmp_path, *prompt)
        assert code == 1 and "give one of its files, a.gguf, b.gguf" in errors
