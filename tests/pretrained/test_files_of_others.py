"""What people report of other people's files: each is read as its library reads it, or named."""

import sys
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("tokenizers")
pytest.importorskip("gguf")
import tokenizers  # noqa: E402, which need them
from refusals import refuses  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

from npformer import Encoder, LanguageModel, pretrained, tree  # noqa: E402
from npformer.layers import Llama3Scaling  # noqa: E402
from npformer.pretrained.chat import Chat, chat_text  # noqa: E402
from npformer.training import CheckpointError  # noqa: E402
from tests.pretrained.folders import (  # noqa: E402
    assert_loads,
    configure,
    edit,
    gguf_file,
    model_of,
    read,
    refused,
    tokenizer_of,
    warned,
    warned_of_key,
    write_byte_pairs,
)
from tests.tools.forge_pretrained import (  # noqa: E402
    AS_BERT,
    AS_LLAMA,
    MODELS,
    params_of,
    small_tokenizer,
)

SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 16}
SIZES |= {"max_len": 64, "scale_embeddings": False}
LLAMA = LanguageModel(12, **SIZES, **AS_LLAMA)
BERT = Encoder(12, **SIZES, **AS_BERT, n_types=2, pad_id=0, task=None, pooling="mean", pooler=False)
ROBERTA = MODELS["roberta"]
WORDS = ["<unk>", "<pad>", "<s>", "</s>", "<eom>", *"abcdefg"]
ROLES = {"bos_token": "<s>", "eos_token": "</s>"}
HELLO = [{"role": "user", "content": "a"}]


def noisy(model):
    """Parameters of which none is 0 or 1."""
    rng = np.random.default_rng(0)
    return tree.map_leaves(
        lambda x: x + rng.standard_normal(x.shape).astype(x.dtype), model.init(0)
    )


def saved(folder, model):
    """A folder with a model, without a tokenizer."""
    pretrained.save(folder / "model", model, noisy(model))
    return folder / "model"


@pytest.fixture
def llama(tmp_path):
    return saved(tmp_path, LLAMA)


@pytest.fixture
def bert(tmp_path):
    return saved(tmp_path, BERT)


@pytest.fixture
def marian(tmp_path):
    pretrained.save(tmp_path / "model", MODELS["marian"], params_of("marian"))
    return tmp_path / "model"


def tensors_of(folder):
    return load_file(folder / "model.safetensors")


def write_tensors(folder, tensors):
    save_file(tensors, folder / "model.safetensors")


def linear(name, value):
    """A linear map that a file may have in addition."""
    return {f"{name}.weight": np.full((8, 8), value, "f4"), f"{name}.bias": np.full(8, value, "f4")}


def with_tokenizer(folder, settings, form=None, normalizer=None):
    """Write a tokenizer of a few words to a folder."""
    ids = {word: i for i, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, "<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(WORDS[1:5])
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if form is not None:
        around = [(word, ids[word]) for word in form.split() if word != "$A"]
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single=form, special_tokens=around
        )
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    edit(folder / "tokenizer_config.json", **settings)
    return folder


# -- which file is read


def test_a_whole_file_is_read_before_an_index(llama):
    weight_map = {"a": "model-00001-of-00002.safetensors"}
    edit(llama / "model.safetensors.index.json", weight_map=weight_map)
    assert_loads(llama, noisy(LLAMA))


WEIGHTS = ["pytorch_model.bin", "tf_model.h5", "model.pt", "model.safetensors"]


@pytest.mark.parametrize("file", WEIGHTS)
def test_a_family_that_is_not_known_is_named_first(tmp_path, file):
    configure(tmp_path, model_type="albert")
    (tmp_path / file).write_bytes(b"PK")
    for path in (tmp_path, tmp_path / file):
        assert "config.json has model_type='albert', supported are gpt2" in refused(path)


def test_weights_in_other_files_are_named_with_what_converts_them(llama):
    other = llama / "pytorch_model.bin"
    (llama / "model.safetensors").rename(other)
    assert "the weights in pytorch_model.bin are not read: in transformers" in refused(llama)
    expected = ".bin files are not read, as they may hold programs: in transformers"
    assert expected in refused(other)


