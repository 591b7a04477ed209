"""What people report of other people's files: each is read as its library reads it, or named."""

import json
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("gguf")
import gguf  # noqa: E402
import tokenizers  # noqa: E402, which need them
from safetensors.numpy import load_file, save_file  # noqa: E402

from npformer import Encoder, LanguageModel, pretrained, tree  # noqa: E402
from npformer.layers import Llama3Scaling  # noqa: E402
from npformer.pretrained.chat import Chat, chat_text  # noqa: E402
from npformer.training import CheckpointError  # noqa: E402
from tests.tools.forge_pretrained import MODELS as FORGED, params_of, small_tokenizer  # noqa: E402

SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 16}
SIZES |= {"max_len": 64, "scale_embeddings": False}
LLAMA = LanguageModel(12, **SIZES, norm_type="rms_norm", activation="swiglu", bias=False)
BERT = Encoder(
    12,
    **SIZES,
    positions="learned",
    norm="post",
    n_types=2,
    embedding_norm=True,
    activation="gelu_erf",
    pad_id=0,
    task=None,
    pooling="mean",
    pooler=False,
)
WORDS = ["<unk>", "<pad>", "<s>", "</s>", "<eom>", *"abcdefg"]
ROLES = {"bos_token": "<s>", "eos_token": "</s>"}


def noisy(model):
    """Parameters of which none is 0 or 1."""
    rng = np.random.default_rng(0)
    return tree.map_leaves(
        lambda x: x + rng.standard_normal(x.shape).astype(x.dtype), model.init(0)
    )


def saved(folder, model):
    """A folder with a model, without a tokenizer; and the parameters."""
    params = noisy(model)
    pretrained.save(folder / "model", model, params)
    return folder / "model", params


def written(path, values):
    """Write a JSON file, or add to one."""
    about = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(about | values))


def with_tokenizer(folder, settings, special=WORDS[1:5], form=None, normalizer=None):
    """Write a tokenizer of a few words to a folder."""
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, "<unk>")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(special))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if form is not None:
        around = [(word, WORDS.index(word)) for word in form.split() if word != "$A"]
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single=form, special_tokens=around
        )
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    written(folder / "tokenizer_config.json", settings)
    return folder


def refused(path, **options):
    with pytest.raises(CheckpointError) as caught:
        pretrained.load(path, **options)
    return str(caught.value)


# -- which file is read


def test_a_whole_file_is_read_before_an_index(tmp_path):
    path, params = saved(tmp_path, LLAMA)
    written(
        path / "model.safetensors.index.json",
        {"weight_map": {"a": "model-00001-of-00002.safetensors"}},
    )
    tree.map_leaves(np.testing.assert_array_equal, pretrained.load(path)[1], params)


@pytest.mark.parametrize(
    "file", ["pytorch_model.bin", "tf_model.h5", "model.pt", "model.safetensors"]
)
@pytest.mark.parametrize("as_folder", [True, False])
def test_a_family_that_is_not_known_is_named_first(tmp_path, file, as_folder):
    written(tmp_path / "config.json", {"model_type": "albert"})
    (tmp_path / file).write_bytes(b"PK")
    assert "config.json has model_type='albert', supported are gpt2" in refused(
        tmp_path if as_folder else tmp_path / file
    )


def test_weights_in_other_files_are_named_with_what_converts_them(tmp_path):
    path, _ = saved(tmp_path, LLAMA)
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    assert "the weights in pytorch_model.bin are not read: in transformers" in refused(path)
    assert ".bin files are not read, as they may hold programs: in transformers" in refused(
        path / "pytorch_model.bin"
    )


def test_a_file_of_a_folder_is_not_the_folder(tmp_path):
    path, _ = saved(tmp_path, LLAMA)
    assert f"model.safetensors is a part of a model: give its folder, {path}" in refused(
        path / "model.safetensors"
    )


def test_nothing_is_downloaded():
    with pytest.raises(
        FileNotFoundError, match="there is no gpt2: nothing is downloaded, .*git clone https"
    ):
        pretrained.load("gpt2")


def test_a_file_that_is_missing_is_answered_with_the_gguf_files_of_its_folder(tmp_path):
    (tmp_path / "b.gguf").touch()
    (tmp_path / "a.gguf").touch()
    for name in ("c.gguf", "pytorch_model.bin"):
        with pytest.raises(
            FileNotFoundError, match=rf"there is no .*{name}: .* has a\.gguf, b\.gguf$"
        ):
            pretrained.load(tmp_path / name)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty has no \.gguf file$"):
        pretrained.load(tmp_path / "empty" / "c.gguf")


def test_without_tokenizers_the_error_says_what_to_install(tmp_path, monkeypatch):
    path = with_tokenizer(saved(tmp_path, LLAMA)[0], {})
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        ImportError, match=r"^tokenizers of models that exist need .*pip install .*pretrained\]'"
    ):
        pretrained.load(path)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.delitem(sys.modules, "safetensors.numpy")
    with pytest.raises(ImportError, match=r"^models that exist need .*pip install .*pretrained\]'"):
        pretrained.load(path)


