"""``train_translation.py``, ``translate.py`` and ``evaluate.py`` as a user runs them, also when the power goes out."""

import contextlib
import gzip
import importlib.util
import io
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

import numpy as np
import pytest
from corpus import WORDS, sentence_pairs, write_corpus

from npformer import Adam, Trainer, Transformer
from npformer.data import Subwords, TokenBatches
from npformer.training import JsonLog, load_checkpoint
from npformer.translation import TranslationRun, Translator, score

for name in ("sentencepiece", "safetensors", "sacrebleu", "sacremoses"):
    pytest.importorskip(name)

SCRIPTS = Path(__file__).parents[2] / "scripts"
SMALL = ["--vocab-size", 40, "--max-tokens", 150, "--max-len", 60, "--quiet"]
PAIR = ["--src", "en", "--tgt", "fr"]
RECIPE = [*SMALL, "--steps", 10, "--validate-every", 4, "--save-every", 2, "--n-average", 2]


def command(script, arguments):
    return [sys.executable, "-W", "error::UserWarning", SCRIPTS / f"{script}.py", *map(str, arguments)]


def run(script, *arguments, status=0, **options):
    done = subprocess.run(command(script, arguments), capture_output=True, encoding="utf-8", **options)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def run_here(script, *arguments):
    """The exit code of the script, run in this process, which is faster."""
    spec = importlib.util.spec_from_file_location(script, SCRIPTS / f"{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main([str(argument) for argument in arguments])


def is_png(path):
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


# ---- train_translation.py ----


def test_the_sizes_of_the_model_are_options_and_the_text_says_how_many_pieces_there_are(tmp_path, capsys):
    write_corpus(tmp_path)
    recipe = ["--vocab-size", 4000, "--steps", 1, "--validate-every", 1, "--quiet"]
    sizes = ["--d-model", 16, "--n-heads", 2, "--n-layers", 1]
    out = ["--out", tmp_path / "run"]
    assert run_here("train_translation", *out, "--data", tmp_path, *PAIR, *recipe, *sizes) == 0
    model = Translator.load(tmp_path / "run").model
    assert (model.d_model, model.n_heads, model.n_layers, model.d_ff) == (16, 2, 1, 256)
    n_pieces = model.src_vocab
    assert n_pieces < 4000
    said = f"the vocabulary has {n_pieces:,} pieces, all of the text, instead of 4,000\n"
    assert said in capsys.readouterr().out
    assert run_here("train_translation", *out, "--resume", "--quiet", *sizes) == 0
    assert run_here("train_translation", *out, "--resume", "--quiet", "--d-model", 32) == 1
    assert "was begun with" in capsys.readouterr().err


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "data")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data):
    """The folder of a training that was not interrupted, and its output."""
    pytest.importorskip("matplotlib")
    out = tmp_path_factory.mktemp("runs") / "whole"
    done = run("train_translation", "--data", data, "--out", out, *RECIPE, "--json", out / "figures.json")
    return out, done.stdout


@pytest.fixture
def no_curves(monkeypatch):
    """Draw none, which takes half a second."""
    monkeypatch.setattr("npformer.plots.plot_training", lambda *_, **__: None)