def test_a_file_of_a_folder_is_not_the_folder(llama):
    expected = f"model.safetensors is a part of a model: give its folder, {llama}"
    assert expected in refused(llama / "model.safetensors")


def test_what_is_not_there_is_answered_with_what_there_is(tmp_path):
    for file in ("b.gguf", "a.gguf"):
        (tmp_path / file).touch()
    (tmp_path / "empty").mkdir()
    missing = partial(refuses, FileNotFoundError)
    downloaded = "there is no gpt2: nothing is downloaded, .*git clone https"
    missing(downloaded, pretrained.load, "gpt2")
    there = r"there is no .*{}: .* has a\.gguf, b\.gguf$"
    for name in ("c.gguf", "pytorch_model.bin"):
        missing(there.format(name), pretrained.load, tmp_path / name)
    missing(r"empty has no \.gguf file$", pretrained.load, tmp_path / "empty" / "c.gguf")


def test_without_tokenizers_the_error_says_what_to_install(llama, monkeypatch):
    with_tokenizer(llama, {})
    advice = r"need .*pip install .*pretrained\]'"
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    message = f"^tokenizers of models that exist {advice}"
    refuses(ImportError, message, pretrained.load, llama)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.delitem(sys.modules, "safetensors.numpy")
    refuses(ImportError, f"^models that exist {advice}", pretrained.load, llama)


def test_weights_of_few_bits_are_known_by_their_names(llama):
    forms = {"qweight": "GPTQ or AWQ", "weight_scale": "FP8", "weight_scale_inv": "FP8"}
    for name, form in forms.items():
        write_tensors(llama, {f"model.layers.0.self_attn.q_proj.{name}": np.zeros((1, 8), "i4")})
        assert f"quantization_config is of {form}" in refused(llama)


# -- keys of config.json


def test_googles_names_of_a_bert_are_read(tmp_path):
    model = replace(BERT, task="words", tie_embeddings=True)
    path = saved(tmp_path, model)
    theirs = {}
    for name, x in tensors_of(path).items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        name = name.replace("LayerNorm.bias", "LayerNorm.beta")
        if "decoder" not in name:
            theirs[name] = x
    write_tensors(path, theirs | linear("bert.pooler.dense", 0))
    assert_loads(path, noisy(model))


# the last one if each layer is compiled
WRAPPED = ["_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module.", "layers.0._orig_mod."]


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_names_of_modules_that_were_wrapped_are_read(llama, wrapped):
    tensors = tensors_of(llama)
    name = wrapped.removesuffix("_orig_mod.") if "layers" in wrapped else ""
    renamed = {each.replace(name, wrapped, 1): x for each, x in tensors.items()}
    write_tensors(llama, renamed)
    assert_loads(llama, noisy(LLAMA))
    write_tensors(llama, tensors | renamed)
    expected = "tensors differ in _orig_mod. or module. alone, expected one of each name"
    assert expected in refused(llama)


def test_a_table_of_another_size_can_be_read_whole(llama):
    configure(llama, vocab_size=9)
    reason = refused(llama)
    assert "embed_tokens.weight (12, 8) and not (9, 8)" in reason
    assert "; load(…, vocab=12) reads all rows of its embedding" in reason
    assert model_of(llama, vocab=12).vocab == 12
    assert_loads(llama, noisy(LLAMA), vocab=12)


def test_where_the_embedding_is_the_output_and_nothing_says_it(tmp_path):
    model = replace(LLAMA, tie_embeddings=True)
    path = saved(tmp_path, model)
    configure(path, "tie_word_embeddings")
    advice = "load(…, tie_embeddings=True) takes the embedding for its output"
    assert f"missing: lm_head.weight; {advice}" in refused(path)
    assert_loads(path, noisy(model), tie_embeddings=True)


NAMES_OF_TABLES = {
    "Llama": (LLAMA, "model.embed_tokens.weight", "lm_head.weight"),
    "BERT": (
        replace(BERT, task="words"),
        "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.weight",
    ),
}


