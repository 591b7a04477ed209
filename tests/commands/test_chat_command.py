"""The command ``npformer chat``, and ``npformer generate`` with a model that exists."""

import builtins
import io
import json
import re
import signal
import subprocess
import sys

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")
from programs import PIPES_CLOSE, WITH_SIGNALS, nobody_reads, python
from tiny import saved, tiny_language_model

from npformer.commands import chat, generate

from npformer import tree
from npformer.models import LowRank
from npformer.pretrained.chat import Answer

SHORT = ["--n-tokens", "20", "--temperature", "9"]
NO_INPUT = "error: there is no standard input: expected a text, or"
LONG = 300 * "long"


@pytest.fixture
def folder(tmp_path):
    return saved(tmp_path / "model", tiny_language_model(max_len=200))


@pytest.fixture
def talk(measure, folder):
    """``talk(*arguments)`` is a chat with the model."""
    return lambda *arguments: measure(chat.main, "--model", folder, *arguments)


@pytest.fixture
def write(call, folder):
    """``write(*arguments)`` lets the model go on with a text."""
    return lambda *arguments: call(generate.main, "--model", folder, *arguments)


@pytest.fixture
def answers(tmp_path):
    """What a chat has written, also one that was ended."""

    def answers():
        [file] = (tmp_path / "figures").iterdir()
        return json.loads(file.read_text())["answers"]

    return answers


def test_an_answer_to_a_prompt_is_on_standard_output_and_its_speed_on_standard_error(folder, talk):
    arguments = ["--prompt", "how?", "--system", "be", *SHORT]
    code, shown, errors, figures = talk(*arguments)
    [answer] = figures["answers"]
    assert (code, figures["model"], answer["question"]) == (0, folder, "how?")
    assert shown.rstrip("\n") == answer["text"].rstrip("\ufffd\n")
    speed = f"{answer['n_said']} tokens, {answer['tokens_per_second']:.1f} tokens/s; "
    assert errors.splitlines()[-1].startswith(speed)  # kernels may be compiled before
    assert talk(*arguments)[:2] == (0, shown)
    code, other, *_ = talk(*arguments, "--seed", "1")
    assert code == 0 and other != shown


def test_long_readings_are_announced_and_only_new_tokens_are_read(
    talk, monkeypatch, standard_input
):
    monkeypatch.setattr(chat, "LONG", 0)
    standard_input(b"how?\nwhy?\n")
    code, _, errors, _ = talk("--context", "150", *SHORT)
    assert code == 0
    read = re.findall(r"tokens/s; (\d+) of (\d+) tokens read in \d", errors)
    (first, all_first), (second, all_second) = read
    assert first == all_first and int(second) <= int(all_second) - int(first)
    announced = [line for line in errors.splitlines() if "…" in line]
    assert announced == [f"reading {n} tokens …" for n in (first, second)]


def test_a_context_that_the_model_does_not_have_is_an_error_in_one_line(talk):
    error = "error: --context 999, expected at most 200, the tokens that the model reads\n"
    assert talk("--prompt", "x", "--context", "999") == (1, "", error, {})


def test_the_operations_of_an_answer_are_listed(talk):
    code, _, errors, _ = talk("--prompt", "how?", "--explain", *SHORT)
    assert code == 0 and "rms_norm float32" in errors
    assert "cpu kernel   stack_step float32: x 1×16, at 1×" in errors


def test_each_line_of_standard_input_is_answered_until_the_context_is_full(talk, standard_input):
    standard_input(b"how?\n\n  why? \nwho?\n")
    code, _, errors, figures = talk("--n-tokens", "99")
    assert [answer["question"] for answer in figures["answers"]] == ["how?", "why?", "who?"]
    assert code == 0 and "the context is full: the 2 oldest turns are forgotten" in errors


def test_ctrl_c_ends_an_answer_and_ctrl_d_the_chat(talk, monkeypatch):
    typed = iter(["one?", KeyboardInterrupt, "", "two?", LONG, "three?", EOFError])
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
    code, _, errors, _ = talk(*SHORT)
    assert (code, said) == (0, ["one?", "two?", LONG, "three?"])
    assert errors.startswith("model: Ctrl-C ends an answer, Ctrl-D the chat\n")
    assert "error: this turn has 12" in errors
    assert errors.count("tokens/s") == 2


def test_a_line_that_cannot_be_answered_costs_no_other(talk, standard_input):
    standard_input(f"how?\nfor\udceat\n{LONG}\nwhy?\n".encode(errors="surrogateescape"))
    code, shown, errors, figures = talk(*SHORT)
    first, not_utf_8, too_long, last = figures["answers"]
    assert (code, shown) == (1, f"{first['text']}\n{last['text']}\n".replace("\ufffd\n", "\n"))
    questions = [answer["question"] for answer in figures["answers"]]
    assert questions == ["how?", None, LONG, "why?"]
    assert not_utf_8["error"].startswith("standard input, line 2: 'utf-8' codec can't decode byte")
    assert too_long["error"].startswith("this turn has 12")
    assert [line for line in errors.splitlines() if line.startswith("error: ")] == [
        f"error: {not_utf_8['error']}",
        f"error: standard input, line 3: {too_long['error']}",
    ]


