"""``npformer copy`` as a user runs it, once by its script."""

import json
from pathlib import Path

import pytest
from programs import is_png, python

from npformer.commands import copy
from npformer.commands.copy.trained import N_SHOWN
from npformer.commands.shared import output

from npformer import get_backend, tree
from npformer.models import from_description
from npformer.text.copy_task import exact_match
from npformer.training import load_checkpoint

SCRIPT = Path(__file__).parents[2] / "scripts" / "train_copy.py"
FIGURES = {"exact_match", "exact_match_longer", "loss", "seconds", "steps", "tokens_per_second"}


@pytest.fixture
def run(call):
    """``run(*arguments)`` trains in this process, which is faster."""
    return lambda *arguments: call(copy.main, "--quiet", *arguments)


@pytest.fixture
def figures_of(measure):
    """``figures_of(*arguments)`` trains, and returns the figures."""
    return lambda *arguments: measure(copy.main, "--quiet", *arguments)[-1]


def test_the_quick_preset_learns_to_reverse(tmp_path):
    """What ``make copy`` does, except for the task, in a third of its steps: the learning rate
    follows their number. What it keeps shows, in characters, where the model looks.
    """
    pytest.importorskip("matplotlib")
    pytest.importorskip("safetensors")
    folder = tmp_path / "out"
    training = ["--task", "reverse", "--steps", 400]
    files = ["--json", tmp_path / "figures.json", "--out", folder]
    shown = python("-W", "error", SCRIPT, *training, *files, "--quiet").stdout
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures.keys() >= FIGURES
    assert figures["exact_match"] >= 0.98
    assert figures["loss"] < 0.1
    assert figures["steps"] == 400 == copy.PRESETS["quick"].steps / 3
    assert f"held out: {100 * figures['exact_match']:.1f} %" in shown
    assert shown.count(" right\n") + shown.count(" WRONG\n") == N_SHOWN
    names = [f"attention_{kind}" for kind in ("decoder", "encoder", "memory")]
    names += ["loss", "positional_encoding"]
    pictures = sorted(folder.glob("*.png"))
    assert [picture.stem for picture in pictures] == names
    assert all(map(is_png, pictures))

    arrays, info = load_checkpoint(folder / copy.RESULT)
    model, params = from_description(info["model"], arrays), tree.from_arrays(arrays, "params")
    task = copy.CopyTask(reverse=True, **copy.PRESETS["quick"].lengths)
    trained = copy.Trained(model, params, get_backend("auto"), *task.held_out(50))
    picture = copy.attention_in_characters(trained)
    rows = picture.split("(key)\n")[1].splitlines()[:-1]
    brightest = [
        max(range(10, len(row)), key=lambda column: " .:*#".index(row[column])) for row in rows[:-1]
    ]
    falling = sum(after < before for before, after in zip(brightest, brightest[1:], strict=False))
    assert falling >= 0.6 * (len(brightest) - 1)  # an anti-diagonal: the last word comes first


@pytest.fixture
def few_are_evaluated(monkeypatch):
    monkeypatch.setattr(copy, "N_EVALUATED", 50)


def test_without_matplotlib_characters_show_where_it_looks(few_are_evaluated, monkeypatch, run):
    monkeypatch.setattr(output.importlib.util, "find_spec", lambda name: None)
    shown = run("--steps", 2).shown
    assert "no pictures will be drawn: they need matplotlib" in shown
    assert "(key)\n" in shown


def test_a_training_is_diagnosed_before_it_begins(few_are_evaluated, run):
    shown = run("--steps", 20, "--no-plots", "--diagnose").shown
    assert "Nothing is wrong, as far as it was examined.\n" in shown


def test_the_help_has_the_steps_of_each_preset(run, capsys):
    with pytest.raises(SystemExit):
        copy.main(["--help"])
    steps = {name: preset.steps for name, preset in copy.PRESETS.items()}
    each = ", ".join(f"{n} of {name}" for name, n in steps.items())
    assert f"(default: {each})" in " ".join(capsys.readouterr().out.split())


def test_few_steps_do_not_learn_it_and_the_same_seed_has_the_same_figures(
    few_are_evaluated, figures_of
):
    found = [figures_of("--steps", 2, "--seed", seed, "--no-plots") for seed in (3, 3, 4)]
    assert found[0]["exact_match"] < 0.1 and found[0]["steps"] == 2
    losses = [figures["loss"] for figures in found]
    assert losses[0] == losses[1] != losses[2]


def test_a_model_of_another_size_is_kept(tmp_path, few_are_evaluated, figures_of):
    pytest.importorskip("safetensors")
    sizes = ["--d-model", 8, "--n-heads", 2, "--n-layers", 1, "--d-ff", 12]
    figures = figures_of("--steps", 2, *sizes, "--no-plots", "--out", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [copy.RESULT]
    arrays, info = load_checkpoint(tmp_path / "out" / copy.RESULT)
    model, params = from_description(info["model"], arrays), tree.from_arrays(arrays, "params")
    assert (model.d_model, model.n_heads, model.n_layers, model.d_ff) == (8, 2, 1, 12)
    task = copy.CopyTask(**copy.PRESETS["quick"].lengths)
    assert exact_match(model, params, *task.held_out(50))[0] == figures["exact_match"]


def test_a_model_that_cannot_be_kept_is_said_at_the_start(
    tmp_path, few_are_evaluated, monkeypatch, run
):
    def missing():
        raise ImportError("checkpoints need safetensors")

    monkeypatch.setattr(copy, "import_safetensors", missing)
    shown = run("--steps", 1, "--no-plots", "--out", tmp_path / "out").shown
    assert shown.startswith("the model will not be kept: checkpoints need safetensors\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stop, code", [(KeyboardInterrupt, 130), (SystemExit(143), 143)])
def test_a_training_that_is_stopped_says_how_far_it_came(stop, code, monkeypatch, run):
    def ends_it(average, trainer, info):
        if info.step == 3:
            raise stop

    monkeypatch.setattr(copy.ParameterAverage, "__call__", ends_it)
    ended = run("--steps", 2000, "--no-plots")
    line = "stopped after step 3 of 2,000; nothing was saved to go on from, but fewer --steps end"
    assert (ended.code, ended.errors) == (code, "")
    assert ended.shown.endswith(f"{line} sooner\n")