@pytest.mark.parametrize("family", NAMES_OF_TABLES)
def test_one_table_may_have_the_name_of_the_output(tmp_path, family):
    model, embedding, output = NAMES_OF_TABLES[family]
    model = replace(model, tie_embeddings=True)
    path = saved(tmp_path, model)
    tensors = tensors_of(path)
    table = tensors.pop(embedding)
    write_tensors(path, tensors | {output: table})
    assert_loads(path, noisy(model))
    write_tensors(path, tensors | {output: table, embedding: table})
    assert_loads(path, noisy(model))
    write_tensors(path, tensors | {output: table + 1, embedding: table})
    assert "numbers differ; load(…, tie_embeddings=False) reads both" in refused(path)
    again = pretrained.load(path, tie_embeddings=False).params
    assert_array_equal(again["embedding"], table)
    assert_array_equal(again["output"]["weight"], table.T + 1)


def test_one_table_of_a_marian_may_have_the_name_of_the_output(marian):
    tensors = tensors_of(marian)
    table = tensors.pop("model.shared.weight")
    write_tensors(marian, tensors | {"lm_head.weight": table})
    assert_loads(marian, params_of("marian"))
    write_tensors(marian, tensors | {"model.shared.weight": table, "lm_head.weight": table + 1})
    reason = refused(marian)
    assert "lm_head.weight is shared.weight, and their numbers differ" in reason
    assert "write tie_word_embeddings=false in config.json to have both" in reason
    configure(marian, tie_word_embeddings=False)
    again = pretrained.load(marian).params
    assert_array_equal(again["output"]["weight"].T[:-1], table + 1)


def test_a_classifying_roberta_needs_no_pooler_of_its_first_training(tmp_path):
    model = replace(ROBERTA, task="classes", n_outputs=2, pooling="first", pooler=True)
    path = saved(tmp_path, model)
    write_tensors(path, tensors_of(path) | linear("roberta.pooler.dense", 1))
    assert_loads(path, noisy(model))


@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_another_forced_end_is_saved_in_generation_config_json(marian, has_tokenizer):
    pretrained.save(marian, MODELS["marian"], params_of("marian"), small_tokenizer())
    edit(marian / "generation_config.json", max_length=9, forced_eos_token_id=2)
    model, params, tokenizer = pretrained.load(marian)
    for forced in (None, 7):
        changed = replace(model, forced_eos_id=forced)
        pretrained.save(marian, changed, params, tokenizer if has_tokenizer else None)
        about = read(marian / "generation_config.json")
        assert about == {"max_length": 9, "forced_eos_token_id": forced}
        assert model_of(marian) == changed


def test_a_forced_end_is_saved_where_generation_config_json_is_empty(marian):
    model = replace(MODELS["marian"], forced_eos_id=2)
    pretrained.save(marian, model, params_of("marian"), small_tokenizer())
    (marian / "generation_config.json").write_text("{}")
    pretrained.save(marian, model, params_of("marian"))
    about = read(marian / "generation_config.json")
    assert about == {"forced_eos_token_id": 2}
    assert model_of(marian).forced_eos_id == 2


# -- padding


@pytest.mark.parametrize("pad_token", [None, "<unk>", "<pad>", "</s>"])
def test_padding_that_texts_have_is_read_like_any_token(llama, pad_token):
    pad_id = 0 if pad_token is None else WORDS.index(pad_token)
    configure(llama, pad_token_id=pad_id)
    if pad_token is not None:
        with_tokenizer(llama, ROLES | {"pad_token": pad_token})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, params, _ = pretrained.load(llama)
    is_named = any("pad_token_id=0 is not hidden as padding" in str(x.message) for x in caught)
    assert is_named == (pad_id == 0)
    assert model.pad_id == (1 if pad_id == 1 else None)
    ids = np.array([[5, 7, pad_id, 9]])
    if model.pad_id is None:
        assert_allclose(model.logits(params, ids), LLAMA.logits(params, ids), rtol=1e-6)
    assert model_of(llama, pad_id=pad_id).pad_id == pad_id


def test_padding_of_a_model_of_npformer_stays(tmp_path):
    path = saved(tmp_path, replace(LLAMA, pad_id=0))
    assert model_of(path).pad_id == 0


def test_the_padding_of_the_tokenizer_is_that_of_an_encoder(bert):
    with_tokenizer(bert, {"pad_token": "<pad>"})
    model, _, _ = warned(bert, "pad_token_id=0, but the tokenizer pads with 1, which is taken")
    assert model.pad_id == 1


# -- tokens


