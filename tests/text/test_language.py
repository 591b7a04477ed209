"""Language models of text: tokens, passages, a training that is interrupted, and the commands."""

import gzip
import re

import numpy as np
import pytest
from corpus import sentence_pairs
from refusals import refuses
from trainings import log_of, outcome, steps_of

from npformer.commands import generate, train_gpt

from npformer import SGD, Trainer, Transformer
from npformer.layers import Rotary
from npformer.models import LanguageModel
from npformer.text import LanguageRun, LanguageSettings, Text, Translator, Writer
from npformer.text.lines import read_both, read_text
from npformer.tokens import Characters, Pieces, Subwords, load_tokens
from npformer.tokens.tokenizers import tokens_in
from npformer.training import CheckpointError, save_checkpoint, warmup_cosine

pytest.importorskip("safetensors")
SMALL = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32}
SHORT = {"model": SMALL, "length": 16, "batch_size": 4, "steps": 6, "every": 2, "save_every": 2}
LINES = [english for english, _ in sentence_pairs(300)]
ABC = Characters("abc")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.en"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def start(out, path, **changes):
    return LanguageRun.start(out, LanguageSettings(**SHORT | {"text": str(path)} | changes))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, path):
    """A training that was not interrupted."""
    run = start(tmp_path_factory.mktemp("run"), path)
    run.train(progress=False)
    return run


@pytest.fixture(scope="module")
def pieces():
    pytest.importorskip("sentencepiece")
    return Pieces(Subwords.learn([*LINES, "L'homme est là. man, ,"], size=80))


# -- tokens and passages


TEXTS = ["a man\nrides", "a", "man,\n\nrides a\n", "\n", "L'homme est là.\n"]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_and_characters_give_the_text_back(text, pieces):
    for tokens in (Characters("\n".join([*LINES, "L'homme est là. man, ,"])), pieces):
        ids = tokens.encode(text)
        assert tokens.decode(ids) == text
        assert ids.min() >= 0
        assert ids.max() < len(tokens)
        again = tokens_in(tokens.arrays)
        assert again.encode(text).tolist() == ids.tolist()
        assert len(again) == len(tokens)


def test_passages_are_a_function_of_the_seed_and_the_step():
    text = Text("abcdefghij" * 20, "abcde" * 10, Characters("abcdefghij"), length=7)
    [first] = text.batch(1, 3, 5)
    [again] = text.batch(1, 3, 5)
    [other] = text.batch(1, 4, 5)
    np.testing.assert_array_equal(first, again)
    assert first.shape == (5, 8)
    assert (first != other).any()
    assert (np.diff(first) % 10 == 1).all()  # each is a piece of the text


def test_a_batch_of_no_passage_is_refused():
    text = Text("abc" * 9, "cab" * 9, ABC, length=4)
    for size in (0, -1):
        message = f"size={size}, expected at least 1"
        refuses(ValueError, message, text.batch, 1, 1, size)
        refuses(ValueError, message, text.held_out_batches, size)
    refuses(ValueError, "step=-1, expected at least 0", text.batch, 1, -1, 4)
    refuses(TypeError, "seed='x' is a str, expected an int", text.batch, "x", 1, 4)


def test_all_of_the_held_out_text_is_measured_but_its_last_passage():
    text = Text("abc" * 9, "cab" * 9, ABC, length=4)
    batches = text.held_out_batches(size=4)
    targets = np.concatenate([ids[:, 1:].ravel() for (ids,) in batches])
    np.testing.assert_array_equal(targets, text.held_out[1 : 1 + len(targets)])
    assert len(text.held_out) - 1 - len(targets) < 4
    assert text.bits_per_character(np.log(2)) == 1


def test_bits_per_character_of_pieces_count_the_characters_of_a_piece(pieces):
    held_out = "\n".join(LINES[:20])
    text = Text("\n".join(LINES), held_out, pieces, length=8)
    expected = 2 * len(pieces.encode(held_out)) / len(held_out)
    assert text.bits_per_character(2 * np.log(2)) == pytest.approx(expected)


NO_TEXT = {
    "is empty": b"",
    "has only blank lines": b" \n\n",
    "bytes of 0": b"a\0b\n" * 99,
    "expected UTF-8": b"\x89PNG\xff\xfe",
}


@pytest.mark.parametrize("problem", NO_TEXT)
def test_a_file_that_is_no_text_is_refused(tmp_path, problem):
    (tmp_path / "file").write_bytes(NO_TEXT[problem])
    refuses(ValueError, problem, read_text, tmp_path / "file")


def test_a_text_shorter_than_a_context_is_refused():
    short = "if none is given, has 4 tokens, expected more than length=8: give a longer text"
    refuses(ValueError, short, Text, "abcd" * 9, "abcd", Characters("abcd"), length=8)
    refuses(ValueError, "length=0, expected at least 1", Text, "abc", "abc", ABC, length=0)


