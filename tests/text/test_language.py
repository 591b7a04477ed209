"""Language models of text: tokens, passages, a training that is interrupted, and the commands."""

import gzip
import json
import re

import numpy as np
import pytest
from corpus import sentence_pairs
from trainings import log_of, steps_of

from npformer.commands import generate, train_gpt

from npformer.layers import Rotary
from npformer.models import LanguageModel
from npformer.text import LanguageRun, LanguageSettings, Text, Translator, Writer
from npformer.text.lines import read_both, read_text
from npformer.tokens import Characters, Pieces, Subwords, load_tokens
from npformer.tokens.tokenizers import tokens_in
from npformer.training import (
    CheckpointError,
    JsonLog,
    load_checkpoint,
    save_checkpoint,
    warmup_cosine,
)

pytest.importorskip("safetensors")
SMALL = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32}
SHORT = {"model": SMALL, "length": 16, "batch_size": 4, "steps": 6, "every": 2, "save_every": 2}
LINES = [english for english, _ in sentence_pairs(300)]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.en"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory, path):
    """A training that was not interrupted."""
    run = LanguageRun.start(
        tmp_path_factory.mktemp("run"), LanguageSettings(text=str(path), **SHORT)
    )
    run.train(progress=False)
    return run


def arrays_of(run):
    return load_checkpoint(run.folder / "last.safetensors")[0]


# -- tokens and passages


@pytest.mark.parametrize(
    "text", ["a man\nrides", "a", "man,\n\nrides a\n", "\n", "L'homme est là.\n"]
)
def test_pieces_and_characters_give_the_text_back(text):
    pytest.importorskip("sentencepiece")
    lines = [*LINES, "L'homme est là. man, ,"]
    for tokens in (Characters("\n".join(lines)), Pieces(Subwords.learn(lines, size=80))):
        ids = tokens.encode(text)
        assert tokens.decode(ids) == text
        assert ids.min() >= 0 and ids.max() < len(tokens)
        again = tokens_in(tokens.arrays)
        assert again.encode(text).tolist() == ids.tolist() and len(again) == len(tokens)


def test_passages_are_a_function_of_the_seed_and_the_step():
    text = Text("abcdefghij" * 20, "abcde" * 10, Characters("abcdefghij"), length=7)
    [first], [again], [other] = (text.batch(1, step, 5) for step in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (5, 8) and (first != other).any()
    assert ((np.diff(first) % 10) == 1).all()  # each is a piece of the text


def test_a_batch_of_no_passage_is_refused():
    text = Text("abc" * 9, "cab" * 9, Characters("abc"), length=4)
    for size in (0, -1):
        for take in (lambda size: text.batch(1, 1, size), text.held_out_batches):
            with pytest.raises(ValueError, match=f"size={size}, expected at least 1"):
                take(size)
    with pytest.raises(ValueError, match="step=-1, expected at least 0"):
        text.batch(1, -1, 4)
    with pytest.raises(TypeError, match="seed='x' is a str, expected an int"):
        text.batch("x", 1, 4)


def test_all_of_the_held_out_text_is_measured_but_its_last_passage():
    text = Text("abc" * 9, "cab" * 9, Characters("abc"), length=4)
    batches = text.held_out_batches(size=4)
    targets = np.concatenate([ids[:, 1:].ravel() for (ids,) in batches])
    np.testing.assert_array_equal(targets, text.held_out[1 : 1 + len(targets)])
    assert len(text.held_out) - 1 - len(targets) < 4
    assert text.bits_per_character(np.log(2)) == 1


def test_bits_per_character_of_pieces_count_the_characters_of_a_piece():
    pytest.importorskip("sentencepiece")
    pieces, held_out = Pieces(Subwords.learn(LINES, size=80)), "\n".join(LINES[:20])
    text = Text("\n".join(LINES), held_out, pieces, length=8)
    assert text.bits_per_character(2 * np.log(2)) == pytest.approx(
        2 * len(pieces.encode(held_out)) / len(held_out)
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b" \n\n", "has only blank lines"),
        (b"a\0b\n" * 99, "bytes of 0"),
        (b"\x89PNG\xff\xfe", "expected UTF-8"),
    ],
)
def test_a_file_that_is_no_text_is_refused(tmp_path, content, problem):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=problem):
        read_text(tmp_path / "file")


def test_a_text_shorter_than_a_context_is_refused(tmp_path, path):
    with pytest.raises(
        ValueError, match="the held-out text has 4 tokens, expected more than length=8"
    ):
        Text("abcd" * 9, "abcd", Characters("abcd"), length=8)
    with pytest.raises(ValueError, match="expected another"):
        read_both(path, path)
    with gzip.open(tmp_path / "a.gz", "wt") as file:
        file.write("ab" * 50)
    assert [len(part) for part in read_both(tmp_path / "a.gz")] == [91, 10]