def test_adapters_are_named_also_beside_a_model(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    assert (
        "adapter_config.json: it holds adapters, which are not read; merge_and_unload()"
        in refused(tmp_path)
    )
    path, _ = saved(tmp_path, LLAMA)
    (path / "adapter_config.json").write_text("{}")
    assert (
        "adapter_config.json: it holds adapters, which are not read; merge_and_unload()"
        in refused(path)
    )


@pytest.mark.parametrize(
    ("about", "how"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "awq"}, "awq"),
        ({"load_in_4bit": True}, "bitsandbytes"),
    ],
)
def test_weights_of_few_bits_are_named(tmp_path, about, how):
    path, _ = saved(tmp_path, LLAMA)
    written(path / "config.json", {"quantization_config": about})
    assert (
        f"its weights are quantised: quantization_config is of {how}, supported are floats"
        in refused(path)
    )


@pytest.mark.parametrize(
    ("name", "how"),
    [("qweight", "GPTQ or AWQ"), ("weight_scale", "FP8"), ("weight_scale_inv", "FP8")],
)
def test_weights_of_few_bits_are_known_by_their_names(tmp_path, name, how):
    path, _ = saved(tmp_path, LLAMA)
    save_file(
        {f"model.layers.0.self_attn.q_proj.{name}": np.zeros((1, 8), "i4")},
        path / "model.safetensors",
    )
    assert f"quantization_config is of {how}" in refused(path)


# -- keys of config.json


def test_a_length_may_be_given_where_the_file_says_none(tmp_path):
    path, _ = saved(tmp_path, LLAMA)
    config = json.loads((path / "config.json").read_text())
    del config["max_position_embeddings"]
    (path / "config.json").write_text(json.dumps(config))
    assert pretrained.load(path, max_len=64)[0].max_len == 64
    assert "config.json has no max_position_embeddings" in refused(path)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"architectures": ["LlamaForSequenceClassification"]},
         "supported is ['LlamaForCausalLM'] or ['LlamaModel']"),
        ({"partial_rotary_factor": 0.5},
         "config.json has partial_rotary_factor=0.5, supported is 1.0"),
        ({"is_decoder": True}, "config.json has is_decoder=True, supported is False"),
        ({"attention_bias": True}, "config.json has attention_bias=True, supported is False"),
        ({"rope_scaling": {"type": "dynamic"}},
         "the rotation in config.json has rope_type='dynamic', supported"),
        ({"pruned_heads": {"0": [1]}}, "config.json has pruned_heads={'0': [1]}, supported is {}"),
    ],
)  # fmt: skip
def test_a_key_that_would_make_another_model_is_refused(tmp_path, values, reason):
    path, _ = saved(tmp_path, LLAMA)
    written(path / "config.json", values)
    assert reason in refused(path)


@pytest.mark.parametrize(
    "values", [{"logit_scale": 0.5}, {"no_repeat_ngram_size": 3}, {"embedding_multiplier": 12}]
)
def test_a_key_that_is_not_read_is_named(tmp_path, values):
    path, _ = saved(tmp_path, LLAMA)
    written(path / "config.json", values)
    [(key, value)] = values.items()
    with pytest.warns(
        UserWarning, match=f"config.json has keys that npformer does not read: {key}={value}"
    ):
        pretrained.load(path)


def test_the_older_name_of_the_rotation_is_read_first(tmp_path):
    path, _ = saved(tmp_path, LLAMA)
    # beside rope_parameters
    written(path / "config.json", {"rope_scaling": {"type": "linear", "factor": 4.0}})
    assert pretrained.load(path)[0].rotary.scaling == 4.0


def test_googles_names_of_a_bert_are_read(tmp_path):
    model = replace(BERT, task="words", tie_embeddings=True)
    path, params = saved(tmp_path, model)
    theirs = {}
    for name, x in load_file(path / "model.safetensors").items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        )
        if "decoder" not in name:
            theirs[name] = x
    theirs["bert.pooler.dense.weight"] = np.zeros((8, 8), "f4")
    theirs["bert.pooler.dense.bias"] = np.zeros(8, "f4")
    save_file(theirs, path / "model.safetensors")
    tree.map_leaves(np.testing.assert_array_equal, pretrained.load(path)[1], params)


@pytest.mark.parametrize(
    "wrapped", ["_orig_mod.{}", "module.{}", "module._orig_mod.{}", "_orig_mod.module.{}", None]
)
def test_names_of_modules_that_were_wrapped_are_read(tmp_path, wrapped):
    path, params = saved(tmp_path, LLAMA)
    tensors = load_file(path / "model.safetensors")
    if wrapped is None:  # each layer is compiled
        renamed = {
            name.replace("layers.0.", "layers.0._orig_mod."): x for name, x in tensors.items()
        }
    else:
        renamed = {wrapped.format(name): x for name, x in tensors.items()}
    save_file(renamed, path / "model.safetensors")
    tree.map_leaves(np.testing.assert_array_equal, pretrained.load(path)[1], params)
    save_file(tensors | renamed, path / "model.safetensors")
    assert "tensors differ in _orig_mod. or module. alone, expected one of each name" in refused(
        path
    )


def test_a_table_of_another_size_can_be_read_whole(tmp_path):
    path, params = saved(tmp_path, LLAMA)
    written(path / "config.json", {"vocab_size": 9})
    reason = refused(path)
    assert "embed_tokens.weight (12, 8) and not (9, 8)" in reason
    assert "; load(…, vocab=12) reads all rows of its embedding" in reason
    model, again, _ = pretrained.load(path, vocab=12)
    assert model.vocab == 12
    tree.map_leaves(np.testing.assert_array_equal, again, params)


