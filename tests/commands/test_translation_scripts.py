"""The commands of translation as a user runs them, also when the power goes out.

Training, translating, evaluating.
"""

import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from corpus import WORDS, sentence_pairs, trained_translator, write_corpus
from programs import PIPES_CLOSE, WITH_SIGNALS, is_png, nobody_reads, python
from trainings import assert_same, outcome

from npformer.commands import evaluate, train_translation, translate

from npformer.text import TranslationRun, Translator, score
from npformer.training import JsonLog, load_checkpoint

for name in ("sentencepiece", "safetensors", "sacrebleu", "sacremoses"):
    pytest.importorskip(name)

SCRIPTS = Path(__file__).parents[2] / "scripts"
SMALL = ["--vocab-size", 40, "--max-tokens", 150, "--max-len", 60, "--quiet"]
PAIR = ["--src", "en", "--tgt", "fr"]
RECIPE = [*SMALL, "--steps", 10, "--validate-every", 4, "--save-every", 2, "--n-average", 2]


def script(name, *arguments):
    """The arguments of Python for a script in a process of its own."""
    path = SCRIPTS / f"{name}.py"
    return ["-W", "error::UserWarning", *map(str, (path, *arguments))]


# ---- train_translation.py ----


@pytest.fixture
def out(tmp_path):
    """The folder of a training."""
    return tmp_path / "run"


@pytest.fixture
def train(measure, data, out):
    """``train(*arguments)`` trains in the folder "run" of the test."""
    arguments = ["--data", data, *RECIPE, "--out", out]
    return lambda *more: measure(train_translation.main, *arguments, *more)


@pytest.fixture
def resume(call, out):
    """``resume(*arguments)`` goes on with it."""
    arguments = ["--resume", "--quiet", "--out", out]
    return lambda *more: call(train_translation.main, *arguments, *more)


@pytest.fixture(autouse=True)
def no_curves(monkeypatch):
    """Draw none in this process, which takes half a second."""
    monkeypatch.setattr("npformer.plots.plot_training", lambda *_, **__: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "data")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data):
    """The folder of a training that was not interrupted, and its output."""
    pytest.importorskip("matplotlib")
    out = tmp_path_factory.mktemp("runs") / "whole"
    arguments = ["--data", data, "--out", out, *RECIPE, "--json", out / "figures.json"]
    return out, python(*script("train_translation", *arguments)).stdout


@pytest.fixture(scope="module")
def whole(finished):
    """What a training that was not interrupted has left."""
    return outcome(finished[0])


