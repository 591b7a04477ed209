"""Pictures: what they show, and where they go."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from programs import is_png
from refusals import refuses

from npformer import plots
from npformer.training import StepInfo

pyplot = pytest.importorskip("matplotlib.pyplot")
Figure = pytest.importorskip("matplotlib.figure").Figure


@pytest.fixture
def path(tmp_path):
    """The path of a picture."""
    return tmp_path / "x.png"


def texts_of(labels):
    return [label.get_text() for label in labels]


def history_of(n_steps):
    return [StepInfo(step, 1 / step, 0.1, 1.0, 10, 0.01) for step in range(1, n_steps + 1)]


def test_pictures_are_written(tmp_path):
    history = history_of(59)
    plots.plot_loss(history, tmp_path / "loss.png")
    weights = [np.full((2, 3, 5), 0.2)] * 2
    plots.plot_attention(weights, "abcde", ["<begin>", "b", "c"], tmp_path / "attention.png")
    plots.plot_positional_encoding(tmp_path / "positions.png", length=7, d_model=5)
    assert all(map(is_png, tmp_path.iterdir()))


def test_a_figure_that_is_not_written_is_one_of_pyplot_which_shows_it(path):
    above, _ = plots.plot_positional_encoding()
    assert pyplot.get_fignums() == [above.figure.number]
    plots.plot_positional_encoding(path)
    plots.plot_positional_encoding(axes=above.figure.subplots(2))
    assert len(pyplot.get_fignums()) == 1


def test_drawing_on_axes_of_ones_own(tmp_path):
    figure = Figure()
    (a, b), (c, d) = figure.subplots(2, 2)
    history = history_of(8)
    assert list(plots.plot_loss(history, axes=[a, c])) == [a, c]
    assert a.get_lines()
    assert c.get_lines()
    assert not b.get_lines()
    panel = {"at": [1], "systems": {"a": [[2]]}}
    assert list(plots.plot_curves([panel], tmp_path / "all.png", axes=d)) == [d]
    assert figure.get_suptitle() == ""
    assert is_png(tmp_path / "all.png")
    refuses(ValueError, r"axes has shape \(\), expected 2", plots.plot_loss, history, axes=a)


def test_words_and_titles_are_no_formulas(path):
    words = ["$x^$", "$", r"\$\a$"]
    [[ax]] = plots.plot_attention([np.eye(3)[None]], words, words, path, "$_$")
    assert texts_of(ax.get_xticklabels()) == words


def test_words_have_to_fit_the_weights(tmp_path):
    message = r"weights \(2, 3, 5\): expected \(H, 3, 4\)"
    refuses(ValueError, message, plots.plot_attention, [np.zeros((2, 3, 5))], "abcd", "abc")


RECORDS: list[dict] = []
for step in range(1, 41):
    RECORDS.append({"step": step, "loss": float(step % 4), "lr": 0.1 / step})
    if step % 10 == 0:
        RECORDS.append({"step": step, "val_loss": 1 / step, "val_bleu": step / 2})


def test_a_training_is_drawn_as_it_was_logged(path):
    above, middle, below = plots.plot_training(RECORDS, path, "A title")
    assert is_png(path)
    assert above.get_title() == "A title"
    steps = np.arange(1, 41)
    validated = steps[9::10]

    def assert_points(line, x, y):
        assert_allclose(line.get_xdata(), x)
        assert_allclose(line.get_ydata(), y)

    training, validation = above.get_lines()
    assert_points(training, steps[3:], [1.5] * 37)  # the mean of 4 steps
    assert_points(validation, validated, 1 / validated)
    assert_points(*middle.get_lines(), validated, validated / 2)
    assert_points(*below.get_lines(), steps, 0.1 / steps)


def test_records_that_are_no_numbers_are_not_drawn(path):
    damaged = [
        {"step": 1, "loss": "high", "lr": 0.1},
        {"step": "x"},
        {"step": 2, "val_loss": None, "val_bleu": 1.0},
    ]
    axes = plots.plot_training([*damaged, *RECORDS], path)
    assert [len(line.get_xdata()) for ax in axes for line in ax.get_lines()] == [37, 4, 4, 40]


def seen(ax):
    """The number of points of each line that can be seen, or what the axes say instead."""
    numbers = []
    for line in ax.get_lines():
        n = len(line.get_xdata())
        assert n > 1 or line.get_marker() == "."
        numbers.append(n)
    return numbers or [text.get_text() for text in ax.texts]


NONE = ["no data"]


def test_a_training_that_has_hardly_begun_has_no_empty_panel(path):

    def panels(records):
        axes = plots.plot_training(records, path)
        assert is_png(path)
        return [seen(ax) for ax in axes]

    assert panels([]) == [NONE, NONE, NONE]
    assert panels(RECORDS[:1]) == [[1], NONE, [1]]
    assert panels(RECORDS[:5]) == [[5], NONE, [5]]
    assert panels(RECORDS[10:11]) == [[1], [1], NONE]


def test_no_panel_of_the_other_pictures_is_empty_either():
    assert [seen(ax) for ax in plots.plot_loss([])] == [NONE, NONE]
    assert [seen(ax) for ax in plots.plot_loss(history_of(1))] == [[1], [1]]
    assert [seen(ax) for ax in plots.plot_curves([{"at": [], "systems": {}}])] == [NONE]
    _, below = plots.plot_positional_encoding(length=1)
    assert seen(below) == [1, 1, 1, 1]
    for weights in ([], [np.zeros((1, 0, 2))]):
        message = "without a 0 for all layers"
        refuses(ValueError, message, plots.plot_attention, weights, ["a", "b"], [])


def test_a_plot_that_fails_leaves_no_figure():
    before = pyplot.get_fignums()

    def fails(line, draw, data):
        refuses(ValueError, line, draw, data)
        assert pyplot.get_fignums() == before

    info = history_of(1)[0]._replace(loss="x")
    with pytest.raises(ValueError, match="could not convert"):  # Python's own error
        plots.plot_loss([info])
    assert pyplot.get_fignums() == before
    fails(r"panels is \[\], expected one or more", plots.plot_curves, [])
    panel = {"at": [1], "systems": {"a": [[1, 2]]}}
    fails(r"\(1, 2\), expected \(repetitions, 1\)", plots.plot_curves, [panel])


def test_curves_are_medians_with_their_range(path):
    systems = {"one": [[1, 2], [3, 9], [5, 4]], "two": [[7, 8]]}
    panel = {"at": [4, 16], "systems": systems, "ylim": (0, 10)}
    named = panel | {"xscale": "log", "labels": ["a", "b"]}
    left, right = plots.plot_curves([panel, named], path)
    assert is_png(path)
    assert [list(line.get_ydata()) for line in left.get_lines()[::3]] == [[3, 4], [7, 8]]
    assert left.get_ylim() == (0, 10)
    assert texts_of(left.get_xticklabels()) == ["4", "16"]
    assert texts_of(right.get_xticklabels()) == ["a", "b"]


def test_a_single_map_has_one_title(path):
    weights = np.random.default_rng(0).dirichlet(np.ones(4), 3)
    [[ax]] = plots.plot_attention([weights[None]], "abcd", "xyz", path, "A title")
    [image] = ax.get_images()
    assert_array_equal(image.get_array(), weights)
    assert ax.get_title() == ""
    assert ax.figure.get_suptitle() == "A title"
    assert texts_of(ax.get_xticklabels()) == list("abcd")
    assert texts_of(ax.get_yticklabels()) == list("xyz")


def test_a_title_is_never_cut(path):
    title = "Cross-attention, mean of all layers and heads; ↑: a capital follows"
    [[ax]] = plots.plot_attention([np.eye(3)[None]], "abc", "abc", path, title)
    box = ax.figure._suptitle.get_window_extent()
    whole = ax.figure.bbox
    assert whole.x0 <= box.x0
    assert box.x1 <= whole.x1
    assert box.y1 <= whole.y1


def test_a_picture_that_cannot_be_written_is_named(path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    message = "No space left on device: '.*x.png'"
    refuses(OSError, message, plots.plot_positional_encoding, path)