def test_where_the_embedding_is_the_output_and_nothing_says_it(tmp_path):
    path, params = saved(tmp_path, replace(LLAMA, tie_embeddings=True))
    config = json.loads((path / "config.json").read_text())
    del config["tie_word_embeddings"]
    (path / "config.json").write_text(json.dumps(config))
    reason = refused(path)
    assert (
        "missing: lm_head.weight; load(…, tie_embeddings=True) takes the embedding for its output"
        in reason
    )
    tree.map_leaves(
        np.testing.assert_array_equal, pretrained.load(path, tie_embeddings=True)[1], params
    )


@pytest.mark.parametrize(
    ("model", "embedding", "output"),
    [
        (LLAMA, "model.embed_tokens.weight", "lm_head.weight"),
        (
            replace(BERT, task="words"),
            "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.weight",
        ),
    ],
    ids=["Llama", "BERT"],
)
def test_one_table_may_have_the_name_of_the_output(tmp_path, model, embedding, output):
    path, params = saved(tmp_path, replace(model, tie_embeddings=True))
    tensors = load_file(path / "model.safetensors")
    table = tensors.pop(embedding)
    save_file(tensors | {output: table}, path / "model.safetensors")
    tree.map_leaves(np.testing.assert_array_equal, pretrained.load(path)[1], params)
    save_file(tensors | {output: table, embedding: table}, path / "model.safetensors")
    tree.map_leaves(np.testing.assert_array_equal, pretrained.load(path)[1], params)
    save_file(tensors | {output: table + 1, embedding: table}, path / "model.safetensors")
    assert "and their numbers differ: write tie_word_embeddings=false in config.json" in refused(
        path
    )
    written(path / "config.json", {"tie_word_embeddings": False})
    again = pretrained.load(path)[1]
    np.testing.assert_array_equal(again["embedding"], table)
    np.testing.assert_array_equal(again["output"]["weight"], table.T + 1)


def test_one_table_of_a_marian_may_have_the_name_of_the_output(tmp_path):
    path = tmp_path / "model"
    params = params_of("marian")
    pretrained.save(path, FORGED["marian"], params)
    tensors = load_file(path / "model.safetensors")
    table = tensors.pop("model.shared.weight")
    save_file(tensors | {"lm_head.weight": table}, path / "model.safetensors")
    tree.map_leaves(np.testing.assert_array_equal, pretrained.load(path)[1], params)
    save_file(
        tensors | {"model.shared.weight": table, "lm_head.weight": table + 1},
        path / "model.safetensors",
    )
    assert "lm_head.weight is shared.weight, and their numbers differ" in refused(path)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("tie_word_embeddings", "missing: lm_head.weight"),
        (
            "share_encoder_decoder_embeddings",
            "missing: decoder.embed_tokens.weight, encoder.embed_tokens.weight",
        ),
    ],
)
def test_a_marian_with_one_table_has_no_others(tmp_path, key, reason):
    path = tmp_path / "model"
    pretrained.save(path, FORGED["marian"], params_of("marian"))
    written(path / "config.json", {key: False})
    assert reason in refused(path)


def test_a_classifying_roberta_needs_no_pooler_of_its_first_training(tmp_path):
    model = replace(FORGED["roberta"], task="classes", n_outputs=2, pooling="first", pooler=True)
    path, params = saved(tmp_path, model)
    pooler = {
        "roberta.pooler.dense.weight": np.ones((8, 8), "f4"),
        "roberta.pooler.dense.bias": np.ones(8, "f4"),
    }
    save_file(load_file(path / "model.safetensors") | pooler, path / "model.safetensors")
    tree.map_leaves(np.testing.assert_array_equal, pretrained.load(path)[1], params)


def test_a_roberta_has_one_activation(tmp_path):
    path, _ = saved(tmp_path, FORGED["roberta"])
    written(path / "config.json", {"hidden_act": "relu"})
    assert "config.json has hidden_act='relu', supported is 'gelu'" in refused(path)
    model = replace(FORGED["roberta"], activation="relu")
    with pytest.raises(
        ValueError, match="it is no roberta, as activation='relu', expected 'gelu_erf'"
    ):
        pretrained.save(tmp_path / "other", model, model.init(0))


@pytest.mark.parametrize("pad_id", [None, "one", -1, 10**6])
def test_the_positions_of_a_roberta_begin_after_an_id(tmp_path, pad_id):
    path, _ = saved(tmp_path, FORGED["roberta"])
    written(path / "config.json", {"pad_token_id": pad_id})
    assert f"pad_token_id={pad_id!r}" in refused(path)
    assert f"pad_token_id={pad_id!r}" in refused(path, pad_id=1)


@pytest.mark.parametrize("change", [502, -1, "x", 0.0, None])
def test_the_length_of_a_roberta_is_that_of_its_table(tmp_path, change):
    path, _ = saved(tmp_path, FORGED["roberta"])
    max_len = FORGED["roberta"].max_len
    n_rows = max_len + FORGED["roberta"].pad_id + 1
    value = n_rows + change if isinstance(change, (int, float)) else change
    written(path / "config.json", {"max_position_embeddings": value})
    expected = f"{n_rows}, the number of rows of embeddings.position_embeddings.weight"
    if not isinstance(value, int):
        expected = "an int"
    reason = refused(path)
    assert f"max_position_embeddings={value!r}" in reason and f"expected {expected}" in reason
    assert pretrained.load(path, max_len=max_len)[0].max_len == max_len


