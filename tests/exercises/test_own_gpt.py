"""``npformer exercises gpt``.

Twelve functions of the one-page GPT, and the model that they make.
"""

import gzip
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from npformer.exercises.course.file import starting_text
from npformer.exercises.gpt import GPT
from npformer.exercises.gpt.taking import shared_functions
from npformer.exercises.gpt.text import sentences_of, sentences_of_npformer
from npformer.exercises.gpt.writing import Writer, words_of
from npformer.exercises.transformer import BUILD
from tests.exercises.solving import edit, solve

ROOT = Path(__file__).parents[2]
FILE, TRANSFORMER = Path("exercises/gpt.py"), Path("exercises/transformer.py")
TEXT = "The cat sat on the mat, and the rat sat on the cat.\n" * 50
TINY = {"d_model": 8, "n_layers": 1, "d_ff": 8}


@pytest.fixture(autouse=True)
def tiny(folder, monkeypatch):
    """A small model, and a text in t.txt."""
    monkeypatch.setattr("npformer.exercises.gpt.writing.SIZES", TINY)
    monkeypatch.setattr("npformer.exercises.gpt.writing.N_WRITTEN", 40)
    Path("t.txt").write_text(TEXT, encoding="utf-8")


def test_from_the_first_exercise_to_the_model_that_writes(run):
    said = run("gpt", 0)
    assert said.startswith("Your file: exercises/gpt.py\n")
    assert "Exercise 1, embed: " in said and "guides/your-gpt.md, section 1\n" in said
    solve(GPT, "embed")
    assert "Exercise 2, rms_norm: " in run("gpt check")
    assert "1 of 12 exercises are yours: embed\n" in run("gpt train --text t.txt --steps 2")
    solve(GPT)
    said = run("gpt check", 0)  # all that are written, one after the other
    assert said.count(": solved") == 11
    assert said.endswith("all are solved, so the model is yours: npformer exercises gpt train\n")
    said = run("gpt train --text t.txt --steps 120", 0)
    assert "12 of 12 exercises are yours" in said
    first, *_, last = map(float, re.findall(r"loss of new text:? (\d\.\d+)", said))
    assert last < first - 1
    assert re.search(r"\d+ of the \d+ words of three letters or more occur in the text\n", said)
    assert GPT.page.functions.keys() <= runpy.run_path(str(FILE)).keys()  # the file alone