def saved_once(process, out):
    """A running training, when it has saved for the first time."""
    while not (out / "last.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    return process


def begin(data, out, *more, **pipes):
    """Start a training in a process of its own."""
    arguments = script("train_translation", "--data", data, "--out", out, *RECIPE, *more)
    return subprocess.Popen([sys.executable, *arguments], **pipes)


def test_the_sizes_of_the_model_are_options_and_the_text_says_how_many_pieces_there_are(
    train, resume, out
):
    sizes = ["--d-model", 16, "--n-heads", 2, "--n-layers", 1]
    code, shown, *_ = train(*PAIR, "--vocab-size", 4000, "--steps", 1, *sizes)
    model = Translator.load(out).model
    assert (code, model.d_model, model.n_heads, model.n_layers, model.d_ff) == (0, 16, 2, 1, 256)
    n_pieces = model.src_vocab
    assert n_pieces < 4000
    assert f"the vocabulary has {n_pieces:,} pieces, all of the text, instead of 4,000\n" in shown
    assert resume(*sizes).code == 0
    code, _, errors = resume("--d-model", 32)
    assert code == 1 and "was begun with" in errors


def test_everything_that_was_announced_comes_out(finished):
    out, shown = finished
    names = ["curves.png", "figures.json", "last.safetensors"]
    names += ["log.jsonl", "model.safetensors", "snapshots"]
    assert sorted(path.name for path in out.iterdir()) == names
    snapshots = [path.name for path in sorted((out / "snapshots").iterdir())]
    assert snapshots == ["step-0000008.safetensors", "step-0000010.safetensors"]
    assert is_png(out / "curves.png")
    assert "en to fr, preset tiny, seed 1: " in shown
    assert f"--model {out}" in shown

    figures = json.loads((out / "figures.json").read_text())
    assert figures["step"] == 10
    assert figures["averaged"] == [8, 10]
    assert figures.keys() >= {"val_loss", "val_bleu", "val_bleu_lower", "seconds"}
    settings = figures["settings"]
    assert settings.items() >= {"vocab_size": 40, "steps": 10, "seed": 1, "dropout": 0.3}.items()
    assert load_checkpoint(out / "model.safetensors")[1]["settings"] == settings


def test_a_training_is_explained_and_diagnosed_before_it_begins(train):
    code, shown, *_ = train("--steps", 1, "--explain", "--diagnose")
    assert code == 0
    assert "adam_update" in shown and "as far as it was examined" in shown


@WITH_SIGNALS
def test_sigterm_saves_and_resuming_leaves_no_trace(data, out, whole, resume):
    process = saved_once(begin(data, out, stdout=subprocess.PIPE), out)
    process.send_signal(signal.SIGTERM)
    shown = process.communicate()[0].decode()
    assert process.returncode == 143
    step = load_checkpoint(out / "last.safetensors")[1]["n_steps"]
    assert 2 <= step < 10
    assert f"SIGTERM: saved after step {step}; --resume continues from there" in shown
    assert not (out / "model.safetensors").exists()
    code, shown, _ = resume()
    assert code == 0 and f"{step} of 10 steps done" in shown
    assert_same(outcome(out), whole)


@WITH_SIGNALS
def test_a_signal_after_the_reader_of_all_output_has_gone_saves(data, out):
    """As with ``2>&1 | tee log``, when Ctrl-C ends tee first."""
    reader, writer = os.pipe()
    process = begin(data, out, "--steps", 10**6, stdout=writer, stderr=writer)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    saved_once(process, out).send_signal(signal.SIGTERM)
    assert process.wait() == 143
    _, info = load_checkpoint(out / "last.safetensors")
    assert len(JsonLog.read(out / "log.jsonl")) == info["n_logged"]


def test_a_kill_at_any_moment_leaves_no_trace(data, out, whole, resume):
    with saved_once(begin(data, out, stdout=subprocess.PIPE), out) as process:
        time.sleep(random.Random(0).uniform(0, 0.2))
        process.kill()
    assert not (out / "model.safetensors").exists()
    assert resume().code == 0
    assert_same(outcome(out), whole)


def test_minutes_that_are_over_still_give_a_model(out, train):
    code, shown, _, figures = train("--steps", 10**6, "--minutes", 0.001)
    step = figures["step"]
    assert code == 0 and f"{step} of 1,000,000 steps (" in shown
    assert "in this run); --resume continues. The param" in shown
    assert f"The parameters after step {step}:" in shown
    assert step == load_checkpoint(out / "last.safetensors")[1]["n_steps"] < 100
    assert isinstance(next(Translator.load(out).translate(["the man"])), str)


SEPARATE = ["--vocab", "separate", "--average", "best"]
OF_A_PRESET = ["--preset", "small", "--n-layers", 1, "--d-ff", 64, "--consistency", 1]


@pytest.mark.parametrize("options", [SEPARATE, OF_A_PRESET], ids=str)
def test_options_reach_the_training(out, options, train, monkeypatch):
    # what has learned little does not end
    monkeypatch.setattr("npformer.text.translator.EXTRA_LEN", 5)
    code, *_ = train("--steps", 2, "--seed", 7, "--norm", "pre", *options)
    assert code == 0
    arrays, info = load_checkpoint(out / "model.safetensors")
    settings = info["settings"]
    assert (settings["seed"], settings["norm"]) == (7, "pre")
    if "separate" in options:
        assert settings["average"] == "best"
        assert "params.target_embedding" in arrays
    else:
        assert info["model"]["d_model"] == 256
        _, info = load_checkpoint(out / "last.safetensors")
        assert info["trainer"]["consistency"] == 1


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_a_second_ctrl_c_says_how_to_go_on(monkeypatch, train):
    monkeypatch.setattr(TranslationRun, "train", interrupt)
    code, _, errors, _ = train()
    assert code == 130 and "--resume continues from there" in errors


def test_resuming_the_checkpoint_of_something_else_is_refused(out, resume, finished):
    out.mkdir()
    shutil.copy(finished[0] / "model.safetensors", out / "last.safetensors")
    code, _, errors = resume()
    message = "last.safetensors is not the checkpoint of a translation training"
    assert code == 1 and message in errors


def test_after_a_training_that_diverged_the_advice_is_to_start_anew(train):
    code, _, errors, _ = train("--lr", 1e38, "--warmup", 1)
    assert code == 1 and errors.startswith("error: ")
    assert "--resume would fail again: start a new training with another --out" in errors


# ---- translate.py and evaluate.py ----

LINES = [source for source, _ in sentence_pairs(5, seed=5)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a model that gives different translations for different sentences."""
    folder = tmp_path_factory.mktemp("model")
    trained_translator(300, n_steps=80).save(folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def translations(model):
    translations = list(Translator.load(model).translate(LINES))
    assert len(set(translations)) == len(LINES)
    assert any(word in WORDS.values() for line in translations for word in line.split())
    return translations


@pytest.fixture
def use(call, model):
    """``use(main, *arguments)`` runs a command with the model, or another one that is given."""
    return lambda main, *arguments: call(main, "--model", model, *arguments)


def test_sentences_a_file_and_standard_input_give_the_same_translations_in_order(
    model, translations, tmp_path, standard_input, use
):
    expected = "".join(f"{line}\n" for line in translations)
    text = "".join(f"{line}\r\n" for line in LINES)
    (tmp_path / "x.en").write_bytes(text.encode())
    assert python(*script("translate", "--model", model), input=text).stdout == expected
    of_a_file = ["--model", model / "model.safetensors", "--file", tmp_path / "x.en"]
    for arguments in (LINES, of_a_file, ["-"], ["--file", "-"]):
        standard_input(text.encode())
        assert use(translate.main, *arguments)[:2] == (0, expected)


def test_the_n_best_are_numbered_scored_and_sorted(translations, use):
    code, shown, _ = use(translate.main, "--n-best", 3, LINES[0], "", LINES[1])
    rows = [line.split("\t") for line in shown.splitlines()]
    assert (code, [row[0] for row in rows]) == (0, ["1"] * 3 + ["3"] * 3)
    for best, translation in ((rows[:3], translations[0]), (rows[3:], translations[1])):
        scores = [float(row[1]) for row in best]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] < 0
        assert best[0][2] == translation


def test_attention_is_drawn(translations, use, tmp_path):
    pytest.importorskip("matplotlib")
    code, shown, _ = use(translate.main, "--attention", tmp_path / "new" / "x.png", *LINES)
    assert is_png(tmp_path / "new" / "x.png")
    assert (code, shown.splitlines()) == (0, translations)


def test_the_attention_of_an_empty_line_is_refused(translations, use, tmp_path):
    code, shown, errors = use(translate.main, "--attention", tmp_path / "x.png", "", LINES[0])
    assert (code, shown) == (1, f"\n{translations[0]}\n")
    assert "--attention: the first line is empty" in errors


TOO_LONG = "the horse " * 5000


@pytest.mark.parametrize("source", ["pipe", "file", "gzip file"])
def test_a_line_that_cannot_be_translated_costs_no_other(
    translations, tmp_path, source, standard_input, use
):
    lines = [LINES[0].encode(), b"for\xeat", TOO_LONG.encode(), LINES[1].encode(), b""]
    text = b"\n".join(lines)
    path = tmp_path / {"pipe": "none", "file": "x.en", "gzip file": "x.en.gz"}[source]
    if source == "pipe":
        standard_input(text)
        arguments, name = [], "standard input"
    else:
        path.write_bytes(gzip.compress(text) if source == "gzip file" else text)
        arguments, name = ["--file", path], path
    code, shown, errors = use(translate.main, *arguments)
    assert (code, shown) == (1, f"{translations[0]}\n\n\n{translations[1]}\n")
    not_utf_8, too_long = errors.splitlines()
    assert not_utf_8.startswith(f"error: {name}, line 2: 'utf-8' codec can't decode byte 0xea")
    message = rf"error: {name}, line 3 has \d+ pieces, expected fewer than 5000: divide it"
    assert re.match(message, too_long)


def test_what_comes_before_the_damage_of_a_file_is_translated(tmp_path, use):
    text = "".join(f"{random.Random(n).random()}\n" for n in range(600))
    (tmp_path / "x.gz").write_bytes(gzip.compress(text.encode())[:-100])
    code, shown, errors = use(translate.main, "--beam", 1, "--file", tmp_path / "x.gz")
    assert code == 1 and len(shown.splitlines()) > 300
    [line] = errors.splitlines()
    message = rf"error: {tmp_path}/x.gz, after line \d+: .*; expected a whole gzip file$"
    assert re.match(message, line)


def test_a_file_that_is_no_text_is_read_to_no_end(translations, tmp_path, use):
    scattered = [LINES[0].encode(), *50 * [b"for\xeat", b""], LINES[1].encode()]
    binary = 101 * [b"for\xeat", b""]
    (tmp_path / "x").write_bytes(b"\n".join([*scattered, *scattered, *binary, LINES[2].encode()]))
    code, shown, errors = use(translate.main, "--file", tmp_path / "x")
    assert (code, [line for line in shown.splitlines() if line]) == (1, 2 * translations[:2])
    *bad, last = errors.splitlines()
    assert len(bad) == 200
    reason = "more than 100 lines one after another are not UTF-8"
    assert last == f"error: {tmp_path / 'x'} is no text, and is read no further: {reason}"


@pytest.fixture
def nothing_is_translated(monkeypatch):
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: pytest.fail("it is translated"))


@pytest.mark.usefixtures("nothing_is_translated")
def test_all_lines_that_cannot_be_evaluated_are_named_at_once(tmp_path, model, failure):
    source = [LINES[0].encode(), b"for\xeat", TOO_LONG.encode()]
    source += [b"", LINES[1].encode(), *4 * [b" "]]
    target = [*4 * [b"a"], b"\xff", *4 * [b"a"]]
    arguments = ["--model", model, "--data", tmp_path, "--split", "x", *PAIR]

    def refused(*options):
        (tmp_path / "x.en").write_bytes(b"\n".join(source) + b"\n")
        (tmp_path / "x.fr").write_bytes(b"\n".join(target) + b"\n")
        return failure(evaluate.main, *arguments, *options)

    error = refused()
    assert error.startswith("error: 8 lines cannot be evaluated, and nothing was translated: ")
    reasons = {2: ": 'utf-8' codec", 3: " has", 4: " is empty", 6: " is empty", 7: " is empty"}
    for number, reason in reasons.items():
        assert f"{tmp_path / 'x.en'}, line {number}{reason}" in error
    assert error.endswith("--skip-empty; 3 more, too\n")
    error = refused("--skip-empty")
    assert error.startswith("error: 3 lines cannot be evaluated")
    assert f"{tmp_path / 'x.fr'}, line 5: 'utf-8'" in error
    source[1] = target[4] = b""
    message = rf"error: {tmp_path}/x.en, line 3 has \d+ pieces, expected fewer"
    assert re.match(message, refused("--skip-empty"))


def test_a_standard_input_that_is_closed_is_named(standard_input, translations, use):
    standard_input(None)
    code, _, errors = use(translate.main)
    message = "there is no standard input: expected a text, or the name of a file"
    assert code == 1 and message in errors
    assert use(translate.main, LINES[0])[:2] == (0, translations[0] + "\n")


def test_a_package_that_scores_need_is_missed_before_the_model_is_loaded(
    tmp_path, data, monkeypatch, failure
):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    arguments = ["--model", tmp_path, "--data", data, "--split", "test"]
    needed = "error: scores need sacrebleu and sacremoses: pip install"
    assert failure(evaluate.main, *arguments).startswith(needed)


TITLES = {"bleu_lower": "BLEU, lower-cased", "bleu": "BLEU, cased", "chrf": "chrF"}


def test_the_evaluation_is_the_score_of_the_translations(model, data, tmp_path, measure):
    pytest.importorskip("matplotlib")
    plot, text = tmp_path / "new" / "x.png", tmp_path / "also" / "x.fr"
    arguments = ["--model", model, "--data", data, "--split", "test", *PAIR]
    ended = measure(evaluate.main, *arguments, "--plot", plot, "--out", text)
    code, shown, _, figures = ended
    sources, references = zip(*sentence_pairs(6, seed=3), strict=True)
    translations = list(Translator.load(model).translate(sources))
    expected = score(translations, references, "fr")
    assert text.read_text(encoding="utf-8").splitlines() == translations
    assert (code, figures["scores"]) == (0, expected)
    assert (figures["sentences"], figures["pair"], figures["split"]) == (6, ["en", "fr"], "test")
    assert sum(row["sentences"] for row in figures["by_length"]) == 6
    assert is_png(plot)
    for name, title in TITLES.items():
        [line] = [line for line in shown.splitlines() if line.strip().startswith(title)]
        assert f"{expected[name]:5.1f}   {expected['signatures'][name]}" in line
    assert "words of the source   sentences" in shown


@PIPES_CLOSE
def test_the_scores_are_written_if_nobody_reads_them(model, data, tmp_path):
    arguments = ["--model", model, "--data", data, "--split", "test", *PAIR]
    with nobody_reads() as pipe:
        done = python(*script("evaluate", *arguments, "--json", tmp_path / "x.json"), stdout=pipe)
    assert done.stderr == ""
    assert (tmp_path / "x.json").exists()


def test_scores_by_length_are_those_of_the_sentences_of_that_length(model, tmp_path, measure):
    pairs = {"the man eats": "a", "a man " * 5: "b", "the horse " * 15: "c"}
    (tmp_path / "x.en").write_text("\n".join(pairs) + "\n")
    (tmp_path / "x.fr").write_text("\n".join(pairs.values()) + "\n")
    arguments = ["--model", model, "--data", tmp_path, "--split", "x", "--beam", 1, *PAIR]
    code, shown, _, figures = measure(evaluate.main, *arguments)
    assert code == 0 and "21 and more" in shown
    rows = figures["by_length"]
    assert [row["words"] for row in rows] == [[1, 8], [9, 10], [21, 10**9]]
    for row, (source, reference) in zip(rows, pairs.items(), strict=True):
        expected = score(Translator.load(model).greedy([source]), [reference], "fr")
        assert row["sentences"] == 1
        assert (row["bleu"], row["chrf"]) == (expected["bleu"], expected["chrf"])


def test_the_options_of_the_search_reach_it(model, data, monkeypatch, use, measure):
    searches = []

    def hypotheses(translator, lines, **search):
        searches.append(search)
        return ([] for _ in lines)

    monkeypatch.setattr(Translator, "hypotheses", hypotheses)
    options = ["--beam", 3, "--length-penalty", 0.6, "--penalty-form", "gnmt"]
    expected = {"beam_size": 3, "length_penalty": 0.6, "penalty_form": "gnmt"}
    assert use(translate.main, *options, "--n-best", 2, "a man").code == 0
    assert searches == [expected | {"n_best": 2}]
    arguments = ["--model", model, "--data", data, "--split", "test", *PAIR]
    code, _, _, figures = measure(evaluate.main, *options, *arguments)
    assert code == 0 and searches[1].items() >= expected.items()
    assert figures["search"] == expected


def test_the_languages_are_those_of_the_training(finished, data, use):
    trained = ["--model", finished[0] / "model.safetensors", "--data", data]
    code, shown, _ = use(evaluate.main, *trained, "--split", "test", "--beam", 1)
    assert code == 0 and "en to fr, test" in shown