def begin(data, out, *arguments):
    """A running training that has saved once."""
    process = subprocess.Popen(
        command("train_translation", ["--data", data, "--out", out, *RECIPE, *arguments]), stdout=subprocess.PIPE
    )
    while not (out / "last.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    return process


def assert_same_training(out, finished):
    for file in ("last.safetensors", "model.safetensors"):
        given, expected = (load_checkpoint(folder / file)[0] for folder in (out, finished))
        assert given.keys() == expected.keys()
        assert [name for name, x in expected.items() if given[name].tobytes() != x.tobytes()] == []
    logs = [JsonLog.read(folder / "log.jsonl") for folder in (out, finished)]
    for record in (record for log in logs for record in log):
        record.pop("seconds", None)
    assert logs[0] == logs[1]


def test_everything_that_was_announced_comes_out(finished):
    out, shown = finished
    names = ["curves.png", "figures.json", "last.safetensors", "log.jsonl", "model.safetensors", "snapshots"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert [path.name for path in sorted((out / "snapshots").iterdir())] == [
        "step-0000008.safetensors",
        "step-0000010.safetensors",
    ]
    assert is_png(out / "curves.png")
    assert "en to fr, preset tiny, seed 1: " in shown
    assert f"--model {out}" in shown


def test_a_training_is_explained_and_diagnosed_before_it_begins(data, tmp_path, no_curves, capsys):
    given = "--data", data, "--out", tmp_path / "run", *SMALL, "--steps", 1, "--explain", "--diagnose"
    assert run_here("train_translation", *given) == 0
    shown = capsys.readouterr().out
    assert "adam_update" in shown and "as far as it was examined" in shown


def test_the_log_has_each_step_and_validation_once(finished):
    records = JsonLog.read(finished[0] / "log.jsonl")
    assert [record["step"] for record in records if "loss" in record] == list(range(1, 11))
    assert [record["step"] for record in records if "val_loss" in record] == [4, 8, 10]
    assert all(record["n_tokens"] > 0 and record["seconds"] > 0 for record in records if "loss" in record)


def test_the_figures_say_what_was_done_and_how_good_it_is(finished):
    out, _ = finished
    figures = json.loads((out / "figures.json").read_text())
    assert figures["step"] == 10
    assert figures["averaged"] == [8, 10]
    assert figures.keys() >= {"val_loss", "val_bleu", "val_bleu_lower", "seconds"}
    settings = figures["settings"]
    assert (settings["vocab_size"], settings["steps"], settings["seed"], settings["dropout"]) == (40, 10, 1, 0.3)
    assert load_checkpoint(out / "model.safetensors")[1]["settings"] == settings


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals between processes")
def test_sigterm_saves_and_resuming_leaves_no_trace(tmp_path, data, finished, capsys):
    process = begin(data, tmp_path / "run")
    process.send_signal(signal.SIGTERM)
    shown = process.communicate()[0].decode()
    assert process.returncode == 143
    step = load_checkpoint(tmp_path / "run" / "last.safetensors")[1]["n_steps"]
    assert 2 <= step < 10
    assert f"SIGTERM: saved after step {step}; --resume continues from there" in shown
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert run_here("train_translation", "--out", tmp_path / "run", "--resume", "--quiet") == 0
    assert f"{step} of 10 steps done" in capsys.readouterr().out
    assert_same_training(tmp_path / "run", finished[0])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals between processes")
def test_a_signal_after_the_reader_of_all_output_has_gone_saves(tmp_path, data):
    """As with ``2>&1 | tee log``, when Ctrl-C ends tee first."""
    reader, writer = os.pipe()
    arguments = ["--data", data, "--out", tmp_path / "run", *RECIPE, "--steps", 10**6]
    process = subprocess.Popen(command("train_translation", arguments), stdout=writer, stderr=writer)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    while not (tmp_path / "run" / "last.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    _, info = load_checkpoint(tmp_path / "run" / "last.safetensors")
    assert len(JsonLog.read(tmp_path / "run" / "log.jsonl")) == info["n_logged"]


def test_kills_at_any_moment_leave_no_trace(tmp_path, data, finished, no_curves):
    draw = random.Random(0)
    with begin(data, tmp_path / "run") as process:
        time.sleep(draw.uniform(0, 0.2))
        process.kill()
    assert not (tmp_path / "run" / "model.safetensors").exists()
    for _ in range(2):
        arguments = ["--out", tmp_path / "run", "--resume", "--quiet"]
        with subprocess.Popen(command("train_translation", arguments), stdout=subprocess.DEVNULL) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0.4, 1.6))
            process.kill()
    assert run_here("train_translation", "--out", tmp_path / "run", "--resume", "--quiet") == 0
    assert_same_training(tmp_path / "run", finished[0])


def test_minutes_that_are_over_still_give_a_model(tmp_path, data, no_curves, capsys):
    arguments = [*RECIPE, "--steps", 10**6, "--minutes", 0.001, "--json", tmp_path / "figures" / "x.json"]
    assert run_here("train_translation", "--data", data, "--out", tmp_path / "run", *arguments) == 0
    figures = json.loads((tmp_path / "figures" / "x.json").read_text())
    shown = capsys.readouterr().out
    assert f"{figures['step']} of 1,000,000 steps (" in shown and "in this run); --resume continues. The param" in shown
    assert f"The parameters after step {figures['step']}:" in shown
    assert figures["step"] == load_checkpoint(tmp_path / "run" / "last.safetensors")[1]["n_steps"] < 100
    assert isinstance(next(Translator.load(tmp_path / "run").translate(["the man"])), str)


@pytest.mark.parametrize(
    "options", [["--vocab", "separate", "--average", "best"], ["--preset", "small", "--consistency", 1]], ids=str
)
def test_options_reach_the_training(tmp_path, data, options, no_curves, monkeypatch):
    monkeypatch.setattr("npformer.translation.translator.EXTRA_LEN", 5)  # what has learned little does not end
    out = tmp_path / "run"
    arguments = [*RECIPE, "--steps", 2, "--seed", 7, "--norm", "pre", *options]
    assert run_here("train_translation", "--data", data, "--out", out, *arguments) == 0
    arrays, info = load_checkpoint(out / "model.safetensors")
    settings = info["settings"]
    assert (settings["seed"], settings["norm"]) == (7, "pre")
    if "separate" in options:
        assert settings["average"] == "best"
        assert "params.target_embedding" in arrays
    else:
        assert info["model"]["d_model"] == 256
        assert load_checkpoint(out / "last.safetensors")[1]["trainer"]["consistency"] == 1


def test_early_stopping_ends_after_the_first_validation_that_is_not_better(tmp_path, data, no_curves):
    arguments = [*RECIPE, "--steps", 30, "--validate-every", 1, "--patience", 1]
    assert run_here("train_translation", "--data", data, "--out", tmp_path, *arguments) == 0
    bleus = [record["val_bleu"] for record in JsonLog.read(tmp_path / "log.jsonl") if "val_bleu" in record]
    assert 2 <= len(bleus) < 30
    assert bleus[-1] <= max(bleus[:-1])
    assert all(later > earlier for earlier, later in zip(bleus[:-2], bleus[1:-1], strict=True))


def test_a_folder_that_holds_a_training_is_not_written_over(data, finished, capsys):
    before = (finished[0] / "last.safetensors").read_bytes()
    assert run_here("train_translation", "--data", data, "--out", finished[0], *RECIPE) == 1
    assert "holds a training: continue it with --resume" in capsys.readouterr().err
    assert (finished[0] / "last.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--seed", 2], "--seed 2, but .*last.safetensors was begun with 1"),
        (["--lr", 0.1], "--lr 0.1, but .*last.safetensors was begun with 0.005"),
        (["--vocab-size", 41], "--vocab-size 41, but .*last.safetensors was begun with 40"),
        (["--d-model", 64], "--d-model 64, but .*last.safetensors was begun with 128"),
    ],
)
def test_resuming_with_another_recipe_is_refused(finished, capsys, arguments, message):
    assert run_here("train_translation", "--out", finished[0], "--resume", *arguments) == 1
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.usefixtures("no_curves")
@pytest.mark.parametrize(
    "wrong, message", [("missing", "expected train.en or train.en.gz"), ("unequal", "has 61 lines")]
)
def test_resuming_with_another_text_that_is_wrong_changes_nothing(tmp_path, data, finished, capsys, wrong, message):
    out, other = shutil.copytree(finished[0], tmp_path / "run"), tmp_path / wrong
    if wrong == "unequal":
        shutil.copytree(data, other)
        with open(other / "train.en", "a") as file:
            file.write("a man\n")
    before = (out / "last.safetensors").read_bytes()
    assert run_here("train_translation", "--out", out, "--resume", "--quiet", "--steps", 12, "--data", other) == 1
    assert message in capsys.readouterr().err
    assert (out / "last.safetensors").read_bytes() == before
    assert run_here("train_translation", "--out", out, "--resume", "--quiet") == 0  # with the text it had


