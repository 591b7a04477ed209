"""The Transformer on one page computes what npformer.Transformer computes.

Logits, loss and every gradient.
"""

import re
import sys
from pathlib import Path

import numpy as np
import one_page_transformer as page
import pytest

import npformer as nf
from npformer import reference, tree

FILE = Path(__file__).parents[2] / "docs" / "one_page_transformer.py"
MODELS = {
    "two layers": {"n_layers": 2},
    "three decoder layers": {"n_layers": (1, 3), "d_model": 12, "n_heads": 3, "d_ff": 5},
    "three encoder layers": {"n_layers": (3, 1), "n_heads": 1},
    "heads of width 1": {"n_layers": 1, "n_heads": 8},
    "no encoder layer": {"n_layers": (0, 1)},
    "an odd width": {"n_layers": 2, "d_model": 9, "n_heads": 3},
}


def drawn(settings):
    """A model, parameters of which none is 0 or 1,
    and a batch with padding in the middle and at the end.
    """
    sizes = {"src_vocab": 13, "tgt_vocab": 11, "d_model": 8, "n_heads": 2, "d_ff": 16, **settings}
    model = nf.Transformer(**sizes, norm="post", dropout=0.0, dtype="float64")
    rng = np.random.default_rng(0)
    params = tree.map_leaves(lambda x: x + 0.1 * rng.standard_normal(x.shape), model.init(1))
    src, tgt = rng.integers(3, 13, (4, 6)), rng.integers(3, 11, (4, 9))
    tgt[:, 0], src[1, 4:], src[2, 1], tgt[0, 5:], tgt[3, 7:] = 1, 0, 0, 0, 0
    return model, {"encoder": {}} | params, src, tgt  # npformer leaves out what has no parameters


def difference(found, expected):
    """The largest difference, relative to the largest entry."""
    assert found.shape == expected.shape
    return abs(found - expected).max() / abs(expected).max()


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_logits_loss_and_gradients_are_those_of_npformer(settings):
    model, params, src, tgt = drawn(settings)
    logits, _ = page.transformer(params, src, tgt[:, :-1], model.n_heads)
    is_target = tgt[:, 1:] != 0
    expected = model.logits(params, src, tgt[:, :-1], backend=reference)
    assert difference(logits[is_target], expected[is_target]) < 1e-12
    for label_smoothing in (0.0, 0.1):
        options = {"label_smoothing": label_smoothing, "backend": reference}
        expected_loss, expected_grads, _ = model.loss_and_grad(params, src, tgt, **options)
        loss, grads = page.loss_and_grad(params, src, tgt, model.n_heads, label_smoothing)
        assert abs(loss - expected_loss) < 1e-12 * expected_loss
        expected_leaves, leaves = dict(tree.leaves(expected_grads)), dict(tree.leaves(grads))
        assert leaves.keys() == expected_leaves.keys()
        assert {
            name: d
            for name in leaves
            if (d := difference(leaves[name], expected_leaves[name])) > 1e-12
        } == {}


def test_new_parameters_are_those_of_a_model_of_npformer():
    model = nf.Transformer(
        11, 11, d_model=8, n_heads=2, n_layers=2, d_ff=16, norm="post", dtype="float64"
    )
    params = page.init(np.random.default_rng(0), vocab=11, d_model=8, n_layers=2, d_ff=16)
    tree.check_like(params, model.shapes(), dtypes=False)


def test_adam_is_that_of_npformer():
    model, params, src, tgt = drawn({"n_layers": 1})
    theirs = {name: x.flatten() for name, x in tree.leaves(params)}
    optimizer = nf.Adam(0.01, (0.9, 0.98), 1e-9)
    states, means = {name: optimizer.init(x) for name, x in theirs.items()}, {}
    for step in (1, 2, 3):
        grads = page.loss_and_grad(params, src, tgt, model.n_heads)[1]
        for name, g in tree.leaves(grads):
            optimizer.update(reference, theirs[name], g.ravel(), states[name], step)
        page.adam_step(params, grads, means, step, lr=0.01)
    assert max(difference(x.ravel(), theirs[name]) for name, x in tree.leaves(params)) < 1e-12


def test_decodes_as_npformer_does():
    model, params, src, _ = drawn({"n_layers": 2})
    theirs = nf.greedy_decode(model, params, src, bos_id=1, eos_id=2, max_len=7, backend=reference)
    np.testing.assert_array_equal(page.greedy_decode(params, src, model.n_heads, max_len=7), theirs)


def test_learns_to_copy(capsys):
    page.train(n_steps=60, warmup=20, every=30)
    first, last = (float(loss) for loss in re.findall(r"loss ([\d.]+)", capsys.readouterr().out))
    assert last < first < 2.5


def test_needs_numpy_alone():
    names = {
        name.split(".")[0]
        for name in re.findall(r"^\s*(?:import|from) (\S+)", FILE.read_text(encoding="utf-8"), re.M)
    }
    assert names - sys.stdlib_module_names == {"numpy"}
