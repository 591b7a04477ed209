"""Damage models of other libraries at random.

Each has to be refused with one line, or to load as a whole.

    python tests/tools/forge_pretrained.py
    python tests/tools/forge_pretrained.py --files 100 --seed 7
    python tests/tools/forge_pretrained.py --seed 7 --only 123  # one file again

Small models of each family with their tokenizers, and a GGUF file, are written; then the settings,
the headers, the tokenizers or any bytes of one file are changed. A load may succeed, or raise a
``CheckpointError`` of one line that names the file. Everything else is a failure, also more than
SLACK bytes of memory or more than SLOW seconds. Needs ``npformer[pretrained]``.
"""

import json
import shutil
import struct
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from scripts.bench.memory import peak_bytes, reset_peak

from npformer import Encoder, LanguageModel, Transformer, pretrained
from npformer.pretrained.families.marian import BEGIN_LOGIT
from npformer.pretrained.library_tokenizers import byte_pairs
from npformer.pretrained.tokenizer import Tokenizer
from tests.tools.forgery import (
    FAILED,
    Files,
    Only,
    as_bytes,
    changed,
    damaged,
    forge,
    joined,
    outcome_of,
    parts,
)
from tests.tools.tool import Seed, tool

SLACK, SLOW = 300_000_000, 20.0  # bytes, seconds
V = 300
SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 12}
SIZES |= {"max_len": 16, "scale_embeddings": False}
AS_LLAMA = {"norm_type": "rms_norm", "activation": "swiglu", "bias": False}
AS_BERT = {"positions": "learned", "norm": "post", "embedding_norm": True}
AS_BERT |= {"activation": "gelu_erf"}
AS_MARIAN = {"positions": "sinusoidal_concatenated", "norm": "post", "activation": "silu"}
MODELS = {
    "gpt2": LanguageModel(V, **SIZES, positions="learned"),
    "llama": LanguageModel(V, **SIZES, **AS_LLAMA, n_kv_heads=1),
    "qwen2": LanguageModel(V, **SIZES, **AS_LLAMA, qkv_bias=True),
    "qwen3": LanguageModel(V, **SIZES, **AS_LLAMA, qk_norm=True, d_head=6),
    "bert": Encoder(V, **SIZES, **AS_BERT, n_types=2),
    "roberta": Encoder(V, **SIZES, **AS_BERT, n_types=1, counted_positions=True, pad_id=1),
    "distilbert": Encoder(V, **SIZES, **AS_BERT, eps=1e-12, pooler_activation="relu"),
    "marian": Transformer(V, V, **SIZES, **AS_MARIAN, tie_embeddings=True, forced_eos_id=2),
}


@tool
def main(*, files: Files = 1000, only: Only | None = None, seed: Seed = 0):
    """Forge files."""
    with tempfile.TemporaryDirectory() as folder:
        wholes = originals(Path(folder) / "whole")
        place = Path(folder) / "damaged"
        return forge(lambda draw: load(draw, wholes, place), files, seed, only)


def load(draw, wholes, place):
    """Damage one of the models and load it. Yields the kind of file, the outcome and a message."""
    shutil.rmtree(place, ignore_errors=True)
    path = damaged_copy(draw, wholes, place)
    reset_peak()
    before, began = peak_bytes(), time.perf_counter()
    outcome, text = outcome_of(lambda: loaded(path), path)
    seconds, grown = time.perf_counter() - began, peak_bytes() - before
    if grown > SLACK or seconds > SLOW:
        outcome, text = FAILED, f"{grown / 1e6:.0f} MB, {seconds:.0f} s"
    yield path.suffix or "folder", outcome, text


def loaded(path):
    """Load a model; what may be another one's is named in a warning, and not refused."""
    warnings.filterwarnings("ignore", message=".* has keys that npformer does not read")
    warnings.filterwarnings("ignore", message="pad_token_id=.* is not hidden as padding")
    warnings.filterwarnings("ignore", message="the tokenizer has .* tokens, and the model")
    warnings.filterwarnings("ignore", message="the template of chats .* is left out")
    warnings.filterwarnings("ignore", message="it does not say how text is divided")
    return pretrained.load(path)