def test_no_vocabulary_is_learned_if_the_results_cannot_be_written(tmp_path, data, monkeypatch, capsys):
    monkeypatch.setattr(Subwords, "learn", None)
    (tmp_path / "file").write_text("")
    for arguments in (["--out", tmp_path / "file"], ["--out", tmp_path, "--json", tmp_path / "file" / "x.json"]):
        with pytest.raises(SystemExit, match="2"):
            run_here("train_translation", "--data", data, *RECIPE, *arguments)
        assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("script, arguments", [("translate", ["A man."]), ("evaluate", ["--data", "."])])
def test_ctrl_c_ends_translating_without_a_traceback(tmp_path, monkeypatch, script, arguments):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Translator, "load", interrupt)
    assert run_here(script, "--model", tmp_path, *arguments) == 130


def test_a_second_ctrl_c_says_how_to_go_on(tmp_path, data, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(TranslationRun, "train", interrupt)
    assert run_here("train_translation", "--data", data, "--out", tmp_path, *RECIPE) == 130
    assert "--resume continues from there" in capsys.readouterr().err


def test_resuming_needs_a_checkpoint(tmp_path, capsys):
    assert run_here("train_translation", "--out", tmp_path, "--resume") == 1
    last = tmp_path / "last.safetensors"
    assert capsys.readouterr().err == f"error: there is no checkpoint {last} to resume from: start without --resume\n"


def test_resuming_the_checkpoint_of_something_else_is_refused(tmp_path, capsys, finished):
    (tmp_path / "last.safetensors").write_bytes((finished[0] / "model.safetensors").read_bytes())
    assert run_here("train_translation", "--out", tmp_path, "--resume") == 1
    assert "last.safetensors is not the checkpoint of a translation training" in capsys.readouterr().err


@pytest.mark.parametrize("keep", [100, -1])
def test_a_damaged_checkpoint_is_named(tmp_path, finished, capsys, keep):
    (tmp_path / "last.safetensors").write_bytes((finished[0] / "last.safetensors").read_bytes()[:keep])
    assert run_here("train_translation", "--out", tmp_path, "--resume") == 1
    assert f"error: {tmp_path / 'last.safetensors'} cannot be read as a checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "required: --data (or --resume)"),
        (["--data", "x", "--steps", "0"], "argument --steps: 0, expected at least 1"),
        (["--data", "x", "--dropout", "1.5"], "argument --dropout: 1.5, expected 0 <= dropout < 1"),
        (["--data", "x", "--seed", "-1"], "argument --seed: -1, expected at least 0"),
        (["--data", "x", "--lr", "0"], "argument --lr: 0, expected a finite number above 0"),
        (["--data", "x", "--minutes", "nan"], "argument --minutes: nan, expected a finite number above 0"),
        (["--data", "x", "--consistency", "-1"], "argument --consistency: -1, expected a finite number of 0 or more"),
        (["--data", "x", "--clip-norm", "inf"], "argument --clip-norm: inf, expected a finite number above 0"),
        (["--data", "x", "--d-model", "wide"], "argument --d-model: wide, expected a whole number"),
        (["--data", "x", "--backend", "cup"], "argument --backend: 'cup', expected one of"),
        (["--resume", "--preset", "tiny"], "argument --preset: a resumed training keeps the preset"),
    ],
)
def test_wrong_arguments_exit_with_2(tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        run_here("train_translation", "--out", tmp_path, *arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_missing_data_argument_exits_with_2(tmp_path):
    assert "--data" in run("train_translation", "--out", tmp_path, status=2).stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--data", "nowhere"], "nowhere: expected train.en or train.en.gz, found no such folder"),
        (["--tgt", "de"], "expected train.de or train.de.gz, found ['test.en', "),
        (["--tgt", "en"], "source and target are both 'en', expected two languages"),
        (["--vocab-size", 5], "no vocabulary of size=5 could be learned"),
        (["--max-tokens", 30], "--max-len 60, expected at most --max-tokens 30"),
        (["--lr", 1e38, "--warmup", 1], "--resume would fail again: start a new training with another --out"),
    ],
)
def test_what_cannot_be_trained_exits_with_1_and_says_why(tmp_path, data, capsys, arguments, message):
    assert run_here("train_translation", "--data", data, "--out", tmp_path, *RECIPE, *arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error


# ---- translate.py and evaluate.py ----

LINES = [source for source, _ in sentence_pairs(5, seed=5)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a model that gives different translations for different sentences."""
    pairs = list(sentence_pairs(300))
    subwords = Subwords.learn([line for pair in pairs for line in pair], size=60)
    model = Transformer(60, 60, d_model=32, n_heads=2, n_layers=1, d_ff=32, dropout=0.0, tie_embeddings=True)
    trainer = Trainer(model, Adam(0.01), seed=1)
    batches = TokenBatches(pairs, subwords, subwords, max_tokens=600, seed=1).from_place()
    trainer.fit(((src, tgt) for _, src, tgt in batches), 80, progress=False)
    folder = tmp_path_factory.mktemp("model")
    Translator(model, trainer.params, subwords, subwords).save(folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def translations(model):
    translations = list(Translator.load(model).translate(LINES))
    assert len(set(translations)) == len(LINES)
    assert any(word in WORDS.values() for line in translations for word in line.split())
    return translations


def test_sentences_a_file_and_standard_input_give_the_same_translations_in_order(model, translations, tmp_path, capsys):
    expected = "".join(line + "\n" for line in translations)
    text = "".join(line + "\n" for line in LINES)
    (tmp_path / "x.en").write_text(text, encoding="utf-8")
    assert run("translate", "--model", model, input=text.replace("\n", "\r\n")).stdout == expected
    assert run_here("translate", "--model", model, *LINES) == 0
    assert run_here("translate", "--model", model / "model.safetensors", "--file", tmp_path / "x.en") == 0
    assert capsys.readouterr().out == 2 * expected


def test_an_empty_line_gives_an_empty_line(model, translations, capsys):
    assert run_here("translate", "--model", model, "", LINES[0], " ", LINES[1], "") == 0
    assert capsys.readouterr().out == f"\n{translations[0]}\n\n{translations[1]}\n\n"


def test_the_n_best_are_numbered_scored_and_sorted(model, translations, capsys):
    assert run_here("translate", "--model", model, "--n-best", 3, LINES[0], "", LINES[1]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["3"] * 3
    for best, translation in ((rows[:3], translations[0]), (rows[3:], translations[1])):
        scores = [float(row[1]) for row in best]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] < 0
        assert best[0][2] == translation


def test_attention_is_drawn(model, translations, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    assert run_here("translate", "--model", model, "--attention", tmp_path / "new" / "x.png", *LINES) == 0
    assert is_png(tmp_path / "new" / "x.png")
    assert capsys.readouterr().out.splitlines() == translations


def test_the_attention_of_an_empty_line_is_refused(model, translations, capsys, tmp_path):
    assert run_here("translate", "--model", model, "--attention", tmp_path / "x.png", "", LINES[0]) == 1
    shown = capsys.readouterr()
    assert "--attention: the first line is empty" in shown.err
    assert shown.out == f"\n{translations[0]}\n"


def test_a_missing_test_text_is_named_with_the_option(finished, data, capsys):
    assert run_here("evaluate", "--model", finished[0], "--data", data) == 1
    error = capsys.readouterr().err
    assert "expected test_2016_flickr.en" in error and "--split is the beginning of the names" in error


@pytest.mark.parametrize("script", ["translate", "evaluate"])
def test_a_missing_model_is_named(script, data, capsys, tmp_path):
    more = ["a man"] if script == "translate" else ["--data", data, "--split", "test"]
    assert run_here(script, "--model", tmp_path, *more) == 1
    assert capsys.readouterr().err.startswith(f"error: there is no checkpoint {tmp_path / 'model.safetensors'}")


@pytest.mark.parametrize("script", ["translate", "evaluate"])
def test_a_file_that_is_no_model_is_named(script, data, capsys, tmp_path):
    (tmp_path / "x").write_text("hello")
    more = ["a man"] if script == "translate" else ["--data", data, "--split", "test"]
    assert run_here(script, "--model", tmp_path / "x", *more) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'x'} cannot be read as a checkpoint")


@pytest.mark.parametrize("script", ["translate", "evaluate"])
def test_a_model_with_nan_is_named(script, model, data, capsys, tmp_path):
    translator = Translator.load(model)
    translator.params["decoder"]["norm"]["gain"][0] = np.nan
    translator.save(tmp_path / "model.safetensors")
    more = ["a man"] if script == "translate" else ["--data", data, "--split", "test", "--src", "en", "--tgt", "fr"]
    assert run_here(script, "--model", tmp_path, *more) == 1
    output = capsys.readouterr()
    assert "parameter decoder.norm.gain holds NaN or inf" in output.err
    assert (output.err.count("\n"), output.out) == (1, "")


TOO_LONG = "the horse " * 5000


@pytest.mark.parametrize("source", ["pipe", "file", "gzip file"])
def test_a_line_that_cannot_be_translated_costs_no_other(model, translations, tmp_path, source, monkeypatch, capsys):
    lines = [LINES[0].encode(), b"for\xeat", TOO_LONG.encode(), LINES[1].encode(), b""]
    text = b"\n".join(lines)
    path = tmp_path / {"pipe": "none", "file": "x.en", "gzip file": "x.en.gz"}[source]
    if source == "pipe":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        arguments, name = [], "standard input"
    else:
        path.write_bytes(gzip.compress(text) if source == "gzip file" else text)
        arguments, name = ["--file", path], path
    assert run_here("translate", "--model", model, *arguments) == 1
    shown, errors = capsys.readouterr()
    assert shown == f"{translations[0]}\n\n\n{translations[1]}\n"
    not_utf_8, too_long = errors.splitlines()
    assert not_utf_8.startswith(f"error: {name}, line 2: 'utf-8' codec can't decode byte 0xea")
    assert re.match(f"error: {name}, line 3 has \\d+ pieces, expected fewer than 5000: divide it", too_long)


def test_a_sentence_that_is_too_long_costs_no_other(model, translations, capsys):
    assert run_here("translate", "--model", model, "--n-best", 1, LINES[0], TOO_LONG, LINES[1]) == 1
    shown, errors = capsys.readouterr()
    assert [line.split("\t")[::2] for line in shown.splitlines()] == [["1", translations[0]], ["3", translations[1]]]
    assert errors.startswith("error: line 2 has ")


def test_what_comes_before_the_damage_of_a_file_is_translated(model, tmp_path, capsys):
    text = "".join(f"{random.Random(n).random()}\n" for n in range(600))
    (tmp_path / "x.gz").write_bytes(gzip.compress(text.encode())[:-100])
    assert run_here("translate", "--model", model, "--beam", 1, "--file", tmp_path / "x.gz") == 1
    shown, errors = capsys.readouterr()
    assert len(shown.splitlines()) > 300
    [line] = errors.splitlines()
    assert re.match(rf"error: {tmp_path}/x.gz, after line \d+: .*; expected a whole gzip file$", line)


def test_a_file_that_is_no_text_is_read_to_no_end(model, translations, tmp_path, capsys):
    scattered = [LINES[0].encode(), *50 * [b"for\xeat", b""], LINES[1].encode()]
    binary = 101 * [b"for\xeat", b""]
    (tmp_path / "x").write_bytes(b"\n".join([*scattered, *scattered, *binary, LINES[2].encode()]))
    assert run_here("translate", "--model", model, "--file", tmp_path / "x") == 1
    shown, errors = capsys.readouterr()
    assert [line for line in shown.splitlines() if line] == 2 * translations[:2]
    *bad, last = errors.splitlines()
    assert len(bad) == 200
    reason = "more than 100 lines one after another are not UTF-8"
    assert last == f"error: {tmp_path / 'x'} is no text, and is read no further: {reason}"


def test_a_dash_stands_for_standard_input(model, translations, monkeypatch, capsys):
    for arguments in (["-"], ["--file", "-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
        assert run_here("translate", "--model", model, *arguments) == 0
        assert capsys.readouterr().out.splitlines() == translations


def test_a_test_text_with_a_line_that_is_too_long_is_refused_before_it_is_translated(
    model, tmp_path, monkeypatch, capsys
):
    (tmp_path / "x.en").write_text(f"{LINES[0]}\n\n{TOO_LONG}\n")
    (tmp_path / "x.fr").write_text("a\nb\nc\n")
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: pytest.fail("it is translated"))
    arguments = ["--data", tmp_path, "--split", "x", *PAIR, "--skip-empty"]
    assert run_here("evaluate", "--model", model, *arguments) == 1
    assert re.match(rf"error: {tmp_path}/x.en, line 3 has \d+ pieces, expected fewer", capsys.readouterr().err)


def test_all_lines_that_cannot_be_evaluated_are_named_at_once(model, tmp_path, monkeypatch, capsys):
    source = [LINES[0].encode(), b"for\xeat", TOO_LONG.encode(), b"", LINES[1].encode(), *4 * [b" "]]
    (tmp_path / "x.en").write_bytes(b"\n".join(source) + b"\n")
    (tmp_path / "x.fr").write_bytes(b"a\n" * 4 + b"\xff\n" + b"a\n" * 4)
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: pytest.fail("it is translated"))
    arguments = ["--model", model, "--data", tmp_path, "--split", "x", *PAIR]
    assert run_here("evaluate", *arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: 8 lines cannot be evaluated, and nothing was translated: ")
    for number, reason in [(2, ": 'utf-8' codec"), (3, " has"), (4, " is empty"), (6, " is empty"), (7, " is empty")]:
        assert f"{tmp_path / 'x.en'}, line {number}{reason}" in error
    assert error.endswith("--skip-empty; 3 more, too\n")
    assert run_here("evaluate", *arguments, "--skip-empty") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: 3 lines cannot be evaluated") and f"{tmp_path / 'x.fr'}, line 5: 'utf-8'" in error


def test_a_standard_input_that_is_closed_is_named(model, monkeypatch, translations, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert run_here("translate", "--model", model) == 1
    assert "there is no standard input: expected a text, or the name of a file" in capsys.readouterr().err
    assert run_here("translate", "--model", model, LINES[0]) == 0
    assert capsys.readouterr().out == translations[0] + "\n"


def test_a_package_that_scores_need_is_missed_before_the_model_is_loaded(tmp_path, data, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    assert run_here("evaluate", "--model", tmp_path, "--data", data, "--split", "test") == 1
    assert capsys.readouterr().err.startswith("error: scores need sacrebleu and sacremoses: pip install")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--n-best", 6],
        ["--beam", 10**11],
        ["--attention", "x.doc", "A man"],
        ["\udce9"],
        ["--beam", 0],
        ["--file", "x", "a sentence"],
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_exit_with_2(model, capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        run_here("translate", "--model", model, *arguments)
    assert stop.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_the_evaluation_is_the_score_of_the_translations(model, data, tmp_path):
    pytest.importorskip("matplotlib")
    files = {name: tmp_path / name / f"x.{name}" for name in ("json", "plot.png", "fr")}
    arguments = ["--json", files["json"], "--plot", files["plot.png"], "--out", files["fr"], "--split", "test", *PAIR]
    shown = run("evaluate", "--model", model, "--data", data, *arguments).stdout
    sources, references = zip(*sentence_pairs(6, seed=3), strict=True)
    translations = list(Translator.load(model).translate(sources))
    expected = score(translations, references, "fr")
    result = json.loads(files["json"].read_text(encoding="utf-8"))
    assert files["fr"].read_text(encoding="utf-8").splitlines() == translations
    assert result["scores"] == expected
    assert (result["sentences"], result["pair"], result["split"]) == (6, ["en", "fr"], "test")
    assert sum(row["sentences"] for row in result["by_length"]) == 6
    assert is_png(files["plot.png"])
    for name, title in (("bleu_lower", "BLEU, lower-cased"), ("bleu", "BLEU, cased"), ("chrf", "chrF")):
        [line] = [line for line in shown.splitlines() if line.strip().startswith(title)]
        assert f"{expected[name]:5.1f}   {expected['signatures'][name]}" in line
    assert "words of the source   sentences" in shown


@pytest.mark.skipif(sys.platform == "win32", reason="on Windows a pipe that is closed is another error")
@pytest.mark.parametrize("script", ["translate", "evaluate"])
def test_a_reader_who_has_enough_is_no_error(script, model, data, tmp_path):
    more = LINES if script == "translate" else ["--data", data, "--split", "test", *PAIR, "--json", tmp_path / "x.json"]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command(script, ["--model", model, *more]), **pipe) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
    assert script == "translate" or (tmp_path / "x.json").exists()


def test_scores_by_length_are_those_of_the_sentences_of_that_length(model, tmp_path, capsys):
    pairs = [("the man eats", "a"), ("a man " * 5, "b"), ("the horse " * 15, "c")]
    for ending, side in (("en", 0), ("fr", 1)):
        (tmp_path / f"x.{ending}").write_text("".join(pair[side] + "\n" for pair in pairs))
    arguments = ["--data", tmp_path, "--split", "x", "--beam", 1, "--json", tmp_path / "x.json", *PAIR]
    assert run_here("evaluate", "--model", model, *arguments) == 0
    rows = json.loads((tmp_path / "x.json").read_text())["by_length"]
    assert [row["words"] for row in rows] == [[1, 8], [9, 10], [21, 10**9]]
    for row, (source, reference) in zip(rows, pairs, strict=True):
        translations = Translator.load(model).greedy([source])
        expected = score(translations, [reference], "fr")
        assert (row["sentences"], row["bleu"], row["chrf"]) == (1, expected["bleu"], expected["chrf"])
    assert "21 and more" in capsys.readouterr().out


def test_the_languages_are_those_of_the_training(finished, model, data, capsys):
    trained = finished[0] / "model.safetensors"
    assert run_here("evaluate", "--model", trained, "--data", data, "--split", "test", "--beam", 1) == 0
    assert "en to fr, test" in capsys.readouterr().out
    assert run_here("evaluate", "--model", trained, "--data", data, "--tgt", "de") == 1
    assert "--tgt de, but the model was trained on fr" in capsys.readouterr().err
    assert run_here("evaluate", "--model", model, "--data", data) == 1
    assert "--src is missing: the model's file does not name" in capsys.readouterr().err


def test_a_missing_split_is_named_with_what_is_there(model, data, capsys):
    assert run_here("evaluate", "--model", model, "--data", data, "--split", "exam", *PAIR) == 1
    assert "expected exam.en or exam.en.gz, found ['test.en', 'test.fr.gz'" in capsys.readouterr().err