def test_the_forced_end_of_generation_config_json(tmp_path):
    """Transformers reads it there, and in config.json only if there is no such file."""
    path = tmp_path / "model"
    pretrained.save(path, FORGED["marian"], params_of("marian"))
    assert pretrained.load(path)[0].forced_eos_id == 2
    written(path / "generation_config.json", {"max_length": 9})
    assert pretrained.load(path)[0].forced_eos_id is None
    written(path / "generation_config.json", {"forced_eos_token_id": 5})
    assert pretrained.load(path)[0].forced_eos_id == 5


@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_another_forced_end_is_saved_in_generation_config_json(tmp_path, has_tokenizer):
    path = tmp_path / "model"
    pretrained.save(path, FORGED["marian"], params_of("marian"), small_tokenizer())
    written(path / "generation_config.json", {"max_length": 9, "forced_eos_token_id": 2})
    model, params, tokenizer = pretrained.load(path)
    for forced in (None, 7):
        changed = replace(model, forced_eos_id=forced)
        pretrained.save(path, changed, params, tokenizer if has_tokenizer else None)
        about = json.loads((path / "generation_config.json").read_text())
        assert about == {"max_length": 9, "forced_eos_token_id": forced}
        assert pretrained.load(path)[0] == changed


def test_the_forced_end_of_a_language_model_is_named(tmp_path):
    path, _ = saved(tmp_path, LLAMA)
    written(path / "generation_config.json", {"forced_eos_token_id": 5})
    with pytest.warns(
        UserWarning, match="generation_config.json has keys .* read: forced_eos_token_id=5"
    ):
        pretrained.load(path)


# -- padding


@pytest.mark.parametrize(
    "tokenizer", [None, {"pad_token": "<unk>"}, {"pad_token": "<pad>"}, {"pad_token": "</s>"}]
)
def test_padding_that_texts_have_is_read_like_any_token(tmp_path, tokenizer):
    path, params = saved(tmp_path, LLAMA)
    pad_id = 0 if tokenizer is None else WORDS.index(tokenizer["pad_token"])
    written(path / "config.json", {"pad_token_id": pad_id})
    if tokenizer is not None:
        with_tokenizer(path, ROLES | tokenizer)
    is_named = pad_id == 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, params, _ = pretrained.load(path)
    messages = [str(each.message) for each in caught]
    assert is_named == any(
        "pad_token_id=0 is not hidden as padding" in message for message in messages
    )
    assert model.pad_id == (1 if pad_id == 1 else None)
    ids = np.array([[5, 7, pad_id, 9]])
    if model.pad_id is None:
        np.testing.assert_allclose(model.logits(params, ids), LLAMA.logits(params, ids), rtol=1e-6)
    assert pretrained.load(path, pad_id=pad_id)[0].pad_id == pad_id


def test_padding_of_a_model_of_npformer_stays(tmp_path):
    path, _ = saved(tmp_path, replace(LLAMA, pad_id=0))
    assert pretrained.load(path)[0].pad_id == 0


def test_the_padding_of_the_tokenizer_is_that_of_an_encoder(tmp_path):
    path, _ = saved(tmp_path, BERT)
    with_tokenizer(path, {"pad_token": "<pad>"})
    with pytest.warns(
        UserWarning, match="pad_token_id=0, but the tokenizer pads with 1, which is taken"
    ):
        assert pretrained.load(path)[0].pad_id == 1


# -- tokens


def gpt2_with(folder, pieces, vocab=None):
    """A folder as older programs wrote it: vocab.json and merges.txt."""
    model = LanguageModel(vocab or len(pieces), **SIZES, positions="learned")
    path, _ = saved(folder, model)
    written(path / "vocab.json", {piece: i for i, piece in enumerate(pieces)})
    (path / "merges.txt").write_text("#version: 0.2\n")
    return path


def test_tokens_that_were_added_later_are_tokens(tmp_path):
    path = gpt2_with(tmp_path, [*"<|u>ab", "<|endoftext|>"], vocab=9)
    written(path / "added_tokens.json", {"<|u|>": 7, "</s>": 8})
    written(path / "tokenizer_config.json", {"eos_token": "</s>"})
    tokenizer = pretrained.load(path)[2]
    assert tokenizer.encode("<|u|>ab") == [7, 4, 5]
    assert tokenizer.eos_id == 8
    written(path / "added_tokens.json", {"<|u|>": 8, "</s>": 7})
    assert pretrained.load(path)[2].encode("</s><|u|>") == [7, 8]
    written(path / "added_tokens.json", {"<|u|>": 11})
    assert (
        "the added token '<|u|>' has the id 11, expected 8, the next of the vocabulary"
        in refused(path)
    )


def test_special_tokens_are_those_that_the_settings_name(tmp_path):
    path = gpt2_with(tmp_path, [*"abcd", "<s>", "</s>"])
    written(path / "special_tokens_map.json", ROLES)
    tokenizer = pretrained.load(path)[2]
    assert (tokenizer.bos_id, tokenizer.eos_id) == (4, 5)
    assert tokenizer.decode(tokenizer.encode("ab</s>")) == "ab"


def test_a_token_that_only_the_settings_name_is_the_next_one(tmp_path):
    path = with_tokenizer(
        saved(tmp_path, replace(LLAMA, vocab=13))[0], ROLES | {"pad_token": "[PAD]"}
    )
    assert pretrained.load(path)[2].pad_id == 12