def gpt2_with(folder, pieces, vocab=None):
    model = LanguageModel(vocab or len(pieces), **SIZES, positions="learned")
    return write_byte_pairs(saved(folder, model), pieces)


def test_tokens_that_were_added_later_are_tokens(tmp_path):
    path = gpt2_with(tmp_path, [*"<|u>ab", "<|endoftext|>"], vocab=9)
    added = path / "added_tokens.json"
    edit(added, **{"<|u|>": 7, "</s>": 8})
    edit(path / "tokenizer_config.json", eos_token="</s>")
    tokenizer = tokenizer_of(path)
    assert tokenizer.encode("<|u|>ab") == [7, 4, 5]
    assert tokenizer.eos_id == 8
    edit(added, **{"<|u|>": 8, "</s>": 7})
    assert tokenizer_of(path).encode("</s><|u|>") == [7, 8]
    edit(added, **{"<|u|>": 11})
    expected = "the added token '<|u|>' has the id 11, expected 8, the next of the vocabulary"
    assert expected in refused(path)


def test_special_tokens_are_those_that_the_settings_name(tmp_path):
    path = gpt2_with(tmp_path, [*"abcd", "<s>", "</s>"])
    edit(path / "special_tokens_map.json", **ROLES)
    tokenizer = tokenizer_of(path)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (4, 5)
    assert tokenizer.decode(tokenizer.encode("ab</s>")) == "ab"


def test_a_token_that_only_the_settings_name_is_the_next_one(tmp_path):
    path = saved(tmp_path, replace(LLAMA, vocab=13))
    with_tokenizer(path, ROLES | {"pad_token": "[PAD]"})
    assert tokenizer_of(path).pad_id == 12


MASK = {"content": "<mask>", "lstrip": True, "normalized": False}


@pytest.mark.parametrize("settings", [{}, {"mask_token": "<mask>"}, {"mask_token": MASK}])
def test_a_roberta_of_older_files_has_tokens_around_a_text(tmp_path, settings):
    path = saved(tmp_path, replace(ROBERTA, vocab=9))
    write_byte_pairs(path, ["<s>", "<pad>", "</s>", "<unk>", "a", "b", "Ġ", "<mask>"])
    edit(path / "special_tokens_map.json", **settings)
    tokenizer = tokenizer_of(path)
    assert tokenizer.encode("a <mask>b") == [0, 4, 7, 5, 2]  # the mask takes the space before it
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.decode([0, 4, 2])) == (1, 2, "a")


def test_a_tokenizer_that_is_not_read_is_named(llama):
    (llama / "tokenizer.model").write_bytes(b"x")
    *_, tokenizer = warned(llama, "tokenizer.model is not read, so there is no tokenizer")
    assert tokenizer is None


def test_two_files_that_contradict_each_other_are_named(llama):
    lower = tokenizers.normalizers.BertNormalizer(lowercase=True)

    def contradict(key, form=None, **settings):
        (llama / "tokenizer_config.json").unlink(missing_ok=True)
        warned_of_key(with_tokenizer(llama, ROLES | settings, form, lower), key)

    contradict("add_bos_token=True", add_bos_token=True)
    around = "<s> $A </s>"
    contradict("add_eos_token=False", around, add_bos_token=True, add_eos_token=False)
    contradict("do_lower_case=False", do_lower_case=False)
    contradict("split_special_tokens=True", split_special_tokens=True)


def test_two_files_that_differ_in_the_first_space_are_named(llama):
    for scheme, adds_space in {"never": True, "always": False, "first": False}.items():
        with_tokenizer(llama, ROLES | {"add_prefix_space": adds_space})
        splitter = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme}
        edit(llama / "tokenizer.json", pre_tokenizer=splitter | {"split": False})
        warned_of_key(llama, f"add_prefix_space={adds_space}")


def test_a_tokenizer_that_is_larger_than_the_model_is_named(tmp_path):
    path = with_tokenizer(saved(tmp_path, replace(LLAMA, vocab=11)), ROLES)
    message = "the tokenizer has 12 tokens, and the model vectors of 11: texts with one of"
    model, params, tokenizer = warned(path, message)
    assert model.logits(params, np.array([tokenizer.encode("a b")])).shape == (1, 2, 11)


# -- chats


