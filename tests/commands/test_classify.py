"""The command ``npformer classify``, and the folder of a fine-tuned classifier that it reads."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")
from programs import python
from tiny import saved, tiny_encoder

from npformer.commands import classify

from npformer import Adam, Trainer, batches, pretrained, tree
from npformer.models import LowRank
from npformer.pretrained.vectors import class_probabilities

LABELS = ("bad", "good", "very good")
TEXTS = ["ab", "a man", "abc"]


def classifier(labels=LABELS):
    """A classifier of the class BertForSequenceClassification,
    begun with the parameters of a model without a task.
    """
    body, params, tokenizer = tiny_encoder()
    model = replace(body, task="classes", n_outputs=3, pooling="first", pooler=True, labels=labels)
    return model, tree.merged(params, model.init(1))[0], tokenizer


@pytest.fixture
def run(tmp_path, monkeypatch, measure, standard_input):
    """A function that classifies with the folder "model": (exit code, output, errors, figures)."""
    monkeypatch.chdir(tmp_path)
    saved("model", classifier())

    def run(*arguments, model="model", text=None):
        if text is not None:
            standard_input(text)
        code, shown, errors, figures = measure(classify.main, "--model", model, *arguments)
        errors = [line for line in errors.splitlines() if "compiling" not in line]
        return code, shown, errors, figures

    return run


def test_texts_of_arguments_of_a_file_and_of_a_pipe_have_the_same_classes(run, tmp_path):
    probabilities = class_probabilities(*pretrained.load("model"), TEXTS)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    lines = [f"{LABELS[row.argmax()]}\t{row.max():.4f}\n" for row in probabilities]
    code, shown, errors, figures = run(*TEXTS)
    assert (code, shown, errors) == (0, "".join(lines), [])
    assert figures["labels"] == list(LABELS)
    assert [each["text"] for each in figures["texts"]] == TEXTS
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    text = (tmp_path / "texts.txt").read_bytes()
    for ended in (run("--file", "texts.txt"), run(text=text), run("-", text=text)):
        assert ended[1] == shown


def test_blank_lines_and_lines_that_are_not_utf_8_cost_no_other_line(run):
    code, shown, errors, _ = run(text=b"ab\n\nfor\xeat\nabc\n")
    lines = shown.split("\n")
    assert code == 1 and [bool(line) for line in lines] == [True, False, False, True, False]
    [line] = errors
    assert line.startswith("error: standard input, line 3: 'utf-8' codec can't decode")


def test_what_cannot_be_printed_in_a_label_is_a_question_mark(run):
    """A tab or a line end would break the form of the output,
    and a lone surrogate the output itself.
    """
    saved("odd", classifier(labels=("a\tb", "c\nd", "\ud800")))
    code, shown, _, _ = run("a text", model="odd")
    label, _, probability = shown.rstrip("\n").partition("\t")
    assert code == 0
    assert label in ("a?b", "c?d", "?")
    assert 0 < float(probability) < 1


def test_what_has_no_labels_has_numbers_and_long_texts_are_cut(run):
    saved("plain", classifier(labels=None))
    with pytest.warns(UserWarning, match="1 of 1 sentences have more than 40 tokens: cut"):
        code, shown, _, _ = run("x" * 99, model="plain")
    assert code == 0 and shown.startswith("LABEL_")


def test_the_probability_is_of_the_class_where_two_have_one_name(run):
    saved("same", classifier(labels=("same", "same", "same")))
    _, shown, _, figures = run(*TEXTS, model="same")
    assert [f"same\t{each['probability']:.4f}" for each in figures["texts"]] == shown.splitlines()
    wanted = class_probabilities(*pretrained.load("same"), TEXTS)
    for each, row in zip(figures["texts"], wanted, strict=True):
        assert list(each["probabilities"]) == ["same (0)", "same (1)", "same (2)"]
        assert list(each["probabilities"].values()) == pytest.approx(row.tolist())


@pytest.mark.filterwarnings("ignore:npformer alone reads a model with adapters")
def test_adapters_are_merged(run):
    model, params, tokenizer = classifier()
    adapted = LowRank(model, params, rank=2, whole=("output", "pooler"))
    trainer = Trainer(adapted, Adam(lr=0.05))
    trainer.step(np.array([tokenizer.encode("ab"), tokenizer.encode("cd")]), np.array([0, 2]))
    saved("adapters", (adapted, trainer.params, tokenizer))
    saved("merged", (model, adapted.merged(trainer.params), tokenizer))
    again, own, _ = pretrained.load("adapters")
    assert again.model == pretrained.load("merged")[0]
    assert (again.rank, again.whole) == (2, ("output", "pooler"))
    tree.map_leaves(np.testing.assert_array_equal, own, trainer.params)
    assert run(*TEXTS, model="adapters")[3]["texts"] == run(*TEXTS, model="merged")[3]["texts"]


BAD_INPUT = {
    "none ab": "there is no none: expected --model DIR, or DIR before the texts",
    "body ab": "the model is of the kind Encoder, with a tokenizer: "
    "expected a tokenizer and an encoder with task=",
    "bare ab": "the model is of the kind Encoder, without a tokenizer: expected a tokenizer and",
    "model --file none": "none is missing: expected a text, or a .gz",
    "model --file a.txt --json a.txt": "--json a.txt, which this script reads or writes itself",
}


@pytest.mark.usefixtures("run")
def test_bad_input_is_an_error_in_one_line(call, tmp_path):
    saved("body", tiny_encoder())
    saved("bare", classifier()[:2])
    (tmp_path / "a.txt").write_text("ab\n")
    for arguments, line in BAD_INPUT.items():
        code, shown, errors = call(classify.main, *arguments.split())
        assert (code, shown) == (1, ""), arguments
        assert errors.startswith(f"error: {line}") and errors.count("\n") == 1


def test_a_fine_tuned_model_classifies_in_a_new_process(tmp_path):
    model, params, tokenizer = classifier(LABELS)
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abcd"), 6)) for _ in range(200)]
    classes = np.array([min(2, text.count("a")) for text in texts])
    rows = [tokenizer.encode(text) for text in texts]
    trainer = Trainer(model, Adam(lr=0.003), params=params)
    trainer.fit(batches(rows, classes, size=20, epochs=30), progress=False)
    pretrained.save(tmp_path / "mine", model, trainer.params, tokenizer)
    done = python("-m", "npformer", "classify", tmp_path / "mine", input="\n".join(texts))
    found = [line.split("\t")[0] for line in done.stdout.splitlines()]
    right = [label == LABELS[c] for label, c in zip(found, classes, strict=True)]
    assert np.mean(right) > 0.9
