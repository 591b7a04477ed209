"""Folders of sentence-transformers: every module is computed, or refused by its name."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("tokenizers")
from refusals import refuses
from tiny import tiny_encoder

from npformer import pretrained, tree
from npformer.pretrained.sentences import SentenceTexts
from npformer.pretrained.vectors import class_probabilities, sentence_vectors
from npformer.reference import softmax
from npformer.training import CheckpointError
from tests.pretrained.folders import (
    MEAN,
    edit,
    model_of,
    save_new,
    sentence_folder,
)

D = 16
OF_PROMPTS, OF_LENGTH = "config_sentence_transformers", "sentence_bert_config"
RANDOM = np.random.default_rng(0)
WEIGHT, BIAS = (RANDOM.standard_normal(shape).astype("f4") for shape in ((5, D), (5,)))
DENSE = {
    "in_features": D,
    "out_features": 5,
    "bias": True,
    "activation_function": "torch.nn.modules.activation.Tanh",
}
CLASSES = {"task": "classes", "n_outputs": 2, "pooling": "first", "pooler": True}
TEXTS = ["ab", "a man rides", "x" * 30]


@pytest.fixture
def write(tmp_path):
    """A function that writes a folder with modules and files."""
    return partial(sentence_folder, tmp_path / "sentences")


TENSORS = {"linear.weight": WEIGHT, "linear.bias": BIAS}


@pytest.mark.filterwarnings("ignore:npformer alone reads how")
def test_all_modules_are_computed_and_saved(write, tmp_path):
    pooling = {"pooling_mode": ["lasttoken", "weightedmean"], "include_prompt": True}
    dense = DENSE | {"in_features": 2 * D}
    modules = {
        "1_Pooling": ("Pooling", pooling, None),
        "2_Dense": ("Dense", dense, TENSORS | {"linear.weight": np.tile(WEIGHT, 2)}),
        "3_Dropout": ("Dropout", {"dropout": 0.1}, None),
        "4_LayerNorm": ("LayerNorm", {"dimension": 5}, {"norm.weight": BIAS, "norm.bias": BIAS}),
        "5_Normalize": ("Normalize", {}, None),
    }
    loaded = pretrained.load(write(modules))
    model, params, tokenizer = loaded
    assert model.pooling == ("last", "weighted_mean")
    ids = np.array([tokenizer.encode("a man")])
    y = model.encode(params, ids)[0]
    weights = np.arange(1, len(y) + 1)
    x = np.concatenate([y[-1], weights @ y / weights.sum()])
    x = np.tanh(np.tile(WEIGHT, 2) @ x + BIAS)
    x = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * BIAS + BIAS
    expected = x / np.linalg.norm(x)
    assert_allclose(sentence_vectors(*loaded, ["a man"]), [expected], rtol=0, atol=2e-6)
    pretrained.save(tmp_path / "again", *loaded)
    again = pretrained.load(tmp_path / "again")
    assert again[0] == model
    assert_array_equal(sentence_vectors(*again, TEXTS), sentence_vectors(*loaded, TEXTS))


def test_prompts_lengths_and_lower_case(write, tmp_path):
    prompts = {"query": "q: ", "passage": "p: ", "other": "o: ", "document": ""}
    files = {
        OF_LENGTH: {"max_seq_length": 6, "do_lower_case": True},
        OF_PROMPTS: {"prompts": prompts, "default_prompt_name": "other"},
    }
    original = write(MEAN, **files)
    pretrained.save(tmp_path / "again", *pretrained.load(original))
    for folder in (original, tmp_path / "again"):
        loaded = pretrained.load(folder)
        plain = (*loaded[:2], tiny_encoder()[2])
        cases = {None: "o: ", "query": "q: ", "document": "p: ", "other": "o: "}
        for prompt, before in cases.items():
            found = sentence_vectors(*loaded, ["Ab"], prompt=prompt)
            assert_array_equal(found, sentence_vectors(*plain, [f"{before}ab"]))
        limit = "6 is max_seq_length in sentence_bert_config.json .* up to 40 there"
        message = f"1 of 1 sentences have more than 6 tokens: cut; {limit}"
        with pytest.warns(UserWarning, match=message):
            found = sentence_vectors(*loaded, ["abcdefgh"])
        assert_array_equal(found, sentence_vectors(*plain, ["o: abc"]))
        message = r"prompt='nobody', expected one of \['query', 'passage'"
        refuses(ValueError, message, sentence_vectors, *loaded, ["ab"], prompt="nobody")


@pytest.mark.parametrize("own_tokenizer", [True, False])
def test_a_classifier_saved_over_a_folder_leaves_its_vector_out(write, own_tokenizer):
    modules = MEAN | {"2_Dense": ("Dense", DENSE, TENSORS), "3_Normalize": ("Normalize", {}, None)}
    files = {
        OF_LENGTH: {"max_seq_length": 6, "do_lower_case": True},
        OF_PROMPTS: {"prompts": {"query": "q: "}},
    }
    folder = write(modules, **files)
    (folder / "2_Dense" / "notes.txt").write_text("Mine.")
    body, params, tokenizer = pretrained.load(folder)
    message = r"nothing after it: replace\(model, …, pooling='first', after_pooling=\(\)\)"
    refuses(ValueError, message, replace, body, **CLASSES)
    model = replace(body, **CLASSES, after_pooling=())
    params = tree.merged(params, model.init(1))[0]
    pretrained.save(folder, model, params, tokenizer if own_tokenizer else None)
    assert {str(path.relative_to(folder)) for path in folder.rglob("*")} == {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
        *("sentence_bert_config.json", "2_Dense", "2_Dense/notes.txt"),
    }
    again = pretrained.load(folder)
    assert again[0] == model
    text = "AB" * 8  # longer than 6 tokens, not than the 40 of the model
    [found] = class_probabilities(*again, [text])
    ids = np.array([tokenizer.encode(text)])
    assert_allclose(found, softmax(model.outputs(params, ids))[0], rtol=1e-6)
    assert ids.tolist() == [again[2].encode(text.lower())]


def test_a_link_to_the_folder_of_a_module_goes_and_what_it_leads_to_stays(write, tmp_path):
    folder = write(MEAN)
    (folder / "1_Pooling").rename(tmp_path / "mine")
    (folder / "1_Pooling").symlink_to(tmp_path / "mine")
    model = replace(tiny_encoder()[0], **CLASSES)
    save_new(folder, model)
    assert model_of(folder).task == "classes"
    assert not (folder / "1_Pooling").is_symlink() and (tmp_path / "mine" / "config.json").exists()


@pytest.mark.parametrize(
    "listed", [[1], [{"type": "sentence_transformers.models.Pooling", "path": ".."}]]
)
def test_a_list_that_no_one_reads_names_nothing_to_remove(write, listed):
    folder = write(MEAN)
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder.parent / "config.json").write_text("{}")
    model = replace(tiny_encoder()[0], **CLASSES)
    save_new(folder, model)
    assert not (folder / "modules.json").exists() and (folder.parent / "config.json").exists()


def test_a_folder_without_prompts_has_none():
    assert {SentenceTexts().prompt(name) for name in (None, "query", "document")} == {""}


def test_prompts_that_are_left_out_of_the_mean_are_refused(write):
    modules = {"1_Pooling": ("Pooling", {"include_prompt": False}, None)}
    folder = write(modules)

    def bad(reason, prompts):
        edit(folder / f"{OF_PROMPTS}.json", prompts=prompts)
        refuses(CheckpointError, reason, pretrained.load, folder)

    bad("1_Pooling: include_prompt=False, supported is True where there are", {"query": "q: "})
    bad(r"prompts=\['a'\], expected texts by their names", ["a"])
    bad("prompts={'q': 3}, expected texts by their names", {"q": 3})