def originals(folder):
    """Folders of each family with a tokenizer, one of them in two files, and a GGUF file."""
    paths, tokenizer = [], small_tokenizer()
    for name in MODELS:
        pretrained.save(folder / name, MODELS[name], params_of(name), tokenizer)
        paths.append(folder / name)
    shards = shutil.copytree(folder / "gpt2", folder / "shards")
    header, data = parts(shards / "model.safetensors")
    (shards / "model.safetensors").rename(shards / "model-1.safetensors")
    places = dict.fromkeys(header.keys() - {"__metadata__"}, "model-1.safetensors")
    (shards / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    write_llama_gguf(folder / "llama.gguf", tokenizer)
    for path in (*paths, shards, folder / "llama.gguf"):
        pretrained.load(path)
    return [*paths, shards, folder / "llama.gguf", folder / "llama.gguf"]


def params_of(name):
    """The parameters of one of the models; the last token of a Marian is the begin token."""
    params = MODELS[name].init(0)
    if name == "marian":
        params["embedding"][-1], params["output"]["bias"][-1] = params["embedding"][0], BEGIN_LOGIT
    return params


def small_tokenizer():
    """A tokenizer of bytes and a few pairs."""
    import tokenizers

    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    pairs = ["t h", "th e", "a n"]
    words = [pair.replace(" ", "") for pair in pairs]
    vocabulary = {token: i for i, token in enumerate([*letters, *words, "</s>"])}
    inner = byte_pairs(vocabulary, {pair: pair for pair in pairs})
    about = {"eos_token": "</s>", "chat_template": "{{ messages }}"}
    files = {
        "tokenizer.json": inner.to_str().encode(),
        "tokenizer_config.json": json.dumps(about).encode(),
    }
    end = vocabulary["</s>"]
    return Tokenizer(inner, files, {"eos": end}, (end,), {})


def gguf_of(family, n_tokens, n_kv_heads, d_ff, max_len, width=8, n_heads=2):
    """The values in the header of a GGUF file of a small model, and its tensors."""
    of_keys = width // n_heads * n_kv_heads
    values = {
        "context_length": max_len,
        "embedding_length": width,
        "block_count": 1,
        "feed_forward_length": d_ff,
        "attention.head_count": n_heads,
        "attention.head_count_kv": n_kv_heads,
        "rope.dimension_count": width // n_heads,
    }
    shapes = {
        "attn_norm": (width,),
        "attn_q": (width, width),
        "attn_k": (of_keys, width),
        "attn_v": (of_keys, width),
        "attn_output": (width, width),
        "ffn_norm": (width,),
        "ffn_gate": (d_ff, width),
        "ffn_up": (d_ff, width),
        "ffn_down": (width, d_ff),
    }
    shapes = {f"blk.0.{name}": shape for name, shape in shapes.items()}
    shapes |= {"token_embd": (n_tokens, width), "output_norm": (width,)}
    rng = np.random.default_rng(0)
    tensors = {f"{name}.weight": rng.standard_normal(shape) for name, shape in shapes.items()}
    return {f"{family}.{name}": value for name, value in values.items()}, tensors


def write_gguf(path, family, values, tensors, tokens, kinds, merges, quantised=None):
    """Write a GGUF file. The kinds of tokens are numbers: 1 is a usual one, 3 a special one.

    ``quantised(x)`` returns the bytes of a matrix and their kind; without it, all are float32.
    """
    import gguf

    writer = gguf.GGUFWriter(path, family)
    add = {str: writer.add_string, bool: writer.add_bool}
    add |= {int: writer.add_uint32, float: writer.add_float32}
    for name, value in values.items():
        add[type(value)](name, value)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    for name, x in tensors.items():
        x, kind = np.asarray(x, "f4"), None
        if quantised is not None and x.ndim > 1:
            x, kind = quantised(x)
        writer.add_tensor(name, x, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_llama_gguf(path, tokenizer):
    """A Llama with all that is read in a GGUF file."""
    about = json.loads(tokenizer.tokenizer.to_str())["model"]
    tokens, merges = list(about["vocab"]), [" ".join(pair) for pair in about["merges"]]
    values, tensors = gguf_of("llama", len(tokens), n_kv_heads=1, d_ff=12, max_len=16)
    values |= {
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 1e4,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.bos_token_id": about["vocab"]["</s>"],
        "tokenizer.ggml.eos_token_id": about["vocab"]["</s>"],
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": True,
        "tokenizer.chat_template": "{{ messages }}",
    }
    write_gguf(path, "llama", values, tensors, tokens, [1] * len(tokens), merges)


def damaged_copy(draw, wholes, place):
    """A copy of one of the models, in which one file is changed."""
    whole = draw.choice(wholes)
    if whole.is_file():
        place.mkdir()
        path = Path(shutil.copy(whole, place))
    else:
        path = draw.choice(sorted(shutil.copytree(whole, place).iterdir()))
    if draw.random() < 0.35 or path.suffix not in (".json", ".safetensors", ".gguf"):
        path.write_bytes(damaged(draw, path.read_bytes()))
    elif path.suffix == ".gguf":  # a wrong number in its header
        data, at = bytearray(path.read_bytes()), draw.randrange(4, 9000)
        number = draw.choice([0, 1, 2, 255, 2**31, 2**32 - 1, 2**60, 2**63, 2**64 - 1])
        data[at : at + 8] = struct.pack("<Q", number)
        path.write_bytes(data)
    elif draw.random() < 0.1:
        path.unlink()
    elif path.suffix == ".json":
        path.write_bytes(as_bytes(draw, changed(draw, json.loads(path.read_text()))))
    else:
        header, data = parts(path)
        path.write_bytes(joined(as_bytes(draw, changed(draw, header)), data))
    return path if whole.is_file() else place


if __name__ == "__main__":
    sys.exit(main())
