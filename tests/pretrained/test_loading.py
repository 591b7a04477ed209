"""Models of other libraries.

Saved and loaded again they are the same, and each mistake in their files is named.
"""

import dataclasses
import json
import os
import re
import shutil
import struct
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("tokenizers")
pytest.importorskip("gguf")
from programs import WITH_PIPES  # noqa: E402, which needs them
from refusals import refuses  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402
from tables import table  # noqa: E402
from tiny import tiny_translation_tokenizer  # noqa: E402

from npformer import (  # noqa: E402
    SGD,
    ByteNet,
    LanguageModel,
    Trainer,
    Transformer,
    pretrained,
    tree,
)
from npformer.pretrained import ctranslate2  # noqa: E402
from npformer.pretrained.families import FAMILIES  # noqa: E402
from npformer.pretrained.families.naming import SHARED_SETTINGS, check_names  # noqa: E402
from npformer.pretrained.families.pytorch import naming_to_save  # noqa: E402
from npformer.training import CheckpointError  # noqa: E402
from tests.pretrained.folders import (  # noqa: E402
    configure,
    edit,
    gguf_file,
    model_of,
    read,
    refused,
    save_new,
    tokenizer_of,
    without_tokenizer,
    write_byte_pairs,
)
from tests.tools import forge_pretrained  # noqa: E402
from tests.tools.forge_pretrained import MODELS, small_tokenizer  # noqa: E402
from tests.tools.forgery import joined, parts  # noqa: E402

TEXT = "the man, 日本 12"


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "marian", "shards"])
def test_what_was_saved_is_loaded(originals, name, tmp_path):
    model, params, tokenizer = pretrained.load(originals[name])
    original = {"shards": "gpt2"}.get(name, name)
    tree.map_leaves(assert_array_equal, params, forge_pretrained.params_of(original))
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    pretrained.save(tmp_path / "again", model, params, tokenizer)
    for file in originals[original].iterdir():
        found, wanted = (path.read_bytes() for path in (tmp_path / "again" / file.name, file))
        if file.suffix == ".json":
            found, wanted = json.loads(found), json.loads(wanted)
        assert found == wanted


def test_a_gguf_file_has_the_parameters_of_a_llama(originals):
    model, params, tokenizer = pretrained.load(originals["llama.gguf"], dtype="float64")
    rng = np.random.default_rng(0)
    norm, q, k = (rng.standard_normal(shape).astype(np.float32) for shape in ((8,), (8, 8), (4, 8)))
    layer = params["layers"]["0"]
    assert_array_equal(layer["attention_norm"]["gain"], norm)
    ours = layer["attention"]["qkv"]["weight"].T
    # pairs (2i, 2i + 1) become (i, i + K/2)
    assert_array_equal(ours[:8], q[[0, 2, 1, 3, 4, 6, 5, 7]])
    assert_array_equal(ours[8:12], k[[0, 2, 1, 3]])
    logits = model.logits(params, np.array([tokenizer.encode("the man")]))
    assert logits.shape[-1] == model.vocab == len(tokenizer)


def test_the_tokenizer_of_a_gguf_file_is_saved(originals, tmp_path):
    model, params, tokenizer = pretrained.load(originals["llama.gguf"])
    pretrained.save(tmp_path / "saved", model, params, tokenizer)
    saved = read(tmp_path / "saved/tokenizer.json")
    whole = json.loads(tokenizer.tokenizer.to_str())  # as the library writes it
    assert saved.keys() == whole.keys()
    assert saved["model"].keys() == whole["model"].keys()
    again = tokenizer_of(tmp_path / "saved")
    assert again.encode(TEXT) == tokenizer.encode(TEXT)
    for each in (tokenizer, again):
        assert (each.eos_id, each.chat_template) == (259, "{{ messages }}")


