"""The notebook of the tour is what its page says, runs,
and shows what npformer is to show in a notebook.
"""

import copy
import doctest
import re

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from scripts import make_notebook as tour  # noqa: E402, which needs them

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(scope="module")
def kept():
    return nbformat.read(tour.NOTEBOOK, as_version=4)


def shown(cell, kind="text/plain"):
    return "".join(str(output.get("data", {}).get(kind, "")) for output in cell.get("outputs", ()))


def assert_shows_what_the_page_says(notebook):
    for cell, (_, source, expected) in zip(notebook.cells, tour.cells(), strict=True):
        if expected:
            assert doctest.OutputChecker().check_output(expected, shown(cell) + "\n", FLAGS), source
    pictures = [cell.source for cell in notebook.cells if shown(cell, "image/png")]
    tables = [cell.source for cell in notebook.cells if "<table>" in shown(cell, "text/html")]
    assert len(pictures) == len(tables) == 1
    assert "plot_attention" in pictures[0]
    assert "explain" in tables[0]


def test_the_notebook_in_the_repository_is_made_of_the_page(kept):
    made = [(cell.cell_type, cell.source) for cell in tour.made().cells]
    found = [(cell.cell_type, cell.source) for cell in kept.cells]
    assert found == made, "run scripts/make_notebook.py"
    assert_shows_what_the_page_says(kept)


def test_links_of_the_notebook_lead_to_files_of_the_repository(kept):
    links = [link for cell in kept.cells for link in re.findall(r"\]\(([^)]+)\)", cell.source)]
    paths = [re.sub(".*/blob/main/|#.*", "", link) for link in links if "npformer/npformer" in link]
    assert len(paths) > 5
    assert all(link.startswith("https://") for link in links)
    assert [path for path in paths if not (tour.ROOT / path).is_file()] == []


def test_the_notebook_runs_elsewhere_and_shows_the_same(kept, tmp_path):
    notebook = copy.deepcopy(kept)
    for cell in notebook.cells:
        cell.pop("outputs", None)
    tour.run(notebook, tmp_path)
    assert_shows_what_the_page_says(notebook)


TRAINING = """
import sys, npformer as nf
{before}
task = nf.CopyTask(vocab=11, max_len=5)
model = nf.Transformer(11, 11, d_model=32, n_heads=4, n_layers=1, d_ff=64)
trainer = nf.Trainer(model, nf.Adam(lr=0.01))
history = trainer.fit([task.batch(0, 8)] * 3, 3, validate=[task.held_out(3)])
"""
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.mark.parametrize(
    "without", ["", "sys.modules['ipywidgets'] = None"], ids=["widgets", "no widgets"]
)
def test_the_progress_bar_is_a_widget_where_there_are_widgets(without, tmp_path):
    cell = nbformat.v4.new_code_cell(TRAINING.format(before=without))
    nbclient.execute(nbformat.v4.new_notebook(cells=[cell]), tmp_path)
    said = {"stdout": "", "stderr": ""}
    for output in cell.outputs:
        if "name" in output:
            said[output.name] += output.text
    assert "val_loss" in said["stdout"]
    assert bool(shown(cell, WIDGET)) == (not without)
    assert ("3/3" in said["stderr"]) == bool(without), said
    assert "Warning" not in said["stderr"], said
