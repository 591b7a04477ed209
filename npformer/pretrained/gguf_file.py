"""GGUF files, as llama.cpp has them: a Llama with its tokenizer in one file, often quantised."""

from pathlib import Path
from typing import Any

import numpy as np

from npformer.checks import shown
from npformer.pretrained.family import Stored
from npformer.runtime.extras import pip_install

NAMES = {  # theirs -> those of the library transformers
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
SETTINGS = {
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}


def read_gguf(path: Path) -> tuple[dict, dict[str, Stored], dict]:
    """What a folder of transformers would hold: config.json, the tensors, and what the file says of its tokenizer."""
    gguf = import_gguf()
    try:
        file = gguf.GGUFReader(path)
        about = {name: field.contents() for name, field in file.fields.items()}
    except Exception as error:  # the library checks little, so that a damaged file raises whatever it happens to
        raise ValueError(f"it is no GGUF file, or a damaged one: {type(error).__name__}: {error}") from None
    if (kind := about.get("general.architecture")) != "llama":
        raise ValueError(f"its architecture is {shown(kind)}, supported is 'llama'")
    config = {ours: about[f"llama.{theirs}"] for ours, theirs in SETTINGS.items() if f"llama.{theirs}" in about}
    config |= {"model_type": "llama", "vocab_size": len(about.get("tokenizer.ggml.tokens", []))}
    if scaling := about.get("llama.rope.scaling.type"):
        config["rope_scaling"] = {"rope_type": scaling, "factor": about.get("llama.rope.scaling.factor", 1.0)}
    tensors = {}
    for tensor in file.tensors:
        first, _, rest = tensor.name.partition(".")
        number, _, rest = rest.partition(".") if first == "blk" else ("", "", tensor.name)
        module, _, leaf = rest.rpartition(".")
        name = f"{NAMES.get(module, module)}.{leaf}"
        heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(module)
        stored = _stored(gguf, tensor)
        if heads:
            stored = as_halves(stored, config.get(heads, config.get("num_attention_heads")))
        tensors[f"layers.{number}.{name}" if number else name] = stored
    config["tie_word_embeddings"] = "lm_head.weight" not in tensors
    return config, tensors, about


def as_halves(stored: Stored, n_heads: Any) -> Stored:
    """Order the rows of a projection to queries or keys as rotary positions of npformer turn them.

    The pairs of a head that are turned together are the rows 2i and 2i+1 in a GGUF file, and the rows i and i + K/2 in
    npformer and in transformers.
    """
    if not isinstance(n_heads, int) or n_heads < 1 or stored.shape[0] % (2 * n_heads):
        raise ValueError(f"a projection of shape {stored.shape} has no {shown(n_heads)} heads of even width")
    order = np.arange(stored.shape[0]).reshape(n_heads, -1, 2).swapaxes(1, 2).reshape(-1)
    return Stored(stored.shape, lambda rows: stored.rows(slice(0, stored.shape[0]))[order[rows]])


def _stored(gguf: Any, tensor: Any) -> Stored:
    shape = tuple(map(int, reversed(tensor.shape)))

    def rows(part):
        try:
            return gguf.quants.dequantize(tensor.data[part], tensor.tensor_type).reshape(-1, *shape[1:])
        except NotImplementedError:
            raise ValueError(
                f"{tensor.name} is quantised as {tensor.tensor_type.name}, which is not supported"
            ) from None

    return Stored(shape, rows)


def import_gguf() -> Any:
    """The package gguf."""
    try:
        import gguf
        import gguf.quants
    except ImportError as error:
        raise ImportError(f"GGUF files need gguf: {pip_install('pretrained')}") from error
    return gguf