@pytest.mark.parametrize("left_out", ["bos", "eos", None])
def test_a_gguf_file_says_which_tokens_are_around_a_text(copy, left_out):
    path = copy("llama.gguf")
    for name, value in {"bos": 1, "eos": 1, left_out: 0}.items():
        flag = f"tokenizer.ggml.add_{name}_token".encode() + struct.pack("<I", 7)
        path.write_bytes(path.read_bytes().replace(flag + b"\1", flag + bytes([value])))
    tokenizer = tokenizer_of(path)
    wanted = tokenizer.encode("the man", special=False)
    wanted = [259] * (left_out != "bos") + wanted + [259] * (left_out != "eos")
    assert tokenizer.encode("the man") == wanted


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_a_dtype_is_a_name_a_type_or_one_of_numpy(originals, name):
    for dtype in (name, getattr(np, name), np.dtype(name)):
        model, params, _ = pretrained.load(originals["gpt2"], dtype=dtype)
        assert model.dtype == {"float16": "float32"}.get(name, name)
        assert {x.dtype.name for _, x in tree.leaves(params)} == {name}


@pytest.mark.parametrize("begin", ["<|bos:0|>", "$A", "$"])
def test_a_gguf_file_may_have_any_signs_in_the_tokens_around_a_text(tmp_path, begin):
    about = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    kinds = {begin: 3, "<end:1|>": 3}
    _, tokens = gguf_file(tmp_path, added=kinds)
    begin_id, end_id = map(tokens.index, kinds)
    about |= {"tokenizer.ggml.bos_token_id": begin_id, "tokenizer.ggml.eos_token_id": end_id}
    path, _ = gguf_file(tmp_path, about, added=kinds)
    wanted = [begin_id, tokens.index("the"), end_id]
    assert tokenizer_of(path).encode("the") == wanted


def test_half_precision_is_kept(originals):
    model, whole, _ = pretrained.load(originals["llama"])
    same, half, _ = pretrained.load(originals["llama"], dtype="float16")
    assert same == model and {x.dtype.name for _, x in tree.leaves(half)} == {"float16"}
    ids = np.array([[3, 1, 4]])
    assert_allclose(model.logits(half, ids), model.logits(whole, ids), atol=0.01)


def test_a_marian_has_a_tokenizer_of_two_languages(copy, tmp_path):
    pytest.importorskip("sentencepiece")
    path = copy("marian")
    without_tokenizer(path)
    vocabulary = tiny_translation_tokenizer(path)
    model, params, tokenizer = pretrained.load(path)
    ids = tokenizer.encode("the man")
    assert tokenizer.encode(">>fra<<the man") == [vocabulary[">>fra<<"], *ids]
    assert ids[-1] == vocabulary["</s>"] and vocabulary["<unk>"] in tokenizer.encode("x")
    assert tokenizer.decode([model.tgt_vocab - 1, *ids, vocabulary["<pad>"]]) == "the man"
    pretrained.save(tmp_path / "again", model, params, tokenizer)
    assert tokenizer_of(tmp_path / "again").encode("a dog") == tokenizer.encode("a dog")
    (path / "source.spm").write_bytes(b"xxxx")
    assert "source.spm or target.spm is no sentencepiece model" in refused(path)


@pytest.mark.parametrize("tied", [True, False])
def test_a_marian_that_was_trained_begins_translations_as_before(new, tied):
    model = replace(MODELS["marian"], tie_embeddings=tied)
    params = model.init(0)
    src, tgt = np.array([[3, 4, 5, 6]]), np.array([[model.tgt_vocab - 1, 7, 8]])
    message = r"left out, as the begin token, but its output\.bias is 0, expected -10000"
    refuses(ValueError, message, pretrained.save, new, model, params)
    params["output"]["bias"][-1] = -9999
    pretrained.save(new, model, params)
    again, theirs, _ = pretrained.load(new)
    wanted = model.logits(params, src, tgt)[..., model.pad_id + 1 : -1]
    assert_allclose(again.logits(theirs, src, tgt)[..., model.pad_id + 1 : -1], wanted, rtol=1e-6)


def test_a_gpt2_of_older_files_has_all_its_pairs(gpt2):
    about = read(gpt2 / "tokenizer.json")["model"]
    size = len(about["vocab"])
    pairs = "".join(f"{a} {b}\n" for a, b in [*about["merges"], "##"])
    write_byte_pairs(without_tokenizer(gpt2), [*about["vocab"], "##", "<|endoftext|>"], pairs)
    tokenizer = tokenizer_of(gpt2)
    assert tokenizer.encode("the##") == [about["vocab"]["the"], size]
    assert tokenizer.eos_id == size + 1