TEMPLATES = [{"default": None, "rag": "R"}]
TEMPLATES.append([{"name": "default"}, {"name": "rag", "template": "R"}])


@pytest.mark.parametrize("templates", TEMPLATES)
def test_a_template_without_text_is_named(llama, templates):
    with_tokenizer(llama, ROLES | {"chat_template": templates})
    message = "the template of chats 'default' in tokenizer_config.json is left out"
    *_, tokenizer = warned(llama, message)
    assert (tokenizer.chat_template, tokenizer.chat_templates) == (None, {"rag": "R"})


def test_a_template_that_makes_no_text_is_named(llama):
    with_tokenizer(llama, ROLES | {"chat_template": ""})
    message = "the template of the chat fails: it makes no text of these turns"
    refuses(ValueError, message, chat_text, tokenizer_of(llama), HELLO)


def saved_again(path):
    """The tokenizer of a model after it was loaded, saved and loaded."""
    pretrained.save(path.parent / "again", *pretrained.load(path))
    return tokenizer_of(path.parent / "again")


def test_all_tokens_that_end_an_answer_end_it(llama):
    with_tokenizer(llama, ROLES | {"chat_template": "{{messages[0]['content']}}"})
    assert tokenizer_of(llama).eos_ids == (3,)
    configure(llama, eos_token_id=[3, 4])
    assert set(Chat(*pretrained.load(llama)).ends) == {3, 4}
    configure(llama, eos_token_id=99)  # which the model cannot say
    edit(llama / "generation_config.json", eos_token_id=[5, 3])
    assert tokenizer_of(llama).eos_ids == (3, 5)
    assert saved_again(llama).eos_ids == (3, 5)


def test_the_template_of_a_chat_is_that_with_the_name_default(llama):
    default = {"name": "default", "template": "{{bos_token}}Q: {{messages[0]['content']}} A:"}
    tools = {"name": "tool_use", "template": "T"}
    with_tokenizer(llama, ROLES | {"chat_template": [default, tools]})
    tokenizer = tokenizer_of(llama)
    assert chat_text(tokenizer, HELLO) == "<s>Q: a A:"
    assert tokenizer.chat_templates["tool_use"] == "T"
    edit(llama / "tokenizer_config.json", chat_template=[tools])
    message = "templates of chats with the names 'tool_use', and no 'default'"
    refuses(ValueError, message, chat_text, tokenizer_of(llama), HELLO)


def test_templates_in_files_are_read_before_those_of_the_settings(llama):
    with_tokenizer(llama, ROLES | {"chat_template": "old"})
    (llama / "chat_template.jinja").write_text("new")
    (llama / "additional_chat_templates").mkdir()
    (llama / "additional_chat_templates" / "rag.jinja").write_text("R")
    tokenizer = tokenizer_of(llama)
    assert tokenizer.chat_template == "new"
    assert tokenizer.chat_templates == {"default": "new", "rag": "R"}
    assert saved_again(llama).chat_templates == {"default": "new", "rag": "R"}


# -- GGUF

LINEAR = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}


def test_the_rotation_of_llama3_in_a_gguf_file(tmp_path):
    """llama.cpp writes what each frequency is divided by."""
    wanted = Llama3Scaling(8.0, original_max_len=64)
    frequencies = 10000.0 ** (-np.arange(2) / 2)
    divisors = frequencies / wanted.frequencies(frequencies)
    about = {"llama.rope.scaling.original_context_length": 64}
    path, _ = gguf_file(tmp_path, about, tensors={"rope_freqs.weight": divisors})
    assert model_of(path).rotary.llama3 == wanted
    for others in ([3.0, 8.0], [0.5, 1.0]):
        path, _ = gguf_file(tmp_path, about, tensors={"rope_freqs.weight": others})
        assert f"rope_freqs.weight is not that of Llama3Scaling(factor={others[1]}" in refused(path)


def test_two_scalings_of_one_rotation_are_refused(tmp_path):
    path, _ = gguf_file(tmp_path, LINEAR, tensors={"rope_freqs.weight": [1.0, 1.0]})
    assert model_of(path).rotary.scaling == 2.0
    path, _ = gguf_file(tmp_path, LINEAR, tensors={"rope_freqs.weight": [1.0, 8.0]})
    expected = "it has rope_freqs.weight and rope.scaling.type='linear', supported is one of them"
    assert expected in refused(path)