def test_another_text_is_held_out_or_a_tenth(tmp_path, path):
    refuses(ValueError, "expected another", read_both, path, path)
    with gzip.open(tmp_path / "a.gz", "wt") as file:
        file.write("ab" * 50)
    assert [len(part) for part in read_both(tmp_path / "a.gz")] == [91, 10]


def test_pieces_name_what_no_text_of_the_training_had(pieces):
    model = LanguageModel(len(pieces), **SMALL)
    writer = Writer(model, model.init(0), pieces)
    message = "the prompt has '日本', which is in no text of the training: leave it out"
    refuses(ValueError, message, writer.write, "a man 日本\n")
    assert pieces.unknown("a man\n") == ""


def test_characters_decode_the_ids_of_one_text():
    assert ABC.decode([]) == "" and ABC.decode(np.array([0, 2])) == "ac"
    for id_ in (1000, -1):
        refuses(ValueError, rf"ids\[0\] is {id_}, expected 0 <= id < 3", ABC.decode, [id_])
    several = r"ids has shape \(2, 1\), expected those of one text: decode each row"
    refuses(ValueError, several, ABC.decode, [[0], [1]])
    for given in (b"abc", ""):
        refuses(ValueError, "expected a str that is not empty", Characters, given)


# -- training


def test_a_resumed_training_is_the_same_bit_for_bit(tmp_path, path, whole):
    start(tmp_path, path).train([lambda trainer, info: info.step == 3], progress=False)
    again = LanguageRun.resume(tmp_path)
    assert again.trainer.n_steps == 3
    again.train(progress=False)
    expected = outcome(whole.folder)
    found = outcome(tmp_path)
    for (file, name), x in expected["arrays"].items():
        if file == "last.safetensors":
            assert found["arrays"][file, name] == x, name
    for log in (expected["log"], found["log"]):
        assert steps_of(log, "loss") == [1, 2, 3, 4, 5, 6]
        assert steps_of(log, "bits_per_character") == [2, 4, 6]


def test_it_learns_and_writes_what_it_learned(tmp_path, path):
    recipe = {"steps": 150, "batch_size": 16, "lr": 0.02, "every": 150}
    run = start(tmp_path, path, **recipe, model=SMALL | {"d_model": 32})
    before = run.evaluate()["bits_per_character"]
    run.train(progress=False)
    assert run.loop.validations[-1]["bits_per_character"] < before / 2
    shown = []
    written = Writer.load(tmp_path).write("a ", n_tokens=40, temperature=0.5, show=shown.append)
    assert "".join(shown) == written and len(written) == 40  # beyond the context of 16, too
    known = set(" ".join(LINES).split())
    words = written.split()[1:-1]
    assert sum(word in known for word in words) >= 0.5 * len(words)


def test_settings_become_what_a_checkpoint_holds(tmp_path, path):
    model = SMALL | {"d_ff": np.int64(32), "positions": "rotary", "rotary": Rotary(base=500.0)}
    settings = LanguageSettings(text=path, held_out=path, model=model)
    assert (settings.text, settings.held_out) == (str(path), str(path))
    assert settings.model["rotary"]["base"] == 500 and type(settings.model["d_ff"]) is int
    start(tmp_path, path, model=model).loop.save()
    assert LanguageRun.resume(tmp_path, {"model": SMALL}).trainer.model.rotary == Rotary(base=500.0)


def test_wrong_settings_are_named():
    def bad(error, message, **setting):
        refuses(error, message, LanguageSettings, **{"text": "t"} | setting)

    bad(TypeError, "text=3 is a int, expected a str", text=3)
    bad(TypeError, "held_out=3 is a int, expected a str", held_out=3)
    bad(TypeError, r"model=\[3\] is a list, expected a dict", model=[3])
    bad(ValueError, "model has .*vocab", model={"vocab": 3})
    bad(ValueError, "batch_size=0, expected at least 1", batch_size=0)
    bad(TypeError, "length=1.5 is a float, expected an int", length=1.5)
    bad(ValueError, "subwords=4, expected at least 5", subwords=4)
    bad(ValueError, "lr=0.0, expected a finite number above 0", lr=0.0)


def test_wrong_minutes_are_named_before_the_first_step(tmp_path, path):
    run = start(tmp_path, path)
    for minutes in (-1, 0, float("nan")):
        message = f"minutes={minutes}, expected a finite number above 0"
        refuses(ValueError, message, run.train, minutes=minutes, progress=False)
    for minutes in ("x", True):
        refuses(TypeError, f"minutes={minutes!r} is a", run.train, minutes=minutes, progress=False)
    assert run.trainer.n_steps == 0


