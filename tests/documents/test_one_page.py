"""The models on one page compute what those of npformer compute: logits, loss, every gradient.

``tests/outside`` compares npformer's with PyTorch, and ``tests/models`` compares their gradients
with the complex step.
"""

import re
import sys
from pathlib import Path

import numpy as np
import one_page_gpt
import one_page_transformer
import pytest

import npformer as nf
from npformer import reference, tree

PAGES = (one_page_transformer, one_page_gpt)
TRANSFORMERS = {
    "two layers": {"n_layers": 2},
    "three decoder layers": {"n_layers": (1, 3), "d_model": 12, "n_heads": 3, "d_ff": 5},
    "three encoder layers": {"n_layers": (3, 1), "n_heads": 1},
    "heads of width 1": {"n_layers": 1, "n_heads": 8},
    "no encoder layer": {"n_layers": (0, 1)},
    "an odd width": {"n_layers": 2, "d_model": 9, "n_heads": 3},
}
OF_TODAY = {"norm_type": "rms_norm", "activation": "swiglu", "positions": "rotary"}
OF_TODAY |= {"bias": False, "tie_embeddings": False, "scale_embeddings": False}
GPTS = {
    "two layers": {},
    "one layer, one head": {"n_layers": 1, "n_heads": 1},
    "three layers, three heads": {"n_layers": 3, "n_heads": 3, "d_model": 12, "d_ff": 5},
    "heads of width 2": {"n_heads": 4},
}


def transformer(**settings):
    """A model, parameters of which none is 0 or 1, and a batch with padding in the middle and at
    the end.
    """
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 16, "n_layers": 2} | settings
    model = nf.Transformer(13, 11, **sizes, norm="post", dropout=0.0, dtype="float64")
    rng = np.random.default_rng(0)
    params = moved(model, rng)
    src = rng.integers(3, 13, (4, 6))
    tgt = rng.integers(3, 11, (4, 9))
    tgt[:, 0] = 1
    for padded in (src[1, 4:], src[2, 1:2], tgt[0, 5:], tgt[3, 7:]):
        padded[:] = 0
    return model, {"encoder": {}} | params, src, tgt  # npformer leaves out what has no parameters


def gpt(**settings):
    """The same of a language model, and a batch in which an id occurs several times."""
    sizes = {"d_model": 8, "n_heads": 2, "n_layers": 2, "d_ff": 6} | settings
    model = nf.LanguageModel(11, **sizes, **OF_TODAY, dtype="float64")
    rng = np.random.default_rng(0)
    return model, moved(model, rng), rng.integers(0, 11, (3, 8))


def moved(model, rng):
    return tree.map_leaves(lambda x: x + 0.1 * rng.standard_normal(x.shape), model.init(1))


def assert_near(found, expected):
    """The arrays of two trees differ by 1e-12 of the largest entry at most."""
    found = dict(tree.leaves(found))
    expected = dict(tree.leaves(expected))
    assert found.keys() == expected.keys()
    for name, wanted in expected.items():
        assert np.shape(found[name]) == np.shape(wanted), name
        assert abs(found[name] - wanted).max() <= 1e-12 * abs(wanted).max(), name


def computed(model, params, *batch, **options):
    loss, grads, _ = model.loss_and_grad(params, *batch, **options, backend=reference)
    return {"loss": loss, "grads": grads}


@pytest.mark.parametrize("settings", TRANSFORMERS.values(), ids=TRANSFORMERS)
def test_a_transformer_is_that_of_npformer(settings):
    page = one_page_transformer
    model, params, src, tgt = transformer(**settings)
    tgt_in = tgt[:, :-1]
    is_target = tgt[:, 1:] != 0
    logits, _ = page.transformer(params, src, tgt_in, model.n_heads)
    expected = model.logits(params, src, tgt_in, backend=reference)
    assert_near({"logits": logits[is_target]}, {"logits": expected[is_target]})
    for smoothing in (0.0, 0.1):
        loss, grads = page.loss_and_grad(params, src, tgt, model.n_heads, smoothing)
        expected = computed(model, params, src, tgt, label_smoothing=smoothing)
        assert_near({"loss": loss, "grads": grads}, expected)


@pytest.mark.parametrize("settings", GPTS.values(), ids=GPTS)
def test_a_gpt_is_that_of_npformer(settings):
    model, params, ids = gpt(**settings)
    logits, _ = one_page_gpt.gpt(params, ids, model.n_heads)
    expected = model.logits(params, ids, backend=reference)
    assert_near({"logits": logits}, {"logits": expected})
    loss, grads = one_page_gpt.loss_and_grad(params, ids, model.n_heads)
    assert_near({"loss": loss, "grads": grads}, computed(model, params, ids))