def test_the_guide_shows_what_the_command_prints(run):
    page = (ROOT / "docs" / "guides" / "your-gpt.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"^\$ npformer exercises gpt\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert run("gpt").startswith(shown)
    sections = re.findall(r"^## (\d+)(?: and (\d+))?\. `(\w+)`", page, re.MULTILINE)
    numbered = [(n, name) for first, second, name in sections for n in (first, second) if n]
    parts = [(str(GPT.number_of(part)), part.function_name) for part in GPT.parts.values()]
    assert numbered == parts


@pytest.mark.parametrize("label", ["self_attention", "decoder_layer", "gpt"])
def test_a_case_has_more_than_three_positions(label):
    for seed in range(3):
        cases = GPT.parts[label].cases(np.random.default_rng(seed))
        assert max(case.args[1].shape[1] for case in cases) > 3


# -- what is taken over from one's own Transformer -------------------------------------------------


@pytest.mark.parametrize("option", ["", "--derive"])
def test_what_is_solved_in_build_is_taken_over_and_said(run, option):
    run(f"build {option}")
    solve(BUILD, "softmax", "attention_backward", "adam_step", "split_heads")
    edit(TRANSFORMER, r"    e = np\.exp\(", "    # mine\n    e = np.exp(")
    # adam_step is not checked
    for name in ("softmax", "attention", "attention_backward", "split_heads"):
        run(f"build check {name}")
    said = run("gpt", 0)
    line = "Taken over from exercises/transformer.py, where you have solved them: "
    assert said.startswith(f"{line}softmax, attention, split_heads\n")
    solved = re.findall(r"^ *\d+  (\w+) .* solved$", said, re.MULTILINE)
    assert solved == ["attention", "attention_backward"]
    own = edit(FILE, r"scale \* q @ k", "q @ k")
    assert "    # mine\n" in own and "raise NotImplementedError  # exercise 11" in own
    assert "Exercise 5, attention" in own and "Exercise 2, attention" not in own
    assert run("gpt").count("changed since its check") == 2


def test_a_solution_that_has_changed_is_not_taken_over(run):
    run("build")
    solve(BUILD, "softmax")
    run("build check softmax")
    edit(TRANSFORMER, r"e / e\.sum", "2 * e / e.sum")
    assert "Taken over" not in run("gpt")


def test_a_solution_that_needs_its_file_is_not_taken_over(run):
    run("build")
    solve(BUILD, "softmax")
    edit(TRANSFORMER, r"x - x\.max\(axis=-1, keepdims=True\)", "x - largest(x)")
    with TRANSFORMER.open("a", encoding="utf-8") as stream:
        stream.write("\n\ndef largest(x):\n    return x.max(axis=-1, keepdims=True)\n")
    run("build check softmax", 0)
    line = "softmax is not taken over from exercises/transformer.py, as it needs largest of "
    assert run("gpt").startswith(line)


def test_a_solution_on_one_line_is_taken_over(run):
    run("build")
    answer = "x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)"
    line = f"def merge_heads(x): return {answer}\n\n\n"
    edit(TRANSFORMER, r"(?ms)^def merge_heads\(.*?(?=^\S)", line)
    run("build check merge_heads", 0)
    assert "solved them: merge_heads\n" in run("gpt")
    assert line in FILE.read_text(encoding="utf-8")


def test_nothing_is_taken_over_from_a_file_that_python_cannot_read(run):
    run("build")
    TRANSFORMER.write_text("def (", encoding="utf-8")
    line = "Python cannot read exercises/transformer.py, so nothing is taken over from it\n"
    said = run("gpt", 0)
    assert said.startswith(line)
    assert FILE.read_text(encoding="utf-8") == starting_text(GPT)


def test_the_functions_that_both_pages_have():
    expected = ["softmax", "attention", "split_heads", "merge_heads", "adam_step"]
    assert shared_functions(BUILD) == expected


# -- the file, and the text ------------------------------------------------------------------------


def test_a_function_that_was_broken_since_its_check_is_given(run):
    run("gpt")
    solve(GPT, "embed", "rms_norm")
    run("gpt check")
    edit(FILE, r"return table\[ids\], backward", "return 2, backward")
    said = run("gpt train --text t.txt --steps 2", 0)
    assert "embed: not yet right\n" in said
    assert "\n1 of 12 exercises are yours: rms_norm\n" in said


def test_a_text_that_is_none_is_refused_before_the_training(run):
    run("gpt")
    file = Path("t.txt")

    def refused(words):
        said = run("gpt train --text t.txt", 1)
        assert words in said
        assert "exercises are yours" not in said

    file.write_bytes(b"To be, or not to be.")
    refused("t.txt has 20 characters, expected at least 2,000: take a longer text")
    file.write_bytes(b"caf\xe9 " * 1000)
    refused("t.txt, line 1: 'utf-8' codec can't decode byte 0xe9 in position 3")
    file.write_bytes(b"\xff" * 3000)
    refused("expected UTF-8: save the text as UTF-8 in your editor")
    file.unlink()
    refused("t.txt is missing: expected a text")


def test_a_text_may_be_packed_short_or_long(run, monkeypatch):
    monkeypatch.setattr("npformer.exercises.gpt.text.MOST", 2500)
    run("gpt")
    Path("t.txt.gz").write_bytes(gzip.compress(TEXT.replace("\n", "\r\n").encode()))
    said = run("gpt train --text t.txt.gz --steps 1", 0)
    assert "t.txt.gz is long: its first 2,500 characters are read\n" in said
    assert "learns them by heart" in said and "\n2,499 characters, 16 different ones" in said


def test_a_text_on_one_line(run):
    run("gpt")
    Path("t.txt").write_text("All work and no play makes Jack a dull boy. " * 50, encoding="utf-8")
    run("gpt train --text t.txt --steps 2", 0)


def test_a_loss_that_is_no_number_ends_the_training(run, monkeypatch):
    run("gpt")
    solve(GPT)
    run("gpt check")
    monkeypatch.setattr("npformer.exercises.gpt.writing.PEAK", np.nan)
    said = run("gpt train --text t.txt --steps 5", 1)
    line = "the loss is nan in step 2: which of your functions has changed since its check?"
    assert f"error: {line}" in said


def test_sentences_are_those_of_docstrings_without_their_examples():
    docstring = "One\nsentence. Another, of f(x).\n\n>>> Code(1).\n... more(). \nLast?"
    assert sentences_of(docstring) == ["One sentence.", "Another, of f(x).", "Last?"]
    text = sentences_of_npformer()
    assert len(text) > 150_000 and text.isascii() and ">>>" not in text
    assert len(set(text.splitlines())) == len(text.splitlines())


def test_words_are_of_three_letters_or_more():
    assert words_of("A map of 100 naïve maps_2.") == ["map", "naïve", "maps"]


def test_what_is_shown_does_not_change_what_is_learned():
    shown, other = (Writer(vars(GPT.page.module), TEXT) for _ in range(2))
    shown.show(0)
    weights = []
    for writer in (shown, other):
        writer.train(3)
        weights.append(writer.params["output"]["weight"])
    np.testing.assert_array_equal(*weights)