def test_a_token_that_only_the_settings_name_ends_a_text(gpt2):
    (gpt2 / "tokenizer_config.json").write_text("{}")
    configure(gpt2, eos_token_id=7)
    assert tokenizer_of(gpt2).eos_id == 7


def test_of_one_label_a_number_is_predicted(new):
    model = replace(MODELS["bert"], task="classes", n_outputs=1, pooler=True, pooling="first")
    save_new(new, model)
    assert model_of(new).task == "classes"
    configure(new, "problem_type")
    assert model_of(new).task == "numbers"


def test_one_class_of_tokens_is_no_number(new):
    model = replace(MODELS["bert"], task="classes", n_outputs=1, pooling="none")
    save_new(new, model)
    for problem in (None, "regression"):  # of which the class of transformers takes no notice
        configure(new, problem_type=problem)
        assert model_of(new).task == "classes"


def test_padding_that_would_be_read_as_the_end_of_a_text_is_not_saved(new):
    model, tokenizer = MODELS["gpt2"], small_tokenizer()
    ended = replace(model, pad_id=tokenizer.eos_id)
    message = f"pad_id={tokenizer.eos_id} is the tokenizer's end token"
    refuses(ValueError, message, save_new, new, ended, tokenizer)
    pretrained.save(new, replace(model, pad_id=None), model.init(0), tokenizer)


def test_the_end_that_is_forced_is_that_of_the_file(copy):
    path = copy("marian")
    model, params, tokenizer = pretrained.load(path)
    assert model.forced_eos_id == 2
    cut = replace(model, forced_eos_id=None)
    pretrained.save(path, cut, params, tokenizer)
    assert model_of(path) == cut
    # then transformers takes 0
    configure(path, "forced_eos_token_id", pad_token_id=3, decoder_start_token_id=3)
    assert model_of(path).forced_eos_id == 0


IN_FOLDERS = {
    "config.json": "gpt2",
    "model.safetensors": "gpt2",
    "model.safetensors.index.json": "shards",
    "tokenizer.json": "gpt2",
    "generation_config.json": "gpt2",
}


@WITH_PIPES
@pytest.mark.parametrize("file", [*IN_FOLDERS, "llama.gguf", "state.safetensors"])
def test_a_pipe_is_not_waited_for(copy, tmp_path, file):
    folder = copy(IN_FOLDERS[file]) if file in IN_FOLDERS else tmp_path
    (folder / file).unlink(missing_ok=True)
    os.mkfifo(folder / file)
    is_known_by_it = file == "config.json"
    expected = "no folder with config.json" if is_known_by_it else f"{file} is a pipe, expected a f"
    assert expected in refused(folder if file in IN_FOLDERS else folder / file)


@pytest.fixture
def gpt2(copy):
    return copy("gpt2")


@pytest.fixture
def tokenizer_file(gpt2):
    """The place of tokenizer.json, where there is none."""
    (gpt2 / "tokenizer.json").unlink()
    return gpt2 / "tokenizer.json"


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs the devices of Unix")
def test_a_device_without_end_is_not_read(gpt2, tokenizer_file):
    tokenizer_file.symlink_to("/dev/zero")
    assert "tokenizer.json is a device, expected a file" in refused(gpt2)


WITH_PROC = pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux")


@WITH_PROC  # whose files say that they are empty
def test_a_file_is_bounded_by_what_it_has_and_not_by_what_it_says(
    gpt2, tokenizer_file, monkeypatch
):
    tokenizer_file.symlink_to("/proc/self/maps")
    assert tokenizer_file.stat().st_size == 0
    size = (gpt2 / "config.json").stat().st_size
    monkeypatch.setattr("npformer.pretrained.files.MOST_BYTES", size)
    assert "tokenizer.json has more than" in refused(gpt2)