def test_new_parameters_are_those_of_a_model_of_npformer():
    sizes = {"d_model": 8, "n_layers": 2, "d_ff": 6}
    like = nf.Transformer(11, 11, **sizes, n_heads=2, norm="post")
    params = one_page_transformer.init(np.random.default_rng(0), vocab=11, **sizes)
    tree.check_like(params, like.shapes(), dtypes=False)
    like, _, _ = gpt(**sizes)
    params = one_page_gpt.init(np.random.default_rng(0), vocab=11, **sizes)
    tree.check_like(params, like.shapes(), dtypes=False)
    loss, grads = one_page_gpt.loss_and_grad(params, np.array([[3, 1, 4, 1, 5]]), n_heads=2)
    computed = {"loss": loss, "params": params, "grads": grads}
    assert {x.dtype for _, x in tree.leaves(computed)} == {np.dtype("float32")}


def test_adam_is_that_of_npformer():
    model, params, src, tgt = transformer(n_layers=1)
    theirs = {name: x.flatten() for name, x in tree.leaves(params)}
    optimizer = nf.Adam(0.01, (0.9, 0.98), 1e-9)
    states = {name: optimizer.init(x) for name, x in theirs.items()}
    means = {}
    for step in (1, 2, 3):
        _, grads = one_page_transformer.loss_and_grad(params, src, tgt, model.n_heads)
        for name, g in tree.leaves(grads):
            optimizer.update(reference, theirs[name], g.ravel(), states[name], step)
        one_page_transformer.adam_step(params, grads, means, step, lr=0.01)
    assert_near({name: x.ravel() for name, x in tree.leaves(params)}, theirs)


def test_decodes_as_npformer_does():
    model, params, src, _ = transformer()
    found = one_page_transformer.greedy_decode(params, src, model.n_heads, max_len=7)
    options = {"bos_id": 1, "eos_id": 2, "max_len": 7, "backend": reference}
    np.testing.assert_array_equal(found, nf.greedy_decode(model, params, src, **options))


def test_writes_the_most_probable_characters_at_a_low_temperature():
    model, params, ids = gpt()
    rng = np.random.default_rng(0)
    said = one_page_gpt.write(params, ids[0], model.n_heads, 6, rng, temperature=1e-3)
    expected = nf.greedy_decode(model, params, ids[:1], eos_id=None, max_len=6, backend=reference)
    np.testing.assert_array_equal(said, np.append(ids[0], expected[0]))


def test_learns_to_copy(capsys):
    one_page_transformer.train(n_steps=60, warmup=20, every=30)
    first, last = re.findall(r"loss ([\d.]+)", capsys.readouterr().out)
    assert float(last) < float(first) < 2.5


def test_training_on_a_text_lowers_the_loss_of_text_that_is_new(capsys):
    text = "The cat sat on the mat, and the rat sat on the cat.\n" * 60
    recipe = {"n_steps": 40, "size": 4, "length": 16, "warmup": 10, "show": (40,)}
    _, characters = one_page_gpt.train(text, **recipe)
    _, ids = np.unique(list(text), return_inverse=True)
    assert "".join(characters[ids]) == text
    loss = float(re.search(r"new text ([\d.]+)", capsys.readouterr().out)[1])
    assert loss < 1 < np.log(len(characters))


def test_the_text_of_the_book_is_sentences():
    lines = one_page_gpt.sentences_of_the_book().splitlines()
    assert len(lines) > 1000
    sentence = re.compile(r"[A-Z][\w ,;:'\"()-]+[.?!]", re.ASCII)
    assert [line for line in lines if not sentence.fullmatch(line)] == []


CODES = [Path(page.__file__).read_text(encoding="utf-8") for page in PAGES]


def test_what_is_the_same_on_both_pages_is_the_same():
    of_transformer, of_gpt = CODES
    for name in ("softmax", "attention", "split_heads", "merge_heads", "adam_step"):
        [function] = re.findall(rf"^def {name}\(.*?\n\n\n", of_gpt, re.DOTALL | re.MULTILINE)
        assert function in of_transformer


@pytest.mark.parametrize("code", CODES, ids=["transformer", "gpt"])
def test_needs_numpy_alone(code):
    modules = re.findall(r"^\s*(?:import|from) (\w+)", code, re.MULTILINE)
    assert set(modules) - sys.stdlib_module_names == {"numpy"}
