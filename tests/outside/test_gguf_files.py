"""Quantised GGUF files, as npformer and as the library transformers read them."""

import logging
from functools import partial

import numpy as np
import pytest
from in_float64 import compute_in_float64

from npformer import pretrained
from tests.tools.forge_pretrained import gguf_of, write_gguf

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning:transformers", "ignore::UserWarning:torch"
)
KINDS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
# Of K-quants, the places of the float16 in a block that scale it, and a value with which the others
# stay below 1.
K_QUANTS = {
    "Q2_K": ((80, 82), 2**-6),
    "Q3_K": ((108,), 2**-8),
    "Q4_K": ((0, 2), 2**-10),
    "Q5_K": ((0, 2), 2**-11),
    "Q6_K": ((208,), 2**-12),
}
ALPHABET = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
WORDS = [*ALPHABET, "th", "<|endoftext|>", "<|im_end|>"]


@pytest.fixture(autouse=True)
def in_float64(monkeypatch):
    compute_in_float64(monkeypatch, torch)
    logging.getLogger("transformers").setLevel(logging.ERROR)


def quantised(x, kind, rng):
    """The bytes of a matrix in this kind of numbers, and the kind.

    For K-quants, which gguf can only read, one of random bytes.
    """
    of_numbers = gguf.GGMLQuantizationType[kind]
    if kind not in K_QUANTS:
        return gguf.quants.quantize(x, of_numbers), of_numbers
    numbers, size = gguf.GGML_QUANT_SIZES[of_numbers]
    blocks = rng.integers(0, 256, (x.size // numbers, size), dtype=np.uint8)
    places, scale = K_QUANTS[kind]
    for place in places:
        blocks[:, place : place + 2] = np.float16([scale]).view(np.uint8)
    return blocks.reshape(len(x), -1), of_numbers


def write_qwen2(path, kind, D, F):
    """A Qwen2 whose matrices have this kind of numbers."""
    sizes = {"n_kv_heads": 2, "d_ff": F, "max_len": 32, "width": D, "n_heads": 4}
    values, tensors = gguf_of("qwen2", len(WORDS), **sizes)
    values |= {
        "qwen2.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen2.rope.freq_base": 1e6,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.eos_token_id": len(WORDS) - 1,
        "tokenizer.ggml.padding_token_id": len(WORDS) - 2,
    }
    rng = np.random.default_rng(0)
    for name in "qkv":
        width = len(tensors[f"blk.0.attn_{name}.weight"])
        tensors[f"blk.0.attn_{name}.bias"] = rng.standard_normal(width)
    tensors = {name: x / 4 for name, x in tensors.items()}
    kinds = [1] * (len(WORDS) - 2) + [3, 3]
    as_bytes = partial(quantised, kind=kind, rng=rng)
    write_gguf(path, "qwen2", values, tensors, WORDS, kinds, ["t h"], as_bytes)


@pytest.mark.parametrize("kind", [*KINDS, *K_QUANTS])
def test_a_qwen2_has_the_logits_of_theirs(tmp_path, kind):
    path = tmp_path / "qwen2.gguf"
    write_qwen2(path, kind, *((256, 512) if kind in K_QUANTS else (64, 96)))  # of whole blocks
    kind_of_model = transformers.AutoModelForCausalLM
    theirs = kind_of_model.from_pretrained(tmp_path, gguf_file=path.name).double().eval()
    model, params, _ = pretrained.load(path, dtype="float64")
    assert model.qkv_bias
    ids = np.random.default_rng(1).integers(0, 256, (2, 9))
    wanted = theirs(torch.tensor(ids)).logits.detach().numpy()
    np.testing.assert_allclose(model.logits(params, ids), wanted, atol=1e-6)