def test_a_folder_in_place_of_a_file_is_named(gpt2, tokenizer_file):
    tokenizer_file.mkdir()
    assert "tokenizer.json is a folder, expected a file" in refused(gpt2)


def test_a_name_of_a_file_that_is_too_long_is_named(copy):
    path = copy("shards")
    edit(path / "model.safetensors.index.json", weight_map={"a": "x" * 5000})
    assert f"{'x' * 80} is missing, which model.safetensors.index.json lists" in refused(path)
    with pytest.raises(FileNotFoundError, match="there is no x"):
        pretrained.load("x" * 5000)


def test_a_file_that_cannot_be_read_is_named(gpt2, monkeypatch):
    def fail(path, at_most):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("npformer.pretrained.files.read_bounded", fail)
    reason = f"it cannot be read: [Errno 13] Permission denied: '{gpt2 / 'config.json'}'"
    assert reason in refused(gpt2)


def test_a_regular_expression_without_end_is_an_error_at_its_text(gpt2, capfd):
    pattern = {"type": "Split", "pattern": {"Regex": "(a*)*$"}}
    pattern |= {"behavior": "Isolated", "invert": False}
    edit(gpt2 / "tokenizer.json", pre_tokenizer=pattern)
    tokenizer = tokenizer_of(gpt2)
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot divide this text: .*retry-limit"):
        tokenizer.encode("a" * 60 + "b")
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot make a text of these ids"):
        tokenizer.decode([-1])


def test_the_one_gguf_file_of_a_folder_is_read(originals, tmp_path):
    shutil.copy(originals["llama.gguf"], tmp_path / "a.gguf")
    model, params, _ = pretrained.load(tmp_path)
    of_file = pretrained.load(tmp_path / "a.gguf")
    assert model == of_file[0]
    tree.map_leaves(assert_array_equal, params, of_file[1])
    (tmp_path / "b.gguf").touch()
    assert "no folder with config.json: give one of its files, a.gguf, b.gguf" in refused(tmp_path)


@pytest.mark.parametrize("name", ["folder.gguf", "folder.safetensors"])
def test_a_folder_is_none_of_the_files_whose_name_it_has(originals, tmp_path, name):
    (tmp_path / name).mkdir()
    assert "it is no GGUF or safetensors file, and no folder with config.json" in refused(
        tmp_path / name
    )
    shutil.copytree(originals["gpt2"], tmp_path / name, dirs_exist_ok=True)
    assert model_of(tmp_path / name) == model_of(originals["gpt2"])


def test_a_checkpoint_of_a_training_is_named_with_what_loads_it(tmp_path):
    trainer = Trainer(MODELS["gpt2"], SGD(0.1), backend="reference")
    path = tmp_path / "last.safetensors"
    trainer.save(path)
    for given in (path, tmp_path):
        assert "last.safetensors is a checkpoint of npformer: trainer.load" in refused(given)


def with_tensor(path, name, dtype, values):
    """Put other bytes, of another dtype, in the place of a tensor of a file."""
    header, data = parts(path)
    begin, end = header[name]["data_offsets"]
    for entry in header.values():
        if entry.get("data_offsets", [0])[0] >= end:
            entry["data_offsets"] = [n + len(values) - (end - begin) for n in entry["data_offsets"]]
    header[name] |= {"dtype": dtype, "data_offsets": [begin, begin + len(values)]}
    path.write_bytes(joined(header, data[:begin] + values + data[end:]))


def test_a_dtype_that_numpy_does_not_have_is_read_or_named(gpt2):
    path, name = gpt2 / "model.safetensors", "transformer.ln_f.bias"
    values = np.linspace(1, 2, 8, dtype="<f4")
    as_bfloat16 = (values.view("<u4") >> 16).astype("<u2")
    for dtype, bits in {"BF16": as_bfloat16, "F16": values.astype("<f2")}.items():
        with_tensor(path, name, dtype, bits.tobytes())
        params = pretrained.load(gpt2)[1]
        assert_allclose(params["layers"]["norm"]["bias"], values, rtol=2**-7)
    with_tensor(path, name, "I32", values.tobytes())
    assert "ln_f.bias has dtype='I32', supported are F64, F32, F16, BF16" in refused(gpt2)