def test_pieces_name_what_no_text_of_the_training_had():
    pytest.importorskip("sentencepiece")
    tokens = Pieces(Subwords.learn(LINES, size=80))
    model = LanguageModel(len(tokens), **SMALL)
    with pytest.raises(
        ValueError, match="the prompt has '日本', which is in no text of the training: leave it out"
    ):
        Writer(model, model.init(0), tokens).write("a man 日本\n")
    assert tokens.unknown("a man\n") == ""


def test_characters_decode_the_ids_of_one_text():
    characters = Characters("abc")
    assert characters.decode([]) == "" and characters.decode(np.array([0, 2])) == "ac"
    for ids in ([1000], [-1]):
        with pytest.raises(ValueError, match=rf"ids\[0\] is {ids[0]}, expected 0 <= id < 3"):
            characters.decode(ids)
    with pytest.raises(
        ValueError, match=r"ids has shape \(2, 1\), expected those of one text: decode each row"
    ):
        characters.decode([[0], [1]])
    for given in (b"abc", ""):
        with pytest.raises(ValueError, match="expected a str that is not empty"):
            Characters(given)
    with pytest.raises(ValueError, match="length=0, expected at least 1"):
        Text("abc", "abc", characters, length=0)


# -- training


def test_a_resumed_training_is_the_same_bit_for_bit(tmp_path, path, whole):
    run = LanguageRun.start(tmp_path, LanguageSettings(text=str(path), **SHORT))
    run.train([lambda trainer, info: info.step == 3], progress=False)
    again = LanguageRun.resume(tmp_path)
    assert again.trainer.n_steps == 3
    again.train(progress=False)
    expected, found = arrays_of(whole), arrays_of(again)
    assert expected.keys() == found.keys()
    assert all((found[name] == expected[name]).all() for name in expected)
    for log in (whole, again):
        records = log_of(log.folder)
        assert steps_of(records, "loss") == [1, 2, 3, 4, 5, 6]
        assert steps_of(records, "bits_per_character") == [2, 4, 6]


def test_it_learns_and_writes_what_it_learned(tmp_path, path):
    settings = SHORT | {
        "steps": 150,
        "batch_size": 16,
        "model": SMALL | {"d_model": 32},
        "lr": 0.02,
        "every": 150,
    }
    run = LanguageRun.start(tmp_path, LanguageSettings(text=str(path), **settings))
    before = run.evaluate()["bits_per_character"]
    run.train(progress=False)
    assert run.validations[-1]["bits_per_character"] < before / 2
    shown = []
    written = Writer.load(tmp_path).write("a ", n_tokens=40, temperature=0.5, show=shown.append)
    assert "".join(shown) == written and len(written) == 40  # beyond the context of 16, too
    words = set(" ".join(LINES).split())
    assert sum(word in words for word in written.split()[1:-1]) >= 0.5 * len(written.split()[1:-1])


def test_settings_become_what_a_checkpoint_holds(tmp_path, path):
    model = SMALL | {"d_ff": np.int64(32), "positions": "rotary", "rotary": Rotary(base=500.0)}
    settings = LanguageSettings(**SHORT | {"text": path, "held_out": path, "model": model})
    assert (settings.text, settings.held_out) == (str(path), str(path))
    assert settings.model["rotary"]["base"] == 500 and type(settings.model["d_ff"]) is int
    LanguageRun.start(
        tmp_path, LanguageSettings(**SHORT | {"text": path, "model": model, "steps": 1})
    ).train()
    assert LanguageRun.resume(tmp_path, {"model": SMALL}).trainer.model.rotary == Rotary(base=500.0)


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ({"text": 3}, TypeError, "text=3 is a int, expected a str"),
        ({"held_out": 3}, TypeError, "held_out=3 is a int, expected a str"),
        ({"model": [3]}, TypeError, r"model=\[3\] is a list, expected a dict"),
        ({"model": {"vocab": 3}}, ValueError, "model has .*vocab"),
        ({"batch_size": 0}, ValueError, "batch_size=0, expected at least 1"),
        ({"length": 1.5}, TypeError, "length=1.5 is a float, expected an int"),
        ({"subwords": 4}, ValueError, "subwords=4, expected at least 5"),
        ({"lr": 0.0}, ValueError, "lr=0.0, expected a finite number above 0"),
    ],
)
def test_wrong_settings_are_named(bad, error, message):
    with pytest.raises(error, match=message):
        LanguageSettings(**{"text": "t", **bad})


def test_a_resumed_training_may_have_another_rate_and_more_steps(tmp_path, path, capsys):
    LanguageRun.start(tmp_path, LanguageSettings(text=str(path), **SHORT)).train(progress=False)
    capsys.readouterr()
    again = LanguageRun.resume(tmp_path, {"lr": 1e-3, "steps": 12})
    assert capsys.readouterr().out.splitlines() == [
        "from here on lr is 0.001, not 0.004",
        "from here on steps is 12, not 6",
    ]
    again.train(progress=False)
    rates = [record["lr"] for record in JsonLog.read(again.folder / "log.jsonl") if "lr" in record]
    schedule = warmup_cosine(1e-3, 6, 12)
    assert rates[6:] == [schedule(step) for step in range(7, 13)]
    assert (
        LanguageRun.resume(tmp_path).settings == again.settings
    )  # they are those of the training now
    assert capsys.readouterr().out.count("from here on") == 0
    with pytest.raises(ValueError, match="steps=11, but 12 are done"):
        LanguageRun.resume(tmp_path, {"steps": 11})


