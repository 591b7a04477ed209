"""The GPT on one page computes what npformer.LanguageModel computes.

Logits, loss and every gradient. ``tests/outside`` compares npformer.LanguageModel with PyTorch's
Llama, and ``tests/models`` compares its gradients with the complex step.
"""

import re
import sys
from pathlib import Path

import numpy as np
import one_page_gpt as page
import pytest

import npformer as nf
from npformer import reference, tree

CODE, CODE_OF_TRANSFORMER = (
    (Path(__file__).parents[2] / "docs" / name).read_text(encoding="utf-8")
    for name in ("one_page_gpt.py", "one_page_transformer.py")
)
OF_TODAY = {
    "norm": "pre",
    "norm_type": "rms_norm",
    "activation": "swiglu",
    "positions": "rotary",
    "bias": False,
}
MODELS = {
    "two layers": {},
    "one layer, one head": {"n_layers": 1, "n_heads": 1},
    "three layers, three heads": {"n_layers": 3, "n_heads": 3, "d_model": 12, "d_ff": 5},
    "heads of width 2": {"n_heads": 4},
}


def drawn(settings):
    """A model of npformer, parameters of which none is 0 or 1,
    and a batch in which an id occurs several times.
    """
    sizes = {"vocab": 11, "d_model": 8, "n_heads": 2, "n_layers": 2, "d_ff": 6, **settings}
    untied = {"tie_embeddings": False, "scale_embeddings": False}
    model = nf.LanguageModel(**sizes, **OF_TODAY, **untied, dtype="float64")
    rng = np.random.default_rng(0)
    params = tree.map_leaves(lambda x: x + 0.1 * rng.standard_normal(x.shape), model.init(1))
    return model, params, rng.integers(0, 11, (3, 8))


def differences(found, expected, bound):
    """The arrays that differ by more than a bound, relative to the largest entry,
    and by how much.
    """
    found, expected = dict(tree.leaves(found)), dict(tree.leaves(expected))
    assert found.keys() == expected.keys()
    assert all(found[name].shape == expected[name].shape for name in found)
    far = {
        name: abs(found[name] - expected[name]).max() / abs(expected[name]).max() for name in found
    }
    return {name: difference for name, difference in far.items() if not difference <= bound}


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_logits_loss_and_gradients_are_those_of_npformer(settings):
    model, params, ids = drawn(settings)
    logits, _ = page.gpt(params, ids, model.n_heads)
    loss, grads = page.loss_and_grad(params, ids, model.n_heads)
    expected_loss, expected_grads, _ = model.loss_and_grad(params, ids, backend=reference)
    found = {"logits": logits, "loss": loss, "grads": grads}
    expected = {
        "logits": model.logits(params, ids, backend=reference),
        "loss": expected_loss,
        "grads": expected_grads,
    }
    assert differences(found, expected, 1e-12) == {}


def test_later_characters_do_not_change_earlier_logits():
    model, params, ids = drawn({})
    changed = ids.copy()
    changed[:, 5] = (ids[:, 5] + 1) % 11
    is_other = (page.gpt(params, ids, 2)[0] != page.gpt(params, changed, 2)[0]).any(axis=(0, 2))
    np.testing.assert_array_equal(is_other, [False] * 5 + [True] * 3)


def test_new_parameters_are_those_of_a_model_of_npformer():
    model, _, _ = drawn({})
    params = page.init(np.random.default_rng(0), vocab=11, d_model=8, n_layers=2, d_ff=6)
    tree.check_like(params, model.shapes(), dtypes=False)
    loss, grads = page.loss_and_grad(params, np.array([[3, 1, 4, 1, 5]]), n_heads=2)
    assert {x.dtype for _, x in tree.leaves({"loss": loss, "params": params, "grads": grads})} == {
        np.dtype("float32")
    }


def test_writes_the_most_probable_characters_at_a_low_temperature():
    model, params, ids = drawn({})
    said = page.write(params, ids[0], model.n_heads, 6, np.random.default_rng(0), temperature=1e-3)
    expected = nf.greedy_decode(model, params, ids[:1], eos_id=None, max_len=6, backend=reference)
    np.testing.assert_array_equal(said, np.append(ids[0], expected[0]))


def test_training_on_a_text_lowers_the_loss_of_text_that_is_new(capsys):
    text = "The cat sat on the mat, and the rat sat on the cat.\n" * 60
    params, characters = page.train(text, n_steps=40, size=4, length=16, warmup=10, show=(40,))
    assert "".join(characters[np.unique(list(text), return_inverse=True)[1]]) == text
    assert (
        float(re.search(r"new text ([\d.]+)", capsys.readouterr().out)[1])
        < 1
        < np.log(len(characters))
    )


def test_the_text_of_the_book_is_sentences():
    lines = page.sentences_of_the_book().splitlines()
    assert len(lines) > 1000
    assert [
        line for line in lines if not re.fullmatch(r"[A-Z][\w ,;:'\"()-]+[.?!]", line, re.ASCII)
    ] == []


def test_what_is_the_same_in_the_one_page_transformer_is_the_same():
    for name in ("softmax", "attention", "split_heads", "merge_heads", "adam_step"):
        [function] = re.findall(rf"^def {name}\(.*?\n\n\n", CODE, re.DOTALL | re.MULTILINE)
        assert function in CODE_OF_TRANSFORMER


def test_needs_numpy_alone():
    names = {
        name.split(".")[0] for name in re.findall(r"^\s*(?:import|from) (\S+)", CODE, re.MULTILINE)
    }
    assert names - sys.stdlib_module_names == {"numpy"}
