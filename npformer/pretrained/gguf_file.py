"""GGUF files, as llama.cpp has them: a Llama or Qwen with its tokenizer, often quantised."""

import math
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from npformer.checks import shown
from npformer.extras import imported
from npformer.files.paths import check_regular
from npformer.operations.settings import Llama3Scaling
from npformer.pretrained.family import Stored
from npformer.pretrained.keys import GGUF, GGUF_MODEL, check_keys, refused_unless

NAMES = {  # theirs -> those of the library transformers
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
SETTINGS = {
    "hidden_size": "embedding_length",
    "head_dim": "attention.key_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}
KINDS = "llama", "qwen2", "qwen3"  # architectures that are read
NUMBERS = dict(enumerate("BbHhIif?")) | {
    10: "Q",
    11: "q",
    12: "d",
}  # kinds of values: the codes of struct
STRING, ARRAY = 8, 9
ALIGNMENT = 32  # bytes, if the file does not say


def read_gguf(path: Path) -> tuple[dict, dict[str, Stored], dict]:
    """What a folder of transformers would hold: config.json, the tensors, and what the file says of its tokenizer."""
    about, tensors = Header(path).read()
    kind = about.get("general.architecture")
    if kind not in KINDS:
        given = f"general.architecture={shown(kind)}: its architecture is {shown(kind)}"
        raise ValueError(f"{given}, supported are {', '.join(map(repr, KINDS))}")
    check_whole(about)
    prefix = f"{kind}."
    of_model = {key.removeprefix(prefix): x for key, x in about.items() if key.startswith(prefix)}
    others = {key: x for key, x in about.items() if not key.startswith((prefix, "tokenizer."))}
    check_keys(others, GGUF, "the GGUF file")
    width = head_width(of_model)
    same_width = {} if width is None else {"rope.dimension_count": width, "attention.value_length": width}
    check_keys(of_model, GGUF_MODEL | refused_unless(same_width), f"the GGUF file, in {kind}.*,")
    config = {ours: of_model[theirs] for ours, theirs in SETTINGS.items() if theirs in of_model}
    config |= {"model_type": kind, "vocab_size": len(about.get("tokenizer.ggml.tokens", []))}
    config.setdefault("head_dim", width)  # not the default of config.json
    rope = rotation_in(of_model, tensors.pop("rope_freqs.weight", None))
    if rope:
        config["rope_scaling"] = rope
    found = {}
    for name, stored in tensors.items():
        *layer, module, leaf = name.removeprefix("blk.").split(".")
        heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(module)
        if heads and kind == "llama":
            stored = as_halves(stored, config.get(heads, config.get("num_attention_heads")))
        found[".".join([*(["layers", *layer] if layer else []), NAMES.get(module, module), leaf])] = stored
    config["tie_word_embeddings"] = "lm_head.weight" not in found
    return config, found, about


def check_whole(about: dict) -> None:
    """Raise if the file is a part of a model, or has no tokenizer."""
    n_parts = about.get("split.count", 1)
    if n_parts != 1:
        part = f"split.count={n_parts}: it is one of {n_parts} parts of a split GGUF file"
        raise ValueError(f"{part}; llama-gguf-split --merge FIRST-PART NEW-FILE joins them")
    if about.get("tokenizer.ggml.model", "none") in ("none", "no_vocab"):
        model = shown(about.get("tokenizer.ggml.model"))
        raise ValueError(f"tokenizer.ggml.model={model}: it has no tokenizer; convert the model with its tokenizer")


def head_width(of_model: dict) -> Any:
    """How wide a head is, or None if a size is missing or wrong, which is named with the other settings."""
    if of_model.get("attention.key_length") is not None:
        return of_model["attention.key_length"]
    try:
        return of_model["embedding_length"] // of_model["attention.head_count"]
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def rotation_in(of_model: dict, divisors: Stored | None) -> dict:
    """How the rotation is scaled, as config.json says it; an empty dict if it is not.

    Of the scaling of Llama 3.1 a file holds what it divides each frequency by. Its two other
    numbers are 1 and 4 in all models, which is checked.
    """
    scaling = "linear" if "rope.scale_linear" in of_model else "none"
    scaling = of_model.get("rope.scaling.type", scaling)
    if scaling != "none":
        factor = of_model.get("rope.scaling.factor", of_model.get("rope.scale_linear", 1.0))
        return {"rope_type": scaling, "factor": factor}
    if divisors is None:
        return {}
    stored = divisors.rows(slice(None))
    factor = float(stored.max())
    if factor == 1:
        return {}
    length = of_model.get("rope.scaling.original_context_length", 8192)
    llama3 = Llama3Scaling(factor, original_max_len=length)
    frequencies = of_model.get("rope.freq_base", 1e4) ** (-np.arange(len(stored)) / len(stored))
    if not np.allclose(frequencies / llama3.frequencies(frequencies), stored, rtol=1e-5):
        raise ValueError(f"rope_freqs.weight is not that of {llama3}, as supported")
    rope = {"rope_type": "llama3", "original_max_position_embeddings": length, "factor": factor}
    return rope | {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


def as_halves(stored: Stored, n_heads: Any) -> Stored:
    """Order the rows of a projection to queries or keys as rotary positions of npformer turn them.

    The pairs of a head that are turned together are the rows 2i and 2i+1 in a GGUF file, and the rows i and i + K/2 in
    npformer and in transformers.
    """
    if not isinstance(n_heads, int) or n_heads < 1 or stored.shape[0] % (2 * n_heads):
        raise ValueError(f"a projection of shape {stored.shape} has no {shown(n_heads)} heads of even width")
    return stored.take(stored.numbers().reshape(n_heads, -1, 2).swapaxes(1, 2).reshape(-1))


class Header:
    """Reads what a file says of itself, and never more than it has."""

    def __init__(self, path: Path):
        check_regular(path)
        self.taken: list[tuple[int, int, str]] = []  # the places of the tensors: begin, end, name
        self.data, self.at = (
            np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8),
            0,
        )

    def read(self) -> tuple[dict, dict[str, Stored]]:
        """The values by their names, and the tensors."""
        if self.take(4) != b"GGUF" or self.number("I") not in (2, 3):
            raise ValueError("it does not begin as a GGUF file of version 2 or 3")
        n_tensors, n_values = self.number("Q"), self.number("Q")
        about = {}
        for _ in range(n_values):
            name = self.text()
            about[name] = self.value(self.number("I"))
        places = {}
        for _ in range(n_tensors):
            name, n_axes = self.text(), self.number("I")
            if name in places:
                raise ValueError(f"it has two tensors with the name {name:.80}")
            shape = tuple(self.number("Q") for _ in range(min(n_axes, 9)))[::-1]
            places[name] = shape, self.number("I"), self.number("Q")
        alignment = about.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"general.alignment={shown(alignment)}, expected at least 1")
        begin = -(-self.at // alignment) * alignment
        tensors = {name: self.stored(name, begin, *place) for name, place in places.items()}
        self.check_apart()
        return about, tensors

    def take(self, n: int) -> bytes:
        """The next n bytes."""
        if n > len(self.data) - self.at:
            raise ValueError("it ends before its header is complete, or it is damaged")
        self.at += n
        return bytes(self.data[self.at - n : self.at])

    def number(self, code: str) -> Any:
        """The next number."""
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def text(self) -> str:
        """The next text."""
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """The next value."""
        if kind == STRING:
            return self.text()
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind != ARRAY:
            raise ValueError(f"it has a value of kind {kind}, expected 0 to 12: it is damaged")
        kind, n = self.number("I"), self.number("Q")
        if kind == STRING:
            return [self.text() for _ in range(n)]
        if kind not in NUMBERS:
            raise ValueError(f"it has a list of kind {kind}, expected numbers or texts")
        code = NUMBERS[kind]
        return list(struct.unpack(f"<{n}{code}", self.take(n * struct.calcsize(f"<{code}"))))

    def check_apart(self) -> None:
        """Raise if two tensors share bytes: a small file could have any number of large ones."""
        for (_, end, name), (begin, _, other) in pairwise(sorted(self.taken)):
            if begin < end:
                raise ValueError(f"{name:.80} and {other:.80} have the same bytes of the file, expected their own")

    def stored(self, name: str, begin: int, shape: tuple[int, ...], kind: int, offset: int) -> Stored:
        """A tensor, which is dequantised when it is read."""
        gguf = imported("gguf.quants", "pretrained", "GGUF files need")
        try:
            kind = gguf.GGMLQuantizationType(kind)
        except ValueError:
            raise ValueError(f"{name:.80} is quantised in the unknown way {kind}") from None
        block, size = gguf.GGML_QUANT_SIZES[kind]
        width = shape[-1] // block * size if shape else 0
        begin, n_rows = begin + offset, math.prod(shape[:-1])
        if not shape or shape[-1] % block or begin + n_rows * width > len(self.data):
            raise ValueError(f"{name:.80} of shape {shape} does not lie in the file: it is cut off or damaged")
        self.taken.append((begin, begin + n_rows * width, name))
        data = self.data[begin : begin + n_rows * width].reshape(*shape[:-1], width)

        def rows(part):
            try:
                x = gguf.quants.dequantize(data if len(shape) == 1 else data[part], kind)
            except NotImplementedError:
                raise ValueError(f"{name:.80} is quantised as {kind.name}, which is not supported") from None
            return x[part] if len(shape) == 1 else x.reshape(-1, *shape[1:])

        return Stored(shape, rows)