@pytest.mark.parametrize(
    "mask", [None, "<mask>", {"content": "<mask>", "lstrip": True, "normalized": False}]
)
def test_a_roberta_of_older_files_has_tokens_around_a_text(tmp_path, mask):
    path, _ = saved(tmp_path, replace(FORGED["roberta"], vocab=9))
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "a", "b", "Ġ", "<mask>"]
    written(path / "vocab.json", {piece: i for i, piece in enumerate(pieces)})
    (path / "merges.txt").write_text("#version: 0.2\n")
    written(path / "special_tokens_map.json", {} if mask is None else {"mask_token": mask})
    tokenizer = pretrained.load(path)[2]
    assert tokenizer.encode("a <mask>b") == [0, 4, 7, 5, 2]  # the mask takes the space before it
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.decode([0, 4, 2])) == (1, 2, "a")


@pytest.mark.parametrize(
    "settings",
    [
        {"bos_token": {"content": "<x>", "lstrip": True, "normalized": False}},
        {"extra_special_tokens": {"of_images": {"content": "<x>", "lstrip": True}}},
    ],
)
def test_a_special_token_takes_the_space_that_its_form_says(tmp_path, settings):
    path = gpt2_with(tmp_path, [*"abĠ"], vocab=4)
    written(path / "tokenizer_config.json", settings)
    assert pretrained.load(path)[2].encode("a <x> b") == [0, 3, 2, 1]


@pytest.mark.parametrize("has_form_last", [True, False])
def test_of_two_forms_of_a_special_token_the_last_one_is_read(tmp_path, has_form_last):
    """As transformers does, whatever the first one says."""
    path = gpt2_with(tmp_path, [*"abĠ"], vocab=4)
    tokens = ["<x>", {"content": "<x>", "lstrip": True}]
    if not has_form_last:
        tokens.reverse()
    written(
        path / "tokenizer_config.json",
        {"mask_token": tokens[0], "additional_special_tokens": tokens[1:]},
    )
    assert pretrained.load(path)[2].encode("a <x>b") == (
        [0, 3, 1] if has_form_last else [0, 2, 3, 1]
    )


def with_word_pieces(folder):
    """A folder with BERT's vocab.txt."""
    path, _ = saved(folder, BERT)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "bc", "##d", "A", "é", "e", "."]
    (path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return path


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"extra_special_tokens": "ab"},
            "extra_special_tokens='ab' is a str, expected a list or a dict of tokens",
        ),
        ({"extra_special_tokens": ""}, "extra_special_tokens='' is a str, expected a list"),
        ({"additional_special_tokens": 5}, "additional_special_tokens=5 is a int, expected a list"),
        ({"cls_token": None}, "cls_token=None, expected a text or a dict with its content"),
        (
            {"sep_token": {"content": 5}},
            "sep_token={'content': 5}, expected a text or a dict with its content",
        ),
        ({"sep_token": "<s>"}, "sep_token='<s>', expected a token of the vocabulary"),
        ({"unk_token": None}, "unk_token=None, expected a text or a dict with its content"),
        (
            {"mask_token": {"content": "[MASK]", "lstrip": "yes"}},
            "the token '[MASK]': lstrip='yes' is a str, expected True or False",
        ),
    ],
)
def test_a_special_token_of_another_form_is_named(tmp_path, settings, reason):
    path = with_word_pieces(tmp_path)
    written(path / "tokenizer_config.json", settings)
    assert reason in refused(path)


def test_no_special_tokens_may_be_named(tmp_path):
    path = with_word_pieces(tmp_path)
    written(
        path / "tokenizer_config.json",
        {"extra_special_tokens": None, "additional_special_tokens": []},
    )
    assert pretrained.load(path)[2].encode("a") == [2, 5, 3]


@pytest.mark.parametrize("lowercase", [True, False])
def test_word_pieces_are_read_from_their_list(tmp_path, lowercase):
    path = with_word_pieces(tmp_path)
    written(
        path / "tokenizer_config.json",
        {"do_lower_case": lowercase, "cls_token": {"content": "[CLS]"}},
    )
    tokenizer = pretrained.load(path)[2]
    a, e = (5, 10) if lowercase else (8, 9)
    assert tokenizer.encode("A bcd é.") == [2, a, 6, 7, e, 11, 3]
    assert tokenizer.decode(tokenizer.encode("bcd [MASK]")) == "bcd"


def test_a_tokenizer_that_is_not_read_is_named(tmp_path):
    path, _ = saved(tmp_path, LLAMA)
    (path / "tokenizer.model").write_bytes(b"x")
    with pytest.warns(UserWarning, match=r"tokenizer\.model is not read, so there is no tokenizer"):
        assert pretrained.load(path)[2] is None


@pytest.mark.parametrize(
    ("settings", "form", "key"),
    [
        ({"add_bos_token": True}, None, "add_bos_token=True"),
        ({"add_bos_token": True, "add_eos_token": False}, "<s> $A </s>", "add_eos_token=False"),
        ({"do_lower_case": False}, None, "do_lower_case=False"),
        ({"split_special_tokens": True}, None, "split_special_tokens=True"),
    ],
)
def test_two_files_that_contradict_each_other_are_named(tmp_path, settings, form, key):
    lower = tokenizers.normalizers.BertNormalizer(lowercase=True)
    path = with_tokenizer(saved(tmp_path, LLAMA)[0], ROLES | settings, form=form, normalizer=lower)
    with pytest.warns(
        UserWarning, match=f"tokenizer_config.json has keys that npformer does not read: {key}"
    ):
        pretrained.load(path)


