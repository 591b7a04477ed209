"""The command ``npformer search``."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")
from refusals import refuses
from tiny import saved, tiny_encoder

from npformer.commands import search

from npformer.files.checkpoint import load_checkpoint, save_checkpoint
from npformer.pretrained import vector_index
from npformer.pretrained.vectors import sentence_vectors
from npformer.text.sentences import sentences


@pytest.fixture
def run(tmp_path, monkeypatch, measure):
    """A function that searches in a folder with the files a.txt and b.md:
    (exit code, output, errors, figures).
    """
    monkeypatch.chdir(tmp_path)
    saved("model", tiny_encoder())
    write("a.txt", b"The train leaves at noon. It is late!\nA short line\nand another\n")
    write("b.md", b"# Notes\n\n- milk\n- The train leaves at noon.\n---------\n")

    def run(*arguments, files=("a.txt", "b.md"), query="milk"):
        return measure(search.main, "--model", "model", *files, "--query", query, *arguments)

    return run


def write(name, data):
    """Write a file, and the folders that it is in."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(data)


def skipped(errors):
    """What is said of files, or parts of them, that are skipped."""
    prefix = "skipped: "
    return [line.removeprefix(prefix) for line in errors.splitlines() if line.startswith(prefix)]


def test_the_sentence_itself_is_found_first(run):
    code, shown, errors, figures = run(query="It is late!")
    assert (code, figures["n_sentences"], figures["n_new"]) == (0, 6, 6)
    assert all(line.startswith("npformer: compiling") for line in errors.splitlines())
    assert shown.splitlines()[0] == "1.000  a.txt:1: It is late!"
    assert len(figures["found"]) == 5
    cosines = [found["cosine"] for found in figures["found"]]
    assert cosines == sorted(cosines, reverse=True)
    [found] = run("--n", "1", query="milk")[-1]["found"]
    assert found == {"cosine": pytest.approx(1), "file": "b.md", "line": 3, "sentence": "milk"}


def test_only_the_vectors_of_new_sentences_are_computed(run, tmp_path):
    run()
    with (tmp_path / "a.txt").open("a") as file:
        file.write("A new line\n")
    figures = run(query="A new line")[-1]
    assert figures["n_new"] == 1
    assert figures["found"][0]["line"] == 4
    assert len(load_checkpoint("model.vectors.safetensors")[0]["keys"]) == 7
    assert run(files=["b.md"])[-1]["n_new"] == 0
    assert run("--index", "other")[-1]["n_new"] == 7


def test_the_vectors_of_the_folder_that_one_is_in_have_its_name(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "model")
    assert search.main(["../a.txt", "--query", "milk", "--model", "."]) == 0
    assert (tmp_path / "model" / "model.vectors.safetensors").exists()


def test_a_compressed_file_is_read(run):
    write("c.gz", gzip.compress(b"in a file\n"))
    assert run(files=["c.gz"])[1].endswith("  c.gz:1: in a file\n")


def test_what_is_no_text_is_skipped_with_a_line(run):
    write("z/b", b"in b\n")
    write("z/a/c", b"in c\n")
    write("z/a.bin", b"\0")
    write("z/.h", b"h\n")
    write("z/.g/h", b"h\n")
    write("latin", b"for\xeat")
    code, shown, errors, figures = run(files=["z"], query="in b")
    assert (code, [found["file"] for found in figures["found"]]) == (0, ["z/b", "z/a/c"])
    code, shown, errors, _ = run(files=["none", "z", "latin"], query="in b")
    # files that are named are skipped, too
    assert code == 1 and shown.splitlines()[0].endswith("z/b:1: in b")
    assert [line[:31] for line in skipped(errors)] == [
        "none is missing: expected a tex",
        "z: 1 of 3 files hold no text in",
        "latin, line 1: 'utf-8' codec ca",
    ]


def test_lines_that_are_not_utf_8_cost_no_other_line_but_many_are_no_text(run):
    lines = [b"in line %d" % n for n in range(1, 301)]
    lines[1] = lines[249] = b"for\xeat"
    write("c", b"\n".join(lines))
    code, shown, errors, _ = run("-n", "1", files=["c"], query="in line 300")
    assert (code, shown) == (1, "1.000  c:300: in line 300\n")
    [line] = skipped(errors)
    assert line.startswith("c, line 2: 'utf-8' codec can't decode")
    assert line.endswith("; 1 more, too")
    write("c", b"for\xeat\n" * 101 + b"in line 102\n")
    code, shown, errors, _ = run(files=["a.txt", "c"], query="in line 102")
    assert code == 1 and "in line 102" not in shown
    [line] = skipped(errors)
    assert line.startswith("c, line 1: 'utf-8' codec can't decode")