OF_QWEN = {"tokenizer.ggml.pre": "qwen2"}


def test_qwens_in_gguf_files(tmp_path):
    """Their rows lie as in transformers; Qwen2 has biases, Qwen3 normalises heads."""
    rng = np.random.default_rng(1)
    biases = {f"blk.0.attn_{name}.bias": rng.standard_normal(8) for name in "qkv"}
    path, _ = gguf_file(tmp_path, OF_QWEN, family="qwen2", tensors=biases)
    model, params, _ = pretrained.load(path)
    assert model.qkv_bias
    found = params["layers"]["0"]["attention"]["qkv"]["bias"]
    assert_allclose(found, np.concatenate(list(biases.values())), rtol=1e-6)
    gains = {f"blk.0.attn_{name}_norm.weight": rng.standard_normal(4) for name in "qk"}
    # without it, a head has its part of the width
    for about in ({"qwen3.attention.key_length": 4}, {}):
        path, _ = gguf_file(tmp_path, about | OF_QWEN, family="qwen3", tensors=gains)
        model, params, _ = pretrained.load(path)
        assert model.qk_norm
        found = params["layers"]["0"]["attention"]["k_norm"]["gain"]
        assert_allclose(found, gains["blk.0.attn_k_norm.weight"], rtol=1e-6)


def test_a_gguf_file_says_how_text_is_divided(tmp_path):
    for pre, words in {"qwen2": "it|'s| |1|2|3", "llama-bpe": "it|'s| |123"}.items():
        tokenizer = tokenizer_of(gguf_file(tmp_path, {"tokenizer.ggml.pre": pre})[0])
        divided = tokenizer.tokenizer.pre_tokenizer.pre_tokenize_str("it's 123")
        assert "|".join(word for word, _ in divided).replace("Ġ", " ") == words


def test_tokens_that_a_user_defined_are_never_divided(tmp_path):
    path, words = gguf_file(tmp_path, added={"<think>": 4})
    tokenizer = tokenizer_of(path)
    assert tokenizer.encode("<think>the") == [words.index("<think>"), words.index("the")]
    # it is text, other than </s>
    assert tokenizer.decode(tokenizer.encode("<think>the")) == "<think>the"


def test_all_ends_and_templates_of_a_gguf_file_are_taken(tmp_path):
    about = {
        "tokenizer.ggml.eot_token_id": 260,
        "tokenizer.chat_template": "D",
        "tokenizer.chat_template.rag": "R",
    }
    path, words = gguf_file(tmp_path, about, added={"<eot>": 3})
    for tokenizer in (tokenizer_of(path), saved_again(path)):
        assert tokenizer.eos_ids == (words.index("</s>"), words.index("<eot>"))
        assert tokenizer.chat_template == "D"
        assert tokenizer.chat_templates["rag"] == "R"
    assert tokenizer.chat_templates["default"] == "D"


# -- state dicts


def test_an_encoder_of_pytorch_is_no_transformer():
    matrices = {"self_attn.out_proj": (8, 8), "linear1": (16, 8), "linear2": (8, 16)}
    shapes = {"emb.weight": (11, 8), "fc.weight": (11, 8), "fc.bias": (11,)}
    for layer in ("transformer_encoder.layers.0.", "transformer_encoder.layers.1."):
        shapes[f"{layer}self_attn.in_proj_weight"] = (24, 8)
        shapes[f"{layer}self_attn.in_proj_bias"] = (24,)
        for name, shape in matrices.items():
            shapes[f"{layer}{name}.weight"] = shape
            shapes[f"{layer}{name}.bias"] = shape[:1]
        for name in ("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"):
            shapes[f"{layer}{name}"] = (8,)
    rng = np.random.default_rng(0)
    state = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    names = {"embedding": "emb", "output": "fc"}
    message = "an nn.TransformerEncoder, transformer_encoder.layers, and no nn.Transf"
    refuses(CheckpointError, message, pretrained.load, state, names=names, n_heads=2)
    model, params, _ = pretrained.load(state, names=names, n_heads=2, model=Encoder, pad_id=None)
    assert model.depths == (2,)
    assert model.outputs(params, np.array([[1, 2, 3]])).shape == (1, 3, 11)