@pytest.mark.parametrize(
    ("scheme", "adds_space"), [("never", True), ("always", False), ("first", False)]
)
def test_two_files_that_differ_in_the_first_space_are_named(tmp_path, scheme, adds_space):
    path = with_tokenizer(saved(tmp_path, LLAMA)[0], ROLES | {"add_prefix_space": adds_space})
    about = json.loads((path / "tokenizer.json").read_text())
    about["pre_tokenizer"] = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": scheme,
        "split": False,
    }
    written(path / "tokenizer.json", about)
    with pytest.warns(
        UserWarning, match=f"keys that npformer does not read: add_prefix_space={adds_space}"
    ):
        pretrained.load(path)


def test_a_tokenizer_that_is_larger_than_the_model_is_named(tmp_path):
    path = with_tokenizer(saved(tmp_path, replace(LLAMA, vocab=11))[0], ROLES)
    with pytest.warns(
        UserWarning,
        match="the tokenizer has 12 tokens, and the model vectors of 11: texts with one of",
    ):
        model, params, tokenizer = pretrained.load(path)
    assert model.logits(params, np.array([tokenizer.encode("a b")])).shape == (1, 2, 11)


# -- chats


@pytest.mark.parametrize("listed", [True, False])
def test_a_template_without_text_is_named(tmp_path, listed):
    templates = (
        [{"name": "default"}, {"name": "rag", "template": "R"}]
        if listed
        else {"default": None, "rag": "R"}
    )
    path = with_tokenizer(saved(tmp_path, LLAMA)[0], ROLES | {"chat_template": templates})
    with pytest.warns(
        UserWarning, match="the template of chats 'default' in tokenizer_config.json is left out"
    ):
        tokenizer = pretrained.load(path)[2]
    assert (tokenizer.chat_template, tokenizer.chat_templates) == (None, {"rag": "R"})


def test_a_template_that_makes_no_text_is_named(tmp_path):
    path = with_tokenizer(saved(tmp_path, LLAMA)[0], ROLES | {"chat_template": ""})
    with pytest.raises(
        ValueError, match="the template of the chat fails: it makes no text of these turns"
    ):
        chat_text(pretrained.load(path)[2], HELLO)


def test_all_tokens_that_end_an_answer_end_it(tmp_path):
    path = with_tokenizer(
        saved(tmp_path, LLAMA)[0], ROLES | {"chat_template": "{{messages[0]['content']}}"}
    )
    assert pretrained.load(path)[2].eos_ids == (3,)
    written(path / "config.json", {"eos_token_id": [3, 4]})
    loaded = pretrained.load(path)
    assert set(Chat(*loaded).ends) == {3, 4}
    written(path / "config.json", {"eos_token_id": 99})  # which the model cannot say
    written(path / "generation_config.json", {"eos_token_id": [5, 3]})
    model, params, tokenizer = pretrained.load(path)
    assert tokenizer.eos_ids == (3, 5)
    pretrained.save(tmp_path / "again", model, params, tokenizer)
    assert pretrained.load(tmp_path / "again")[2].eos_ids == (3, 5)


HELLO = [{"role": "user", "content": "a"}]


def test_the_template_of_a_chat_is_that_with_the_name_default(tmp_path):
    listed = [{"name": "default", "template": "{{bos_token}}Q: {{messages[0]['content']}} A:"}]
    listed += [{"name": "tool_use", "template": "T"}]
    path = with_tokenizer(saved(tmp_path, LLAMA)[0], ROLES | {"chat_template": listed})
    tokenizer = pretrained.load(path)[2]
    assert chat_text(tokenizer, HELLO) == "<s>Q: a A:"
    assert tokenizer.chat_templates["tool_use"] == "T"
    written(path / "tokenizer_config.json", {"chat_template": listed[1:]})
    tokenizer = pretrained.load(path)[2]
    with pytest.raises(
        ValueError, match="templates of chats with the names 'tool_use', and no 'default'"
    ):
        chat_text(tokenizer, HELLO)


def test_templates_in_files_are_read_before_those_of_the_settings(tmp_path):
    path = with_tokenizer(saved(tmp_path, LLAMA)[0], ROLES | {"chat_template": "old"})
    (path / "chat_template.jinja").write_text("new")
    (path / "additional_chat_templates").mkdir()
    (path / "additional_chat_templates" / "rag.jinja").write_text("R")
    model, params, tokenizer = pretrained.load(path)
    assert tokenizer.chat_template == "new"
    assert tokenizer.chat_templates == {"default": "new", "rag": "R"}
    pretrained.save(tmp_path / "again", model, params, tokenizer)
    assert pretrained.load(tmp_path / "again")[2].chat_templates == {"default": "new", "rag": "R"}


# -- GGUF


