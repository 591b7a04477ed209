"""``scripts/make_playground.py``.

Each page to play with is one file, and its models are what it says.
"""

import re

import numpy as np
import pytest

from scripts import make_playground

import npformer as nf
from npformer import tree
from npformer.text.copy_task import exact_match


@pytest.mark.parametrize("name", make_playground.PAGES)
def test_the_page_is_one_small_file_that_needs_no_network(tmp_path, call, name):
    path = tmp_path / "play.html"
    code, shown, _ = call(make_playground.main, "--out", path, "--page", name)
    assert code == 0 and str(path) in shown
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < 1.5e6
    from_elsewhere = r"https?://|<script src|<link rel=\"stylesheet\"|fetch\(|import "
    assert re.findall(from_elsewhere, text) == []


@pytest.mark.parametrize("name", make_playground.PAGES)
def test_the_page_of_the_site_leads_back_to_the_book(name):
    assert '<a href="../index.html">' in make_playground.page(name, home="../index.html")


def test_all_parts_of_the_pages_together_are_small():
    assert sum(path.stat().st_size for path in make_playground.FOLDER.iterdir()) < 1.5e6


def test_the_model_that_reverses_is_as_good_as_the_page_says():
    model, params, content = make_playground.read("reverse")
    task = nf.CopyTask(vocab=29, max_len=content["about"]["max_len"], reverse=True)
    share, _ = exact_match(model, params, *task.held_out(1000))
    assert share == content["about"]["exact_match"] == 1


def test_a_trained_model_is_read_as_it_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr(make_playground, "FOLDER", tmp_path)
    make_playground.main(["--train", "reverse", "--steps", "12"])
    model, params, content = make_playground.read("reverse")
    assert content["tokens"][:4] == ["<pad>", "<begin>", "<end>", "a"]
    assert content["about"]["n_parameters"] == tree.count(params)
    same = make_playground.rounded(params)
    assert all(tree.to_arrays(tree.map_leaves(np.array_equal, params, same), "equal").values())
    assert model.dtype == "float64"


@pytest.mark.parametrize("arguments", [[], ["--train", "en-fr"], ["--train", "de-fr"]])
def test_wrong_arguments(arguments, call):
    code, _, errors = call(make_playground.main, *arguments)
    assert code == 2 and "error:" in errors