def test_tokens_come_from_a_checkpoint(tmp_path, whole):
    tokens = load_tokens(whole.folder / "last.safetensors")
    assert tokens.all == whole.text.tokens.all
    save_checkpoint(tmp_path / "x", {"weight": np.ones(2)}, {})
    with pytest.raises(CheckpointError, match="it holds no characters and no subwords"):
        load_tokens(tmp_path / "x")


def test_what_it_began_with_does_not_change(tmp_path, whole):
    with pytest.raises(
        ValueError, match="length=8, but .* was begun with 16: leave it out, or start anew"
    ):
        LanguageRun.resume(whole.folder, {"length": 8})
    with pytest.raises(
        ValueError, match="d_model=8, but .* was begun with 16: leave it out, or start anew"
    ):
        LanguageRun.resume(whole.folder, {"model": {"d_model": 8}})
    assert LanguageRun.resume(whole.folder, {"model": {"d_model": 16}}).settings == whole.settings
    with pytest.raises(ValueError, match="sizes=8, but"):
        LanguageRun.resume(whole.folder, {"sizes": 8})
    with pytest.raises(ValueError, match="holds a training"):
        LanguageRun.start(whole.folder, whole.settings)
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        LanguageRun.resume(tmp_path)
    with pytest.raises(CheckpointError, match="holds no language model"):
        from npformer import SGD, Trainer, Transformer

        Trainer(Transformer(11, 11, **SMALL), SGD(0.1)).save(tmp_path / "other.safetensors")
        Writer.load(tmp_path / "other.safetensors")


def test_a_prompt_of_other_characters_is_refused(whole):
    writer = Writer.load(whole.folder)
    with pytest.raises(ValueError, match="'é', which is no character"):
        writer.write("é")
    with pytest.raises(ValueError, match="the prompt is empty"):
        writer.write("")
    with pytest.raises(ValueError, match="n_tokens=0, expected at least 1"):
        writer.write("a", n_tokens=0)
    assert re.fullmatch(
        r"<Writer with a LanguageModel, [\d,]+ parameters, \d+ tokens>", repr(writer)
    )


def test_what_loads_a_model_of_another_kind_says_what_it_holds(whole, tmp_path):
    for path in (whole.folder, whole.folder / "last.safetensors"):
        with pytest.raises(
            CheckpointError, match="last.safetensors holds no translation model, expected a"
        ):
            Translator.load(path)
    whole.trainer.save(tmp_path / "x")
    with pytest.raises(
        CheckpointError, match=r"no characters and no subwords: save it by trainer\.save\(path, arr"
    ):
        Writer.load(tmp_path / "x")
    whole.trainer.save(tmp_path / "x", arrays=whole.text.tokens.arrays)
    assert len(Writer.load(tmp_path / "x").write("a ", n_tokens=3)) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--temperature", "0", "a"],
            "--temperature: 0, expected a finite number above 0; --top-k 1 takes the most",
        ),
        (["A", "man", "is"], "put the text in quotes, not only its first word, 'A'"),
    ],
)
def test_arguments_of_generate_that_make_no_sense(arguments, message, call):
    code, _, errors = call(generate.main, "--model", "x", *arguments)
    assert code == 2 and message in errors


# -- the commands


def test_the_commands_train_resume_and_generate(tmp_path, path, call):
    out = ["--out", tmp_path / "gpt", "--quiet"]
    sizes = [
        part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    options = [
        *sizes,
        "--length",
        16,
        "--batch-size",
        4,
        "--steps",
        4,
        "--every",
        2,
        "--n-kv-heads",
        1,
        "--diagnose",
    ]
    more = ["--positions", "learned", "--json", tmp_path / "figures.json"]
    code, shown, _ = call(train_gpt.main, "--text", path, *out, *options, *more)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert code == 0
    assert "as far as it was examined" in shown
    assert (
        "step 2: " in shown and " bits per character of the held-out text\n" in shown
    )  # --quiet hides the bar alone
    assert "step 0 writes:\n" in shown and "step 4 writes:\n" in shown and "after step" in shown
    assert figures["settings"]["model"]["positions"] == "learned" and figures["n_steps"] == 4
    code, shown, _ = call(train_gpt.main, "--resume", *out)
    assert code == 0 and "4 of 4 steps done" in shown
    writer = Writer.load(tmp_path / "gpt")
    model = ["--model", tmp_path / "gpt"]
    code, shown, _ = call(generate.main, *model, "--n-tokens", 9, "--n", 2, "--seed", 5, "a ")
    texts = ["a " + writer.write("a ", n_tokens=9, seed=seed, temperature=0.8) for seed in (5, 6)]
    assert (code, shown) == (0, "\n\n".join(texts) + "\n")
    assert call(generate.main, *model, "é")[:2] == (1, "")  # it is refused before it is shown