def test_a_file_that_is_cut_off_is_named_so_although_a_line_before_is_not_utf_8(run):
    lines = (b"%d is the number of a line\n" % n for n in range(5000))
    whole = gzip.compress(b"for\xeat\n" + b"".join(lines))
    write("c.gz", whole[: len(whole) // 2])
    code, _, errors, _ = run(files=["a.txt", "c.gz"], query="a line")
    assert code == 1 and "expected a whole gzip file" in errors and "UTF-8" not in errors


def test_a_dash_stands_for_standard_input(run, standard_input):
    standard_input(b"in a pipe\n")
    assert run("-n", "1", files=["a.txt", "-"], query="in a pipe")[1] == "1.000  -:1: in a pipe\n"
    standard_input(None)
    code, _, errors, _ = run(files=["-"])
    message = "error: there is no standard input: expected a text, or the name of a file"
    assert code == 1 and message in errors


def test_the_index_is_written_once(run, monkeypatch):
    written = []
    note = lambda path, arrays, info: written.append(len(arrays["keys"]))
    monkeypatch.setattr(vector_index, "CHUNK", 1)
    monkeypatch.setattr(vector_index, "save_checkpoint", note)
    write("c", b"".join(b"line %d\n" % n for n in range(100)))
    run(files=["c"])
    assert written == [100]


def test_vectors_that_were_computed_before_ctrl_c_are_kept(run, monkeypatch):
    def interrupted(model, params, tokenizer, sentences, backend, prompt):
        if sentences == ["A short line"]:
            raise KeyboardInterrupt
        return sentence_vectors(model, params, tokenizer, sentences, backend, prompt)

    monkeypatch.setattr(vector_index, "CHUNK", 1)
    monkeypatch.setattr(search, "sentence_vectors", interrupted)
    assert run()[0] == 130
    assert len(load_checkpoint("model.vectors.safetensors")[0]["keys"]) == 2


BAD_FILES = {
    "empty none": "empty is empty, expected a text; 1 more, too",
    "zeros": "zeros has bytes of 0: expected a text, not another kind of file",
    "folder": "folder: 1 of 1 files hold no text in UTF-8",
    "hidden": "the files have no words, expected sentences",
    "marks": "the files have no words, expected sentences",
    "a.txt zeros --index zeros": "--index zeros, which this script reads or writes itself",
    "notes --index notes/c": "--index notes/c, which this script reads or writes itself",
    "a.txt --index marks": "marks cannot be read as a checkpoint: ",
    "a.txt --index model.vectors.safetensors": "model.vectors.safetensors has no vectors of this "
    "model: choose another file, or delete it; --index names the file",
    "a.txt --index strange": "strange has no vectors of this model: choose another file, or delete",
    "a.txt --model classifier": "classifier holds a classifier, whose vectors were trained for its",
}


def test_bad_input_is_an_error_in_one_line(run):
    write("empty", b"")
    write("zeros", b"a\0b")
    write("marks", b"---\n")
    write("folder/x", b"\0")
    write("hidden/.x", b"a\n")
    write("notes/c", b"a\n")
    save_checkpoint("strange", {"x": np.ones(3)}, {})
    run()
    saved("model", tiny_encoder(seed=1))  # another one than that of the vectors
    body, _, tokenizer = tiny_encoder()
    model = replace(body, task="classes", n_outputs=2, pooling="first", pooler=True)
    saved("classifier", (model, model.init(0), tokenizer))
    for arguments, line in BAD_FILES.items():
        code, shown, errors, _ = run(files=arguments.split())
        assert (code, shown) == (1, ""), arguments
        assert errors.startswith(f"error: {line}") and errors.count("\n") == 1


def test_the_vectors_of_batches_are_those_of_each_sentence_and_a_long_one_is_cut():
    made = tiny_encoder()
    sentences = [n * "ab " for n in range(1, 30)] + ["x" * 99]
    cut = r"17 of 30 .* more than 40 tokens: cut; 40 is max_len of the model"
    with pytest.warns(UserWarning, match=cut):
        together = sentence_vectors(*made, sentences)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-6)
    each = [sentence_vectors(*made, [sentence[:40]])[0] for sentence in sentences[:-1]]
    np.testing.assert_allclose(together[:13], each[:13], rtol=1e-5, atol=1e-6)


def test_a_sentence_without_tokens_has_no_vector():
    message = "the sentence '' has no tokens, expected some"
    refuses(ValueError, message, sentence_vectors, *tiny_encoder(), ["ab", ""])


def test_what_ends_a_sentence():
    long = "a line that is so long that the sentence goes on in the next line, which is"
    text = (
        f"{long}\nshort. Then? More, e.g. this!\n{long}\n\n"
        f"> a quote\n1) one\n{long}\n2. two\n***\n-3 **x**\n| y |\n"
    )
    assert sentences(text) == [
        (1, f"{long} short."),
        (2, "Then?"),
        (2, "More, e.g. this!"),
        (3, long),
        (5, "a quote"),
        (6, "one"),
        (7, long),
        (8, "two"),
        (10, "-3 **x**"),
        (11, "y |"),
    ]


def test_a_text_in_which_nothing_ends_a_sentence_is_divided():
    """Also because a sentence that grows with the text would take a time that grows
    with its square.
    """
    line = "x" * 75
    found = sentences("\n".join([line] * 100))
    assert [number for number, _ in found] == [1, 27, 53, 79]
    assert " ".join(sentence for _, sentence in found) == " ".join([line] * 100)
    word = "y" * 1500
    assert sentences(f"{word} {word} {word}") == [(1, word)] * 3
    assert sentences("z" * 4500) == [(1, "z" * 2000), (1, "z" * 2000), (1, "z" * 500)]
    assert sentences("A. " * 1000)[0] == (1, " ".join(["A."] * 1000))


ABBREVIATIONS = ["Mr. Ho", "Dr. Ho", "J. Smith", "J. R. R. Ho"]
ABBREVIATIONS += ["p. 3", "pp. 3", "e.g. Ho", "(i.e. Ho)", "A, etc. Ho"]


@pytest.mark.parametrize("name", ABBREVIATIONS)
def test_an_abbreviation_ends_no_sentence(name):
    found = [sentence for _, sentence in sentences(f"Look for {name} there. Then? OK. Go.")]
    assert found == [f"Look for {name} there.", "Then?", "OK.", "Go."]