def after(name, *numbers):
    """The bytes of a name in a header and of the numbers of 4 bytes after it."""
    return name.encode() + struct.pack(f"<{len(numbers)}I", *numbers)


def test_another_header_of_a_gguf_file_is_named(copy):
    path = copy("llama.gguf")
    whole = path.read_bytes()

    def other(reason, name, before, then):
        assert name + before in whole
        path.write_bytes(whole.replace(name + before, name + then))
        assert reason in refused(path)

    kind = after("general.architecture", 8, 5, 0)
    supported = "general.architecture='gemma', supported are llama, qwen2, qwen3"
    other(supported, kind, b"llama", b"gemma")
    count = after("llama.rope.dimension_count", 4)  # 2 rotates a part of each head
    other("rope.dimension_count=2, supported is 4", count, after("", 4), after("", 2))
    merges = after("tokenizer.ggml.merges", 9)
    numbers = "it has a list of kind 99, expected numbers or texts"
    other(numbers, merges, after("", 8), after("", 99))
    axes = after("blk.0.attn_q.weight", 2)
    empty = "a tensor has the shape (1099511627776, 0), expected no axis of length 0"
    other(empty, axes, struct.pack("<2Q", 8, 8), struct.pack("<2Q", 0, 2**40))
    other("it has two tensors with the name blk.0.attn_q.weight", b"attn_", b"k", b"q")