def gguf_file(
    folder,
    about=(),
    tokens=("<s>", "</s>"),
    kinds=(3, 3),
    pre="smollm",
    model="gpt2",
    family="llama",
    tensors=None,
):
    """A model in a GGUF file, with some more keys and tensors."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, "th", "the", *tokens]
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(str(path), family)
    sizes = {
        "context_length": 64,
        "embedding_length": 8,
        "block_count": 1,
        "feed_forward_length": 16,
    }
    sizes |= {"attention.head_count": 2, "attention.head_count_kv": 2, "rope.dimension_count": 4}
    for key, value in sizes.items():
        writer.add_uint32(f"{family}.{key}", value)
    writer.add_layer_norm_rms_eps(1e-6)
    if model is not None:
        writer.add_tokenizer_model(model)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(words)
    writer.add_token_types([1] * (len(words) - len(tokens)) + list(kinds))
    writer.add_token_merges(["t h", "th e"])
    writer.add_bos_token_id(words.index("<s>"))
    writer.add_eos_token_id(words.index("</s>"))
    for key, value in about:
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[
            type(value)
        ]
        add(key, value)
    rng = np.random.default_rng(0)
    shapes = {f"attn_{name}": (8, 8) for name in ("q", "k", "v", "output")}
    shapes |= {
        "attn_norm": (8,),
        "ffn_norm": (8,),
        "ffn_gate": (16, 8),
        "ffn_up": (16, 8),
        "ffn_down": (8, 16),
    }
    shapes = {f"blk.0.{name}": shape for name, shape in shapes.items()}
    for name, shape in (shapes | {"token_embd": (len(words), 8), "output_norm": (8,)}).items():
        writer.add_tensor(f"{name}.weight", rng.standard_normal(shape).astype("f4"))
    for name, x in (tensors or {}).items():
        writer.add_tensor(name, np.asarray(x, "f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, words


@pytest.mark.parametrize(
    ("about", "scaling"),
    [
        ([("llama.rope.scale_linear", 4.0)], 4.0),
        ([("llama.rope.scaling.type", "linear"), ("llama.rope.scaling.factor", 2.0)], 2.0),
        ([("llama.rope.scaling.type", "none")], 1.0),
    ],
)
def test_the_scaling_of_a_gguf_file_is_read_by_both_of_its_names(tmp_path, about, scaling):
    assert pretrained.load(gguf_file(tmp_path, about)[0])[0].rotary.scaling == scaling


def test_the_rotation_of_llama3_in_a_gguf_file(tmp_path):
    """llama.cpp writes what each frequency is divided by."""
    wanted = Llama3Scaling(8.0, original_max_len=64)
    frequencies = 10000.0 ** (-np.arange(2) / 2)
    divisors = frequencies / wanted.frequencies(frequencies)
    about = [("llama.rope.scaling.original_context_length", 64)]
    path, _ = gguf_file(tmp_path, about, tensors={"rope_freqs.weight": divisors})
    assert pretrained.load(path)[0].rotary.llama3 == wanted
    for others in ([3.0, 8.0], [0.5, 1.0]):
        path, _ = gguf_file(tmp_path, about, tensors={"rope_freqs.weight": others})
        assert f"rope_freqs.weight is not that of Llama3Scaling(factor={others[1]}" in refused(path)


@pytest.mark.parametrize("divisors", [[1.0, 1.0], [1.0, 8.0]])
def test_two_scalings_of_one_rotation_are_refused(tmp_path, divisors):
    about = [("llama.rope.scaling.type", "linear"), ("llama.rope.scaling.factor", 2.0)]
    path, _ = gguf_file(tmp_path, about, tensors={"rope_freqs.weight": divisors})
    if divisors == [1.0, 1.0]:
        assert pretrained.load(path)[0].rotary.scaling == 2.0
    else:
        assert (
            "it has rope_freqs.weight and rope.scaling.type='linear', supported is one of them"
            in refused(path)
        )


def test_qwens_in_gguf_files(tmp_path):
    """Their rows lie as in transformers; Qwen2 has biases, Qwen3 normalises heads."""
    rng = np.random.default_rng(1)
    biases = {f"blk.0.attn_{name}.bias": rng.standard_normal(8) for name in "qkv"}
    model, params, _ = pretrained.load(
        gguf_file(tmp_path, family="qwen2", pre="qwen2", tensors=biases)[0]
    )
    assert model.qkv_bias
    wanted = np.concatenate([biases[f"blk.0.attn_{name}.bias"] for name in "qkv"])
    np.testing.assert_allclose(params["layers"]["0"]["attention"]["qkv"]["bias"], wanted, rtol=1e-6)
    gains = {f"blk.0.attn_{name}_norm.weight": rng.standard_normal(4) for name in "qk"}
    # without it, a head has its part of the width
    for about in ([("qwen3.attention.key_length", 4)], []):
        path, _ = gguf_file(tmp_path, about, family="qwen3", pre="qwen2", tensors=gains)
        model, params, _ = pretrained.load(path)
        assert model.qk_norm
        found = params["layers"]["0"]["attention"]["k_norm"]["gain"]
        np.testing.assert_allclose(found, gains["blk.0.attn_k_norm.weight"], rtol=1e-6)


@pytest.mark.parametrize(
    ("pre", "words"),
    [("qwen2", ["it", "'s", " ", "1", "2", "3"]), ("llama-bpe", ["it", "'s", " ", "123"])],
)
def test_a_gguf_file_says_how_text_is_divided(tmp_path, pre, words):
    tokenizer = pretrained.load(gguf_file(tmp_path, pre=pre)[0])[2]
    divided = tokenizer.tokenizer.pre_tokenizer.pre_tokenize_str("it's 123")
    assert [word.replace("Ġ", " ") for word, _ in divided] == words


def test_tokens_that_a_user_defined_are_never_divided(tmp_path):
    path, words = gguf_file(tmp_path, tokens=("<s>", "</s>", "<think>"), kinds=(3, 3, 4))
    tokenizer = pretrained.load(path)[2]
    assert tokenizer.encode("<think>the") == [words.index("<think>"), words.index("the")]
    # it is text, other than </s>
    assert tokenizer.decode(tokenizer.encode("<think>the")) == "<think>the"


@pytest.mark.parametrize("pre", [None, "default"])
def test_a_gguf_file_that_does_not_say_how_text_is_divided_is_named(tmp_path, pre):
    with pytest.warns(
        UserWarning, match=r"does not say how text is divided into words \(tokenizer\.ggml\.pre\)"
    ):
        pretrained.load(gguf_file(tmp_path, pre=pre)[0])


def test_all_ends_and_templates_of_a_gguf_file_are_taken(tmp_path):
    about = [
        ("tokenizer.ggml.eot_token_id", 260),
        ("tokenizer.chat_template", "D"),
        ("tokenizer.chat_template.rag", "R"),
    ]
    path, words = gguf_file(tmp_path, about, tokens=("<s>", "</s>", "<eot>"), kinds=(3, 3, 3))
    model, params, tokenizer = pretrained.load(path)
    assert tokenizer.eos_ids == (words.index("</s>"), words.index("<eot>"))
    assert tokenizer.chat_template == "D"
    assert tokenizer.chat_templates["rag"] == "R"
    pretrained.save(tmp_path / "again", model, params, tokenizer)
    again = pretrained.load(tmp_path / "again")[2]
    assert again.eos_ids == tokenizer.eos_ids
    assert again.chat_templates == {"default": "D", "rag": "R"}


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        (
            [("split.count", 3)],
            "it is one of 3 parts of a split GGUF file; llama-gguf-split --merge",
        ),
        ([("llama.expert_count", 8)], "in llama.*, has expert_count=8, supported is 0"),
        (
            [("general.type", "adapter")],
            "the GGUF file has general.type='adapter', supported is 'model'",
        ),
        ([("llama.attention.key_length", 8)], "has rope.dimension_count=4, supported is 8"),
        ([("llama.rope.scaling.type", "yarn")], "yarn"),
    ],
)
def test_a_gguf_file_that_would_be_another_model_is_refused(tmp_path, about, reason):
    assert reason in refused(gguf_file(tmp_path, about)[0])


@pytest.mark.parametrize("model", [None, "no_vocab"])
def test_a_gguf_file_without_a_tokenizer_is_named(tmp_path, model):
    assert "it has no tokenizer; convert the model with its tokenizer" in refused(
        gguf_file(tmp_path, model=model)[0]
    )


def test_a_key_of_a_gguf_file_that_is_not_read_is_named(tmp_path):
    with pytest.warns(
        UserWarning, match=r"in llama\.\*, has keys that npformer does not read: swin_norm=1"
    ):
        pretrained.load(gguf_file(tmp_path, [("llama.swin_norm", 1)])[0])


# -- state dicts


def test_an_encoder_of_pytorch_is_no_transformer():
    rng = np.random.default_rng(0)
    shapes = {"emb.weight": (11, 8), "fc.weight": (11, 8), "fc.bias": (11,)}
    for i in range(2):
        layer = f"transformer_encoder.layers.{i}."
        shapes |= {
            f"{layer}self_attn.in_proj_weight": (24, 8),
            f"{layer}self_attn.in_proj_bias": (24,),
        }
        shapes |= {
            f"{layer}self_attn.out_proj.weight": (8, 8),
            f"{layer}self_attn.out_proj.bias": (8,),
        }
        shapes |= {f"{layer}linear1.weight": (16, 8), f"{layer}linear1.bias": (16,)}
        shapes |= {f"{layer}linear2.weight": (8, 16), f"{layer}linear2.bias": (8,)}
        shapes |= {f"{layer}norm{j}.{leaf}": (8,) for j in (1, 2) for leaf in ("weight", "bias")}
    state = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    names = {"embedding": "emb", "output": "fc"}
    with pytest.raises(
        CheckpointError,
        match=r"an nn.TransformerEncoder, transformer_encoder.layers, and no nn.Transf",
    ):
        pretrained.load(state, names=names, n_heads=2)
    model, params, _ = pretrained.load(state, names=names, n_heads=2, model=Encoder, pad_id=None)
    assert model.depths == (2,)
    assert model.outputs(params, np.array([[1, 2, 3]])).shape == (1, 3, 11)


@pytest.mark.parametrize("values", [{"num_attention_heads": 0}, {"num_hidden_layers": 10**12}])
def test_a_forged_number_of_heads_or_layers_is_refused(tmp_path, values):
    settings = {"vocab": 7, "d_model": 8, "n_heads": 2}
    settings |= {"n_layers": 1, "max_len": 8, "positions": "rotary"}
    settings |= {
        "norm_type": "rms_norm",
        "activation": "swiglu",
        "norm": "pre",
        "scale_embeddings": False,
    }
    path, _ = saved(tmp_path, LanguageModel(**settings, bias=False, qkv_bias=True))
    written(path / "config.json", values | {"layer_types": ["full_attention"]})
    assert refused(path)