ENDS = [(KeyboardInterrupt(), 130), (MemoryError("1 TiB"), 1), (ValueError("a bug"), None)]


@pytest.mark.parametrize("error, code", ENDS, ids=repr)
def test_whatever_ends_a_chat_its_answers_are_written(
    talk, answers, monkeypatch, standard_input, error, code
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
            talk()
    else:
        assert talk()[0] == code
    first, second = answers()
    assert (first["question"], first["text"], first["n_said"]) == ("one?", "yes", 3)
    reason = str(error) or "KeyboardInterrupt"
    assert second == {"question": "two?", "text": "as far as ", "error": reason}


@pytest.fixture
def program(folder, tmp_path):
    """The arguments of Python for a chat in a process of its own."""
    file = str(tmp_path / "figures" / "x.json")
    return ["-m", "npformer", "chat", "--model", folder, "--json", file, *SHORT]


@PIPES_CLOSE
def test_answers_are_written_if_nobody_reads_them(program, answers):
    with nobody_reads() as pipe:
        python(*program, input="how?\nwhy?\n", stdout=pipe)
    [answer] = answers()
    assert answer["question"] == "how?" and answer["text"]


@WITH_SIGNALS
def test_answers_are_written_if_the_program_is_asked_to_end(program, answers):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, *program], **pipes) as process:
        process.stdin.write(b"how?\n")
        process.stdin.flush()
        assert process.stdout.readline()  # the answer
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    [answer] = answers()
    assert answer["question"] == "how?" and answer["text"]


def test_a_dash_stands_for_all_of_standard_input(talk, write, standard_input):
    standard_input("how?\nwhy, é?\n".encode())
    code, _, _, figures = talk("--prompt", "-", *SHORT)
    assert code == 0
    assert [answer["question"] for answer in figures["answers"]] == ["how?\nwhy, é?"]
    standard_input(b"a man\nis\n")
    code, shown, _ = write("-", "--n-tokens", "5")
    assert code == 0 and shown.startswith("a man\nis")


NO_TEXT = {b"\n": "error: standard input is empty", None: NO_INPUT}
NO_TEXT[b"\xea"] = "error: standard input, line 1: 'utf-8' codec can't"


@pytest.mark.parametrize("data", NO_TEXT)
def test_a_standard_input_that_is_no_text_is_named(failure, folder, standard_input, data):
    def refused(line, main, *arguments, data=data):
        standard_input(data)
        assert failure(main, "--model", folder, *arguments).startswith(line)

    refused(NO_TEXT[data], chat.main, "--prompt", "-")
    refused(NO_TEXT[data], generate.main, "-")
    refused(NO_INPUT, chat.main, data=None)
    refused("error: standard input has ", generate.main, "-", data=b"a\0b")


def test_a_text_is_continued_by_a_model_that_exists(write):
    code, shown, _ = write("a man", "--n-tokens", "30", "--n", "2")
    first, second = shown.split("\n\na man")
    assert code == 0 and first.startswith("a man") and len(first) > 6
    assert second != first[5:]


@pytest.mark.filterwarnings("ignore:npformer alone reads a model with adapters")
def test_adapters_are_merged(call, tmp_path):
    model, params, tokenizer = tiny_language_model(max_len=200)
    adapted = LowRank(model, params, rank=2)
    own = tree.map_leaves(lambda x: x + 0.5, adapted.init(1))
    folders = [
        saved(tmp_path / "adapters", (adapted, own, tokenizer)),
        saved(tmp_path / "merged", (model, adapted.merged(own), tokenizer)),
    ]
    for main, prompt in ((generate.main, ["how?"]), (chat.main, ["--prompt", "how?"])):
        ended = [call(main, "--model", folder, *prompt, *SHORT) for folder in folders]
        assert ended[0].code == 0, ended[0].errors
        assert ended[0].shown == ended[1].shown


def test_where_models_come_from_and_which_files_there_are(failure, tmp_path):
    errors = failure(generate.main, "--model", tmp_path / "gpt2", "a")
    assert "nothing is downloaded" in errors
    assert "git clone https://huggingface.co/NAME" in errors
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    for main, prompt in ((chat.main, ["--prompt", "a"]), (generate.main, ["a"])):
        errors = failure(main, "--model", tmp_path, *prompt)
        assert "give one of its files, a.gguf, b.gguf" in errors