def test_tensors_that_do_not_lie_in_the_file_or_share_their_bytes_are_refused(copy):
    path = copy("llama.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[:-2000])
    assert "does not lie in the file: it is cut off or damaged" in refused(path)
    # The offset of a matrix comes after its name, the number of its axes, two sizes and the kind
    # of its numbers.
    query, output = (
        whole.index(name) + len(name) + 4 + 2 * 8 + 4
        for name in (b"attn_q.weight", b"attn_output.weight")
    )
    path.write_bytes(whole[:output] + whole[query : query + 8] + whole[output + 8 :])
    both = "blk.0.attn_output.weight and blk.0.attn_q.weight have the same bytes of the file"
    assert both in refused(path)


def test_safetensors_that_share_their_bytes_are_refused(gpt2):
    header, data = parts(gpt2 / "model.safetensors")
    header["transformer.h.0.ln_1.bias"] = header["transformer.h.0.ln_1.weight"]
    (gpt2 / "model.safetensors").write_bytes(joined(header, data))
    assert "model.safetensors is no safetensors file, or a damaged one" in refused(gpt2)


def test_what_is_none_in_a_model_is_a_number_for_transformers(originals):
    config = read(originals["llama"] / "config.json")
    assert (config["rms_norm_eps"], config["attention_dropout"]) == (1e-6, 0.0)
    config = read(originals["gpt2"] / "config.json")
    assert (config["layer_norm_epsilon"], config["attn_pdrop"]) == (1e-5, 0.0)


def test_a_model_replaces_one_in_several_files(copy):
    path = copy("shards")
    model, params, _ = pretrained.load(path)
    params["embedding"][:] = 7
    pretrained.save(path, model, params)
    assert (pretrained.load(path)[1]["embedding"] == 7).all()


def settings_of(model):
    return {field.name for field in dataclasses.fields(model)}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_names_settings_that_its_model_has(name):
    family = FAMILIES[name]
    table = family.settings
    own = {*table.key_of, *table.constants, *table.converted}
    assert own | SHARED_SETTINGS <= settings_of(family.model)


def test_pytorch_and_ctranslate2_refuse_a_setting_that_they_do_not_name():
    model = Transformer(7, 7, d_model=4, n_heads=2, n_layers=1, d_ff=8, softcap=50.0)
    message = "softcap=50.0, expected None"
    refuses(ValueError, message, naming_to_save({}).check, model)
    refuses(ValueError, message, ctranslate2.check, model, list("abcdefg"), list("abcdefg"))
    settings = {*ctranslate2.SUPPORTED, *ctranslate2.ALLOWED, *SHARED_SETTINGS}
    assert settings <= settings_of(Transformer)


OF_PYTORCH = Transformer(
    11, 13, 16, n_heads=4, n_layers=1, d_ff=8, positions="none", scale_embeddings=False
)
NAMES = {"source_embedding": "src", "target_embedding": "tgt", "output": "out"}


SAVED = MODELS | {"of PyTorch": OF_PYTORCH}
LATER = {"softcap": 50.0}  # which was added to all models: no file of these families says it


def is_not_saved(name, settings, reason):
    model = replace(SAVED[name], **settings)
    names = NAMES if name == "of PyTorch" else None
    message = re.escape(reason)
    refuses(ValueError, message, save_new, "nowhere", model, names=names)


@pytest.mark.parametrize("row", table(__file__, "not_saved")["row"], ids=lambda row: row["reason"])
def test_a_model_that_a_library_does_not_have_is_not_saved(row):
    is_not_saved(row["model"], json.loads(row["settings"]), row["reason"])


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_a_setting_that_its_family_does_not_know_is_not_saved(name):
    is_not_saved(name, LATER, f"it is no {name}, as softcap=50.0, expected None")


def test_another_model_or_other_parameters_are_not_saved():
    other = ByteNet(9, 9, d_model=8, n_sets=1, dilations=(1,))
    message = "a ByteNet is none of gpt2, llama"
    refuses(ValueError, message, pretrained.save, "nowhere", other, {})
    model = MODELS["gpt2"]
    params = replace(model, vocab=7).init(0)
    message = "parameter embedding: given shape"
    refuses(ValueError, message, pretrained.save, "nowhere", model, params)


def test_a_state_dict_with_two_tables_is_not_read_as_one(tmp_path):
    path = tmp_path / "state.safetensors"
    save_new(path, OF_PYTORCH, names=NAMES)
    tensors = load_file(path)
    state = {name: x for name, x in tensors.items() if name.startswith("encoder.")}
    state |= {"table.weight": tensors["tgt.weight"], "out.weight": tensors["out.weight"]}
    options = {"model": LanguageModel, "n_heads": 4, "norm": "pre", "positions": "none"}
    options["names"] = {"embedding": "table", "output": "out"}
    advice = r"numbers differ; load\(…, tie_embeddings=False\) reads both"
    refuses(CheckpointError, advice, pretrained.load, state, tie_embeddings=True, **options)
    params = pretrained.load(state, tie_embeddings=False, **options).params
    assert_array_equal(params["output"]["weight"].T, state["out.weight"])


def test_a_module_that_is_named_twice_is_read_twice_and_saved_if_both_are_equal(tmp_path):
    path = tmp_path / "state.safetensors"
    model = replace(OF_PYTORCH, tgt_vocab=11)
    names = NAMES | {"target_embedding": "src"}
    params = model.init(0)
    refused = "names has src.weight for two parameters, which differ"
    refuses(ValueError, refused, pretrained.save, path, model, params, names=names)
    params["target_embedding"] = params["source_embedding"].copy()
    pretrained.save(path, model, params, names=names)
    again = pretrained.load(path, names=names, n_heads=4, norm="pre").params
    for name in ("source_embedding", "target_embedding"):
        assert_array_equal(again[name], params["source_embedding"])
    two = [("src.weight", np.zeros((11, 16))), ("src.weight", np.zeros((13, 16)))]
    wrong = r"of another shape: src.weight \(11, 16\) and not \(13, 16\)$"
    refuses(ValueError, wrong, check_names, two, {"src.weight": np.zeros((11, 16))})


def test_the_heads_of_a_state_dict_are_asked_for(tmp_path):
    path = tmp_path / "state.safetensors"
    save_new(path, OF_PYTORCH, names=NAMES)
    assert model_of(path, names=NAMES, n_heads=4, norm="pre").n_heads == 4
    assert "do not show the number of heads: give n_heads=…" in refused(path, names=NAMES)


def test_forged_and_damaged_files_are_refused_or_whole(capsys):
    assert forge_pretrained.main(["--files", "150"]) == 0, capsys.readouterr().out