def test_a_resumed_training_may_have_another_rate_and_more_steps(tmp_path, path, capsys):
    start(tmp_path, path).train(progress=False)
    capsys.readouterr()
    again = LanguageRun.resume(tmp_path, {"lr": 1e-3, "steps": 12})
    assert capsys.readouterr().out.splitlines() == [
        "from here on lr is 0.001, not 0.004",
        "from here on steps is 12, not 6",
    ]
    again.train(progress=False)
    rates = [record["lr"] for record in log_of(again.folder) if "lr" in record]
    schedule = warmup_cosine(1e-3, 6, 12)
    assert rates[6:] == [schedule(step) for step in range(7, 13)]
    # They are the settings of the training now.
    assert LanguageRun.resume(tmp_path).settings == again.settings
    assert "from here on" not in capsys.readouterr().out
    fewer = "steps=11, but 12 are done"
    refuses(ValueError, fewer, LanguageRun.resume, tmp_path, {"steps": 11})


def test_tokens_come_from_a_checkpoint(tmp_path, whole):
    assert load_tokens(whole.folder / "last.safetensors").all == whole.text.tokens.all
    save_checkpoint(tmp_path / "x", {"weight": np.ones(2)}, {})
    nothing = "it holds no characters and no subwords"
    refuses(CheckpointError, nothing, load_tokens, tmp_path / "x")


def test_what_it_began_with_does_not_change(tmp_path, whole):
    def kept(message, changes):
        refuses(ValueError, message, LanguageRun.resume, whole.folder, changes)

    advice = "but .* was begun with 16: leave it out, or start anew"
    kept(f"length=8, {advice}", {"length": 8})
    kept(f"d_model=8, {advice}", {"model": {"d_model": 8}})
    kept("sizes=8, but", {"sizes": 8})
    assert LanguageRun.resume(whole.folder, {"model": {"d_model": 16}}).settings == whole.settings
    refuses(ValueError, "holds a training", LanguageRun.start, whole.folder, whole.settings)
    refuses(FileNotFoundError, "there is no checkpoint", LanguageRun.resume, tmp_path)


def test_a_prompt_of_other_characters_is_refused(whole):
    writer = Writer.load(whole.folder)
    refuses(ValueError, "'é', which is no character", writer.write, "é")
    refuses(ValueError, "the prompt is empty", writer.write, "")
    refuses(ValueError, "n_tokens=0, expected at least 1", writer.write, "a", n_tokens=0)
    text = r"<Writer with a LanguageModel, [\d,]+ parameters, \d+ tokens>"
    assert re.fullmatch(text, repr(writer))


def test_what_loads_a_model_of_another_kind_says_what_it_holds(whole, tmp_path):
    def other(message, load, path):
        refuses(CheckpointError, message, load, path)

    for path in (whole.folder, whole.folder / "last.safetensors"):
        other("last.safetensors holds no translation model, expected a", Translator.load, path)
    file = tmp_path / "x.safetensors"
    Trainer(Transformer(11, 11, **SMALL), SGD(0.1)).save(file)
    other("holds no language model", Writer.load, file)
    whole.trainer.save(file)
    other(r"no characters .* subwords: save it by trainer\.save\(path, arr", Writer.load, file)
    whole.trainer.save(file, arrays=whole.text.tokens.arrays)
    assert len(Writer.load(file).write("a ", n_tokens=3)) == 3


# -- the commands


def test_the_commands_train_resume_and_generate(tmp_path, path, call, measure):
    out = ["--out", tmp_path / "gpt", "--quiet"]
    options = "--d-model 16 --n-heads 2 --n-layers 1 --d-ff 32 --n-kv-heads 1 --length 16"
    options += " --batch-size 4 --steps 4 --every 2 --positions learned --diagnose"
    code, shown, _, figures = measure(train_gpt.main, "--text", path, *out, *options.split())
    assert code == 0
    # --quiet hides the bar alone
    lines = "as far as it was examined", "step 2: ", " bits per character of the held-out text\n"
    for line in (*lines, "step 0 writes:\n", "step 4 writes:\n", "after step"):
        assert line in shown
    assert figures["settings"]["model"]["positions"] == "learned" and figures["n_steps"] == 4
    code, shown, _ = call(train_gpt.main, "--resume", *out)
    assert code == 0 and "4 of 4 steps done" in shown
    writer = Writer.load(tmp_path / "gpt")
    model = ["--model", tmp_path / "gpt"]
    code, shown, _ = call(generate.main, *model, "--n-tokens", 9, "--n", 2, "--seed", 5, "a ")
    texts = ["a " + writer.write("a ", n_tokens=9, seed=seed, temperature=0.8) for seed in (5, 6)]
    assert (code, shown) == (0, "\n\n".join(texts) + "\n")
    assert call(generate.main, *model, "é")[:2] == (1, "")  # it is refused before it is shown
