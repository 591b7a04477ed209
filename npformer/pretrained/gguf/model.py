"""GGUF files, as llama.cpp has them: a Llama or Qwen with its tokenizer, often quantised."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npformer.checks import shown, warn
from npformer.errors import UserError
from npformer.operations.settings import Llama3Scaling
from npformer.pretrained.files import Contents, Files, Stored, Tensors
from npformer.pretrained.gguf_reader import contents_of
from npformer.pretrained.keys import (
    GGUF_KEYS,
    GGUF_MODEL_KEYS,
    check_keys,
    check_supported,
    parse_table,
    refused_unless,
)
from npformer.pretrained.library_tokenizers import around_text, byte_pairs, import_tokenizers
from npformer.pretrained.tokenizer_settings import (
    GENERATION_FILE,
    SETTINGS_FILE,
    TOKENIZER_FILE,
    listed_templates,
)

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
TOKEN_NAMES = parse_table("""
    bos  bos
    eos  eos
    pad  padding
    unk  unknown
    """)
CHAT_TEMPLATE = "tokenizer.chat_template"
# Types of tokens: one that no text has, and one that is never divided.
CONTROL, USER_DEFINED = 3, 4
BEFORE_DIGITS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
AFTER_DIGITS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class Words(NamedTuple):
    """How a tokenizer divides a text into words, which it then divides into tokens."""

    pattern: str | None = None  # a regular expression of a word; None divides as GPT-2 does
    digits_apart: bool = False  # whether each digit is a word
    nfc: bool = False  # whether the text is normalised to NFC before
    keeps_tokens: bool = False  # whether a word that is a token stays whole


LLAMA3_WORDS = Words(rf"{BEFORE_DIGITS}\p{{N}}{{1,3}}{AFTER_DIGITS}", keeps_tokens=True)
WORDS = {  # by tokenizer.ggml.pre
    "smollm": Words(digits_apart=True),
    "gpt-2": Words(),
    "qwen2": Words(rf"{BEFORE_DIGITS}\p{{N}}{AFTER_DIGITS}", nfc=True),
    "llama-bpe": LLAMA3_WORDS,
    "llama3": LLAMA3_WORDS,
    "llama-v3": LLAMA3_WORDS,
}
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


# -- the tokenizer


def tokenizer_files(about: dict) -> Files:
    """The files of the tokenizer in what a file says of itself."""
    said = {key.removeprefix("tokenizer.ggml."): value for key, value in about.items()}
    templates = {}
    for key, text in about.items():
        if key == CHAT_TEMPLATE or key.startswith(f"{CHAT_TEMPLATE}."):
            templates[key.removeprefix(CHAT_TEMPLATE).removeprefix(".") or "default"] = text
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings["chat_template"] = listed_templates(templates)
    for role, name in TOKEN_NAMES.items():
        id_ = said.get(f"{name}_token_id")
        if id_ is not None:
            settings[f"{role}_token"] = said["tokens"][id_]
    ends = [said.get(f"{name}_token_id") for name in ("eos", "eot", "eom")]
    generation = {"eos_token_id": [id_ for id_ in ends if id_ is not None]}
    return {
        TOKENIZER_FILE: whole_tokenizer(said).to_str().encode(),
        SETTINGS_FILE: json.dumps(settings).encode(),
        GENERATION_FILE: json.dumps(generation).encode(),
    }


def words_of(said: dict) -> Words:
    """How a file says that text is divided into words."""
    model = said.get("model")
    name = said.get("pre", "default")
    if model != "gpt2" or name not in (*WORDS, "default"):
        supported = " or ".join(map(repr, WORDS))
        raise UserError(
            f"it has tokenizer.ggml.model={shown(model)} with tokenizer.ggml.pre={shown(name)}, "
            f"supported is 'gpt2' with {supported}"
        )
    if name == "default":
        warn(
            "it does not say how text is divided into words (tokenizer.ggml.pre): "
            "divided as GPT-2 does, which may give other tokens. "
            "A newer llama.cpp converts it again"
        )
        return WORDS["gpt-2"]
    return WORDS[name]


def whole_tokenizer(said: dict):
    """The tokenizer of the library tokenizers, by the keys of a file without their beginnings."""
    words = words_of(said)
    tokens = said["tokens"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizers = import_tokenizers()
    steps = tokenizers.pre_tokenizers
    merges = {f"tokenizer.ggml.merges: entry {i}": x for i, x in enumerate(said["merges"])}
    inner = byte_pairs(vocabulary, merges, ignore_merges=words.keeps_tokens)
    if words.digits_apart:
        digits = steps.Digits(individual_digits=True)
        inner.pre_tokenizer = steps.Sequence([digits, inner.pre_tokenizer])
    if words.pattern is not None:
        split = steps.Split(tokenizers.Regex(words.pattern), "isolated")
        in_bytes = steps.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.pre_tokenizer = steps.Sequence([split, in_bytes])
    if words.nfc:
        inner.normalizer = tokenizers.normalizers.NFC()
    before = [tokens[said["bos_token_id"]]] if said.get("add_bos_token") else []
    after = [tokens[said["eos_token_id"]]] if said.get("add_eos_token") else []
    if before or after:
        inner.post_processor = around_text(before, after, vocabulary)
    undivided = []
    for token, kind in zip(tokens, said["token_type"], strict=True):
        if kind in (CONTROL, USER_DEFINED):
            is_special = kind == CONTROL
            undivided.append(tokenizers.AddedToken(token, special=is_special, normalized=False))
    inner.add_tokens(undivided)
    return inner
