"""Quantised GGUF files, as npformer and as the library transformers read them."""

import logging

import numpy as np
import pytest
from in_float64 import compute_in_float64

from npformer import pretrained

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
HEADS, KV_HEADS = 4, 2
WORDS = [
    *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
    "th",
    "<|endoftext|>",
    "<|im_end|>",
]


@pytest.fixture(autouse=True)
def in_float64(monkeypatch):
    compute_in_float64(monkeypatch, torch)
    logging.getLogger("transformers").setLevel(logging.ERROR)


def quantised(x, kind, rng):
    """A matrix in this kind of numbers.

    For K-quants, which gguf can only read, one of random bytes.
    """
    if kind not in K_QUANTS:
        return gguf.quants.quantize(x, gguf.GGMLQuantizationType[kind])
    numbers, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = rng.integers(0, 256, (x.size // numbers, size), dtype=np.uint8)
    places, scale = K_QUANTS[kind]
    for place in places:
        blocks[:, place : place + 2] = np.float16([scale]).view(np.uint8)
    return blocks.reshape(len(x), -1)


def write_qwen2(path, kind, D, F):
    """A Qwen2 whose matrices have this kind of numbers."""
    writer = gguf.GGUFWriter(str(path), "qwen2")
    writer.add_context_length(32)
    writer.add_embedding_length(D)
    writer.add_block_count(1)
    writer.add_feed_forward_length(F)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(WORDS)
    writer.add_token_types([1] * (len(WORDS) - 2) + [3, 3])
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(len(WORDS) - 1)
    writer.add_pad_token_id(len(WORDS) - 2)
    width = D // HEADS * KV_HEADS
    shapes = {"attn_q": (D, D), "attn_k": (width, D), "attn_v": (width, D), "attn_output": (D, D)}
    shapes |= {
        "ffn_gate": (F, D),
        "ffn_up": (F, D),
        "ffn_down": (D, F),
        "attn_norm": (D,),
        "ffn_norm": (D,),
    }
    tensors = {f"blk.0.{name}.weight": shape for name, shape in shapes.items()}
    tensors |= {f"blk.0.attn_{name}.bias": shapes[f"attn_{name}"][:1] for name in "qkv"}
    tensors |= {"token_embd.weight": (len(WORDS), D), "output_norm.weight": (D,)}
    rng = np.random.default_rng(0)
    of_numbers = gguf.GGMLQuantizationType[kind]
    for name, shape in tensors.items():
        x = rng.standard_normal(shape).astype(np.float32) / 4
        if len(shape) == 1:
            writer.add_tensor(name, x)
        else:
            writer.add_tensor(name, quantised(x, kind, rng), raw_dtype=of_numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", [*KINDS, *K_QUANTS])
def test_a_qwen2_has_the_logits_of_theirs(tmp_path, kind):
    path = tmp_path / "qwen2.gguf"
    write_qwen2(path, kind, *((256, 512) if kind in K_QUANTS else (64, 96)))  # of whole blocks
    theirs = (
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name)
        .double()
        .eval()
    )
    model, params, _ = pretrained.load(path, dtype="float64")
    assert model.qkv_bias
    ids = np.random.default_rng(1).integers(0, 256, (2, 9))
    wanted = theirs(torch.tensor(ids)).logits.detach().numpy()
    np.testing.assert_allclose(model.logits(params, ids), wanted, atol=1e-6)
