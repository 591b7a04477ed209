"""A Llama or Qwen in a GGUF file, as a folder of transformers would have it."""

from pathlib import Path
from typing import Any

import numpy as np

from npformer.checks import shown
from npformer.errors import UserError
from npformer.operations.settings import Llama3Scaling
from npformer.pretrained.files import Contents, Stored, Tensors
from npformer.pretrained.gguf.reader import contents_of
from npformer.pretrained.gguf.tokenizer import tokenizer_files
from npformer.pretrained.keys import GGUF_KEYS, GGUF_MODEL_KEYS
from npformer.pretrained.rules import check_keys, check_supported, parse_table, refused_unless

MODULE_NAMES = parse_table("""
    token_embd   embed_tokens
    output_norm  norm
    output       lm_head
    attn_norm    input_layernorm
    attn_q       self_attn.q_proj
    attn_k       self_attn.k_proj
    attn_v       self_attn.v_proj
    attn_q_norm  self_attn.q_norm
    attn_k_norm  self_attn.k_norm
    attn_output  self_attn.o_proj
    ffn_norm     post_attention_layernorm
    ffn_gate     mlp.gate_proj
    ffn_up       mlp.up_proj
    ffn_down     mlp.down_proj
    """)
CONFIG_NAMES = parse_table("""
    hidden_size              embedding_length
    head_dim                 attention.key_length
    num_attention_heads      attention.head_count
    num_key_value_heads      attention.head_count_kv
    num_hidden_layers        block_count
    intermediate_size        feed_forward_length
    max_position_embeddings  context_length
    rms_norm_eps             attention.layer_norm_rms_epsilon
    rope_theta               rope.freq_base
    """)
ARCHITECTURES = "llama", "qwen2", "qwen3"  # those that are read
# Projections whose rows have another order in a Llama, and the number of heads of each.
TURNED = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}


def read_gguf(path: Path) -> Contents:
    """What a folder of transformers would hold."""
    about, tensors = contents_of(path)
    kind: Any = about.get("general.architecture")
    check_supported("the GGUF file has general.architecture", kind, ARCHITECTURES)
    check_whole(about)
    of_model = keys_of_model(about, kind)
    config = {theirs: of_model[key] for theirs, key in CONFIG_NAMES.items() if key in of_model}
    config["model_type"] = kind
    config["vocab_size"] = len(about.get("tokenizer.ggml.tokens", []))
    config.setdefault("head_dim", head_width(of_model))  # not the default of config.json
    divisors = tensors.pop("rope_freqs.weight", None) if kind == "llama" else None
    rope = rotation_in(of_model, divisors)
    if rope:
        config["rope_scaling"] = rope
    renamed = {transformers_name(name): stored for name, stored in tensors.items()}
    if kind == "llama":
        renamed = in_halves(renamed, config)
    config["tie_word_embeddings"] = "lm_head.weight" not in renamed
    return Contents(config, renamed, tokenizer_files(about))


def keys_of_model(about: dict, kind: str) -> dict:
    """The values whose names begin with that of the architecture, without it; all are checked."""
    of_model, of_file = {}, {}
    for key, value in about.items():
        if key.startswith(f"{kind}."):
            of_model[key.removeprefix(f"{kind}.")] = value
        else:
            of_file[key] = value
    check_keys(of_file, GGUF_KEYS, "the GGUF file")
    rules = GGUF_MODEL_KEYS
    width = head_width(of_model)
    if width is not None:
        same = {"rope.dimension_count": width, "attention.value_length": width}
        rules = GGUF_MODEL_KEYS | refused_unless(same)
    check_keys(of_model, rules, f"the GGUF file, in {kind}.*,")
    return of_model


def transformers_name(name: str) -> str:
    """The name of a tensor in a folder of transformers."""
    *layer, module, leaf = name.removeprefix("blk.").split(".")
    theirs = f"{MODULE_NAMES.get(module, module)}.{leaf}"
    return ".".join(["layers", *layer, theirs]) if layer else theirs


def check_whole(about: dict) -> None:
    """Raise if the file is a part of a model, or has no tokenizer."""
    n_parts = about.get("split.count", 1)
    if n_parts != 1:
        raise UserError(
            f"split.count={n_parts}: it is one of {n_parts} parts of a split GGUF file; "
            "llama-gguf-split --merge FIRST-PART NEW-FILE joins them"
        )
    model = about.get("tokenizer.ggml.model", "none")
    if model in ("none", "no_vocab"):
        raise UserError(
            f"tokenizer.ggml.model={shown(about.get('tokenizer.ggml.model'))}: "
            "it has no tokenizer; convert the model with its tokenizer"
        )


def head_width(of_model: dict):
    """How wide a head is, or None if a size is missing or wrong, which is named later."""
    width = of_model.get("attention.key_length")
    if width is not None:
        return width
    try:
        return of_model["embedding_length"] // of_model["attention.head_count"]
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def rotation_in(of_model: dict, divisors: Stored | None) -> dict:
    """How the rotation is scaled, as config.json says it; an empty dict if it is not."""
    by_pair = np.ones(1) if divisors is None else divisors.rows(slice(None))
    is_divided = bool((by_pair != 1).any())
    kind = "linear" if "rope.scale_linear" in of_model else "none"
    kind = of_model.get("rope.scaling.type", kind)
    if kind == "none":
        return rotation_of_llama3(of_model, by_pair) if is_divided else {}
    if is_divided:  # llama.cpp divides by both
        raise UserError(
            f"it has rope_freqs.weight and rope.scaling.type={shown(kind)}, "
            "supported is one of them"
        )
    factor = of_model.get("rope.scaling.factor", of_model.get("rope.scale_linear", 1.0))
    return {"rope_type": kind, "factor": factor}


def rotation_of_llama3(of_model: dict, by_pair) -> dict:
    """The scaling of Llama 3.1, of which a file holds what it divides each frequency by.

    Its two other numbers are 1 and 4 in all models, which is checked.
    """
    factor = float(by_pair.max())
    length = of_model.get("rope.scaling.original_context_length", 8192)
    llama3 = Llama3Scaling(factor, original_max_len=length)
    exponents = np.arange(len(by_pair)) / len(by_pair)
    frequencies = of_model.get("rope.freq_base", 1e4) ** -exponents
    if not np.allclose(frequencies / llama3.frequencies(frequencies), by_pair, rtol=1e-5):
        raise UserError(f"rope_freqs.weight is not that of {llama3}, as supported")
    return {
        "rope_type": "llama3",
        "original_max_position_embeddings": length,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }


def in_halves(tensors: Tensors, config: dict) -> Tensors:
    """The tensors of a Llama, whose projections to queries and keys get another order of rows."""
    ordered = {}
    for name, stored in tensors.items():
        for projection, key in TURNED.items():
            if f".{projection}." in name:
                stored = as_halves(stored, config.get(key, config.get("num_attention_heads")))
        ordered[name] = stored
    return ordered


def as_halves(stored: Stored, n_heads) -> Stored:
    """Order the rows of a projection to queries or keys as rotary positions of npformer turn them.

    The pairs of a head that are turned together are the rows 2i and 2i+1 in a GGUF file, and the
    rows i and i + K/2 in npformer and in transformers.
    """
    if not isinstance(n_heads, int) or n_heads < 1 or stored.shape[0] % (2 * n_heads):
        raise UserError(
            f"a projection of shape {stored.shape} has no {shown(n_heads)} heads of even width"
        )
    return stored.take(stored.numbers().reshape(n_heads, -1, 2).swapaxes(1, 2).reshape(-1))
